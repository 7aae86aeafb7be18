"""``docs/results.md`` and ``docs/figures`` from ``docs/results/*.json``; with ``--check``, exit 1 when one is stale.

Run: ``python -m benchmarks.tables``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.curves import FIGURES, figures
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


def made() -> dict[Path, str]:
    """Every file that is made from results, and what it has to hold."""
    return {PAGE: page(), **{FIGURES / name: svg for name, svg in figures().items()}}


def stale() -> list[str]:
    """Files that differ from what the results give."""
    return [path.name for path, text in made().items() if not path.exists() or path.read_text() != text]


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        names = stale()
        print(f"stale: {', '.join(names)}; run python -m benchmarks.tables" if names else "fresh")
        return 1 if names else 0
    for path, text in made().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
