"""Reports are one file, say what is in the data, and survive what the data may hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from landbridge.intervals import Rate
from landbridge.report import html
from landbridge.report.animation import Rollout, animation
from landbridge.report.charts import Series, histogram, line_chart, number, rates_chart, ticks
from landbridge.report.learning import json_lines, learning_section


class Outline(HTMLParser):
    """Tags in order; fails where an end tag does not match."""

    VOID = frozenset({"meta", "br", "input", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


ROLLOUT = Rollout("rl", "7", "trial 1: success", [0.0, 0.2], {"tool": [[0, 0, 0], [0.1, 0.1, 0.2]]})


def test_a_page_loads_nothing_and_may_not() -> None:
    text = html.page("t", "s", [html.section("h", animation([ROLLOUT]))])
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|<link|<img|@import|url\(|\bsrc=", text)
    Outline(text)


def test_every_text_is_escaped() -> None:
    bad = "<script>alert(1)</script>&\"'"
    rollout = Rollout(bad, bad, bad, [0.0], {"tool": [[0, 0, 0]]})
    chart = line_chart([Series(bad, [0], [0]), Series(bad, [0], [1])], bad, bad)
    body = [html.paragraph(bad), html.table([bad], [[bad]]), html.figure("", bad), html.details(bad, ""), chart]
    text = html.page(bad, bad, [html.section(bad, *body, rates_chart([(bad, Rate(1, 2))]), animation([rollout]))])
    outline = Outline(text)
    assert outline.count("script") == 2, "the animation's two and no other"


def test_a_line_chart_puts_values_where_they_belong() -> None:
    outline = Outline(line_chart([Series("s", [0, 10], [0, 1], [0, 0.5], [0.5, 1])], "steps", "success", (0, 1), True))
    (line,) = [attrs["points"] for tag, attrs in outline.tags if tag == "polyline"]
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in str(line).split())
    assert x0 < x1 and y0 > y1, "pictures count from the top"
    assert outline.count("polygon") == 1
    assert "100 %" in outline.text and "steps" in outline.text


def test_charts_of_nothing_and_of_one_point_are_drawn() -> None:
    assert "Nothing to draw" in line_chart([Series("s", [], [])], "x", "y")
    assert "Nothing to draw" in histogram({}, "x", "y")
    assert Outline(line_chart([Series("s", [3], [2])], "x", "y")).count("circle") == 1


def test_a_histogram_has_a_bar_for_every_number_between() -> None:
    outline = Outline(histogram({0: 30, 2: 10}, "versions behind", "decisions"))
    assert outline.count("rect") == 3
    assert "75 %" in outline.text and "25 %" in outline.text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 12, [0, 2, 4, 6, 8, 10, 12]), (3.1, 3.9, [3.2, 3.4, 3.6, 3.8])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0.25, 3, 30_000, 1_200_000)] == ["0.25", "3", "30k", "1.2M"]


def test_the_animation_holds_the_rollouts_themselves() -> None:
    other = Rollout("sft", "7", "trial 2: failure", [0.0], {"tool": [[0, 0, 0]], "goal": [[1, 1, 1]]})
    text = animation([ROLLOUT, other])
    found = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert found
    paths = json.loads(found[1])["paths"]
    assert paths["rl"]["7"]["tool"] == ROLLOUT.places["tool"] and paths["sft"]["7"]["result"] == "trial 2: failure"
    assert Outline(text).count("svg") == 4, "two views an arm"
    assert animation([Rollout("a", "b", "c", [0.0], {})]) == "", "no tool, nothing to play"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to read JavaScript")
def test_the_animations_script_is_javascript() -> None:
    found = re.search(r"<script>(.*?)</script>", animation([ROLLOUT]), re.DOTALL)
    assert found
    subprocess.run(["node", "--check", "-"], input=found[1], text=True, check=True, timeout=30)


def update(number: int, **values: float) -> dict[str, float]:
    content = {"update": number, "version": number, "seconds": 60.0 * number, "success_once": 0.5}
    return content | {"batch_trajectories": 100.0, "env_steps": 1000.0 * number} | values


SWAP = {
    "version": 1, "update": 1, "server": "127.0.0.1:1", "time": 5.0, "bytes": 10, "tensors": 2, "full": False,
    "push_seconds": 0.02, "verify_seconds": 0.01, "flip_seconds": 0.0005, "attempts": 1,
}  # fmt: skip


def test_the_learning_section_reads_a_run_folder(tmp_path: Path) -> None:
    lines = [update(1, staleness_0=30.0), update(2, staleness_1=10.0, staleness_mean=0.4)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "swaps.jsonl").write_text(json.dumps(SWAP) + "\n")
    outline = Outline(learning_section(tmp_path))
    assert outline.count("polyline") == 2, "success over environment steps, and over minutes"
    assert outline.count("rect") == 2, "staleness 0 and 1"
    assert "2 updates in 2.0 minutes, 2k environment steps" in outline.text
    assert "0.50 ms in the median" in outline.text and "2 changed" in outline.text


def test_a_run_without_an_update_and_a_torn_line_are_no_error(tmp_path: Path) -> None:
    assert "No update" in learning_section(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(json.dumps(update(1)) + '\n{"update": 2, "ver')
    assert len(json_lines(tmp_path / "metrics.jsonl")) == 1
    assert "No swap" in learning_section(tmp_path)
