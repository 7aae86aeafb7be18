"""A report says what the locked test says, when it may say it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from landbridge.cli.main import main
from landbridge.errors import InvalidArgument
from robot_bridge.campaign.design import Design, Trial, schedule
from robot_bridge.campaign.report import Results, read_results, report_html, table
from robot_bridge.campaign.store import Store

DESIGN = Design(arms={"sft": 0, "rl": 31}, trials=10, name="pick")
Succeeds = Callable[[Trial], bool]


def write(path: Path, design: Design, succeeds: Succeeds, trials: int | None = None) -> Results:
    """A store as a run leaves it, of the first ``trials`` trials."""
    with Store(path, write=True) as store:
        store.lock(design)
        store.connected(environment="cell", kind="robot", control_rate_hz=20.0)
        for trial in schedule(design)[:trials]:
            store.append("started", trial.number, 1, seed=trial.seed)
            store.append("start", trial.number, 1, places={"tool": [0, 0, 0]})
            moved = {"tool": [0.1, 0.0, 0.2]}
            store.append("decision", trial.number, 1, decision=1, executed=4, places=moved, message="")
            won = succeeds(trial)
            store.append(
                "finished", trial.number, 1, success_once=won, success_at_end=won, end="terminated", steps=4,
                decisions=1, version=trial.arm.version, messages=0, seconds=0.2,
            )  # fmt: skip
        return read_results(store)


def rl_wins(trial: Trial) -> bool:
    return trial.arm.label == "rl"


def test_better_is_said_when_the_locked_test_says_so(tmp_path: Path) -> None:
    results = write(tmp_path / "c", DESIGN, rl_wins)
    (comparison,) = results.comparisons
    assert comparison.verdict == "rl is better than sft"
    assert comparison.p == pytest.approx(2 / 184756)  # 0 of 10 and 10 of 10: 2 of C(20, 10) tables
    assert comparison.difference == 1.0 and comparison.interval[0] > 0.6
    assert "rl is better than sft" in table(results) and "rl is better than sft" in report_html(results)


def test_a_worse_policy_is_called_worse_by_a_two_sided_test_only(tmp_path: Path) -> None:
    results = write(tmp_path / "a", DESIGN, lambda t: not rl_wins(t))
    assert results.comparisons[0].verdict == "rl is worse than sft"
    greater = dataclasses.replace(DESIGN, alternative="greater")
    results = write(tmp_path / "b", greater, lambda t: not rl_wins(t))
    assert results.comparisons[0].verdict.startswith("no difference")


def test_a_difference_that_may_be_chance_is_not_called_one(tmp_path: Path) -> None:
    results = write(tmp_path / "c", DESIGN, lambda t: t.seed % 10 < (7 if rl_wins(t) else 4))
    assert results.comparisons[0].verdict == "no difference between rl and sft is shown"
    assert "better" not in report_html(results)


def test_nothing_is_said_before_the_last_trial(tmp_path: Path) -> None:
    results = write(tmp_path / "c", DESIGN, rl_wins, trials=19)
    assert results.comparisons[0].verdict == "no verdict before the last trial"
    assert "better" not in report_html(results) and "19/20" in table(results)


def test_the_paired_test_uses_pairs(tmp_path: Path) -> None:
    """Six conditions only the second solves, none only the first: p = 2 / 2**6. Fisher's test has another number."""
    paired = dataclasses.replace(DESIGN, test="mcnemar")
    outcome = lambda t: t.seed % 10 < (8 if rl_wins(t) else 2)  # noqa: E731
    assert write(tmp_path / "a", paired, outcome).comparisons[0].p == pytest.approx(2 / 64)
    assert write(tmp_path / "b", DESIGN, outcome).comparisons[0].p == pytest.approx(0.02301, abs=1e-4)


def test_several_comparisons_are_adjusted_for(tmp_path: Path) -> None:
    three = dataclasses.replace(DESIGN, arms={"sft": 0, "rl": 31, "same": 5})
    found = {c.second.label: c for c in write(tmp_path / "c", three, rl_wins).comparisons}
    assert found["rl"].p == pytest.approx(2 * 2 / 184756)
    assert found["rl"].verdict == "rl is better than sft" and "no difference" in found["same"].verdict


def test_an_empty_campaign_can_be_reported(tmp_path: Path) -> None:
    results = write(tmp_path / "c", DESIGN, rl_wins, trials=0)
    assert "0/20 trials" in table(results)
    assert "Campaign pick" in report_html(results)


def test_one_arm_alone_is_a_rate(tmp_path: Path) -> None:
    alone = dataclasses.replace(DESIGN, arms={"rl": 31})
    results = write(tmp_path / "c", alone, lambda t: t.seed % 2 == 0)
    assert results.comparisons == () and "5/10 = 50.0 %" in table(results)


def test_the_report_shows_trials_rollouts_simulation_and_what_was_run_again(tmp_path: Path) -> None:
    with Store(tmp_path / "c", write=True) as store:
        store.append("started", 3, 7, seed=0)
        store.append("aborted", 3, 7, reason="the worker died")
    results = write(tmp_path / "c", DESIGN, rl_wins)
    (tmp_path / "e.json").write_text(json.dumps({"successes": 9, "episodes": 10, "versions": [31]}))
    text = report_html(results, evaluations=[tmp_path / "e.json"])
    assert "all 20 trials" in text and "the worker died" in text and "In simulation" in text
    assert "9/10 = 90.0 %" in text and '"rl": {"' in text and DESIGN.digest() in text
    assert not any(word in text for word in ("http:", "https:", "src="))
    with pytest.raises(InvalidArgument, match=r"c is no result"):
        report_html(results, evaluations=[tmp_path / "c"])


def test_the_command_prints_the_table_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "c", DESIGN, rl_wins)
    out = tmp_path / "deep" / "report.html"
    assert main(["campaign", "report", "--store", str(tmp_path / "c"), "--out", str(out)]) == 0
    assert "rl is better than sft" in capsys.readouterr().out
    assert out.read_text().startswith("<!doctype html>")
    assert main(["campaign", "report", "--store", str(tmp_path / "none")]) == 1


def test_plan_and_lock_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("arms: {sft: 0, rl: 31}\ntrials: 10\nname: pick\n")
    assert main(["campaign", "plan", str(tmp_path / "c.yaml")]) == 0
    assert "points or more" in capsys.readouterr().out
    store = ["--store", str(tmp_path / "s")]
    assert main(["campaign", "lock", str(tmp_path / "c.yaml"), *store]) == 0
    assert DESIGN.digest() in capsys.readouterr().out
    assert main(["campaign", "lock", str(tmp_path / "c.yaml"), *store, "--trials", "11"]) == 1
    assert "trials was 10, is 11" in capsys.readouterr().err
