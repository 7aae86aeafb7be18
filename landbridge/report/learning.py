"""What a learner's run folder says about its training."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from landbridge.intervals import Rate
from landbridge.report import html
from landbridge.report.charts import Series, histogram, line_chart, number

_STALENESS = "staleness_"


def learning_section(run_dir: Path) -> str:
    """Markup from ``metrics.jsonl`` and ``swaps.jsonl``: learning curves, staleness, every swap of weights."""
    updates, swaps = json_lines(run_dir / "metrics.jsonl"), json_lines(run_dir / "swaps.jsonl")
    if not updates:
        return html.section("Learning", html.paragraph(f"No update is recorded in {run_dir}.", "soft"))
    last = updates[-1]
    summary = (
        f"{len(updates)} updates in {last['seconds'] / 60:.1f} minutes, {number(round(last.get('env_steps', 0)))} "
        f"environment steps; the last weights are version {last['version']}."
    )
    return html.section("Learning", html.paragraph(summary), *_curves(updates), _staleness(updates), _swaps(swaps))


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; none where it is absent. A line being written when a process died is left out."""
    found: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            found.append(content)
    return found


def _curves(updates: list[dict[str, Any]]) -> list[str]:
    rates = [Rate(round(u["success_once"] * u["batch_trajectories"]), int(u["batch_trajectories"])) for u in updates]
    shares = [rate.value for rate in rates]
    lows, highs = ([rate.interval()[side] for rate in rates] for side in (0, 1))
    axes = {
        "environment steps": [float(u.get("env_steps", 0.0)) for u in updates],
        "minutes of training": [u["seconds"] / 60 for u in updates],
    }
    return [
        html.figure(
            line_chart([Series("success", x, shares, lows, highs)], label, "success", (0.0, 1.0), percent=True),
            f"Success of exploring training episodes over {label}; the band is each update's own 95 % Wilson interval.",
        )
        for label, x in axes.items()
    ]


def _staleness(updates: list[dict[str, Any]]) -> str:
    counts: Counter[int] = Counter()
    for update in updates:
        for name, value in update.items():
            if name.startswith(_STALENESS) and name.removeprefix(_STALENESS).isdecimal():
                counts[int(name.removeprefix(_STALENESS))] += int(value)
    caption = (
        "Staleness of every decision trained on: the version being trained minus the version the policy server "
        "stamped on it."
    )
    return html.figure(histogram(counts, "versions behind", "decisions"), caption)


def _swaps(swaps: list[dict[str, Any]]) -> str:
    if not swaps:
        return html.paragraph("No swap of weights is recorded.", "soft")
    start = swaps[0]["time"]
    rows = [
        (
            swap["version"], swap["server"], f"{swap['time'] - start:.1f}", f"{swap['bytes'] / 1e6:.2f}",
            "all" if swap["full"] else f"{swap['tensors']} changed", f"{1e3 * swap['push_seconds']:.1f}",
            f"{1e3 * swap['verify_seconds']:.1f}", f"{1e3 * swap['flip_seconds']:.2f}",
        )
        for swap in swaps
    ]  # fmt: skip
    flips = [1e3 * swap["flip_seconds"] for swap in swaps]
    summary = (
        f"{len(swaps)} swaps of weights under load: the flip took {statistics.median(flips):.2f} ms in the median, "
        f"{max(flips):.2f} ms at most."
    )
    headers = ("version", "server", "seconds", "MB", "tensors", "push ms", "verify ms", "flip ms")
    return html.paragraph(summary) + html.details("every swap", html.table(headers, rows, (0, 2, 3, 5, 6, 7)))
