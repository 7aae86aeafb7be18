"""Result files ``docs/results/NAME.json``: a figure, how it was made, and from which commit."""

from __future__ import annotations

import datetime
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("LANDBRIDGE_RESULTS", ROOT / "docs" / "results"))
"""CI's shortened proofs write elsewhere."""


def write(
    name: str,
    *,
    figure: str,
    value: float,
    unit: str,
    peer: str = "",
    ratio: float | None = None,
    **details: Any,
) -> Path:
    """Write one result. ``figure`` says what ``value`` is; ``peer`` and ``ratio`` what it was measured beside."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {
        "name": name,
        "figure": figure,
        "value": value,
        "unit": unit,
        "peer": peer,
        "ratio": ratio,
        **details,
        "command": shlex.join(["python", "-m", _module(), *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{name}: {figure} = {value:.6g} {unit}" + (f"  ({ratio:.3g} × {peer})" if ratio is not None else ""))
    return path


def _module() -> str:
    return ".".join(Path(sys.argv[0]).resolve().relative_to(ROOT).with_suffix("").parts)


def commit() -> str:
    """The commit checked out, with a + when the tree differs from it."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
