"""Learning curves of the proofs as SVG files, from the result files."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.results import ROOT
from landbridge.report.charts import Series, line_chart

FIGURES = ROOT / "docs" / "figures"
_STYLE = (
    "<style>svg { --c0: #1f6fd0; --c1: #c65a11; --c2: #2f8a57; --c3: #8650a8; --line: #9aa5b1; background: #ffffff; "
    "font: 12px sans-serif; }</style>"
)
_WINDOW = 5
"""Updates a point of a curve is the mean of: a batch of 512 episodes leaves 4 points of noise."""


def figures() -> dict[str, str]:
    """File name → SVG, one for every result that holds curves."""
    made = {}
    for path in sorted((ROOT / "docs" / "results").glob("*.json")):
        result = json.loads(path.read_text())
        if any("curve" in seed for seed in result.get("seeds", [])):
            made[f"{path.stem}.svg"] = _standalone(_chart(result))
    return made


def _chart(result: dict[str, Any]) -> str:
    series = [_series(f"seed {seed['seed']}", seed["curve"]) for seed in result["seeds"]]
    return line_chart(series, "minutes of training", "success while exploring", (0.0, 1.0), percent=True)


def _series(name: str, curve: list[list[float]]) -> Series:
    minutes, success = [row[0] for row in curve], [row[2] for row in curve]
    windows = [success[max(0, i - _WINDOW + 1) : i + 1] for i in range(len(success))]
    return Series(name, minutes, [sum(window) / len(window) for window in windows])


def _standalone(svg: str) -> str:
    """What a page's style sheet gives an inline picture, a file must bring along."""
    opened = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return opened.replace(">", f">{_STYLE}", 1) + "\n"
