"""``docs/results.md`` from ``docs/results/*.json``; with ``--check``, exit 1 when it is stale.

Run: ``python -m benchmarks.tables``.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.results import ROOT

PAGE = ROOT / "docs" / "results.md"
_HEAD = """# Results

Made by `python -m benchmarks.tables` from `docs/results/*.json`; every row names the command that made it. Machines are
shared and noisy: ratios beside a peer in one run count, absolute times do not.

| result | figure | value | peer | command | commit | date |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The page's text."""
    rows = [_row(json.loads(path.read_text())) for path in sorted((ROOT / "docs" / "results").glob("*.json"))]
    return _HEAD + "\n".join(rows) + "\n"


def _row(result: dict[str, Any]) -> str:
    value = f"{result['value']:.4g} {result['unit']}"
    if "low" in result:
        value += f" [{result['low']:.3g}, {result['high']:.3g}]"
    cells = [result["name"], result["figure"], value, result["peer"] or "–"]
    cells += [f"`{result['command']}`", result["commit"], result["date"]]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        fresh = PAGE.exists() and PAGE.read_text() == page()
        print("docs/results.md is fresh" if fresh else "docs/results.md is stale: run python -m benchmarks.tables")
        return 0 if fresh else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
