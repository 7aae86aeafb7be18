"""A design is complete, frozen, fair, and says what it can find."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from landbridge.config import ConfigError
from landbridge.errors import InvalidArgument
from robot_bridge.campaign.design import Design, from_locked, load_design, noise_seed, plan_text, schedule

DESIGN = Design(arms={"sft": 0, "rl": 31}, trials=12, block=4)


def test_every_arm_meets_every_initial_condition_once_and_blocks_hold_all_arms_alike() -> None:
    trials = schedule(DESIGN)
    assert [t.number for t in trials] == list(range(1, 25))
    assert Counter((t.seed, t.arm.label) for t in trials) == Counter(
        (s, a) for s in DESIGN.conditions() for a in DESIGN.arms
    )
    for block in range(3):
        members = trials[8 * block : 8 * block + 8]
        assert {t.block for t in members} == {block}
        assert Counter(t.arm.label for t in members) == {"sft": 4, "rl": 4}


def test_the_order_is_shuffled_by_the_randomisation_seed_alone() -> None:
    order = [t.arm.label for t in schedule(DESIGN)]
    assert order == [t.arm.label for t in schedule(dataclasses.replace(DESIGN))]
    others = [[t.arm.label for t in schedule(dataclasses.replace(DESIGN, randomisation=k))] for k in range(1, 6)]
    assert all(other != order for other in others)
    assert order != sorted(order) and order != ["sft", "rl"] * 12  # interleaved, and not by a pattern to be guessed


def test_which_arm_is_called_a_is_drawn() -> None:
    letters = [dataclasses.replace(DESIGN, randomisation=k).blinded() for k in range(20)]
    assert all(sorted(drawn.values()) == ["A", "B"] for drawn in letters)
    assert {drawn["rl"] for drawn in letters} == {"A", "B"}


def test_noise_is_of_the_trial_and_the_decision() -> None:
    first, second = schedule(DESIGN)[:2]
    drawn = {noise_seed(DESIGN, trial, k) for trial in (first, second) for k in range(3)}
    assert len(drawn) == 6 and all(0 <= seed < 2**64 for seed in drawn)


@pytest.mark.parametrize(
    "change",
    [
        {"arms": {"sft": 0, "rl": 32}},
        {"arms": {"rl": 31, "sft": 0}},
        {"trials": 13},
        {"test": "mcnemar"},
        {"alternative": "greater"},
        {"success": "at_end"},
        {"alpha": 0.1},
        {"randomisation": 1},
        {"max_decisions": 9},
        {"seeds": tuple(range(12))},
    ],
)
def test_any_change_changes_the_digest(change: dict[str, object]) -> None:
    assert dataclasses.replace(DESIGN, **change).digest() != DESIGN.digest()  # type: ignore[arg-type]


def test_addresses_are_no_part_of_the_design() -> None:
    assert dataclasses.replace(DESIGN, policy="h:1", env="h:2").digest() == DESIGN.digest()


def test_a_design_comes_back_from_what_was_locked() -> None:
    assert from_locked(DESIGN.locked_part(), DESIGN.policy, DESIGN.env) == DESIGN


def test_a_file_and_the_command_line_give_the_same_design(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text("arms: {sft: 0, rl: 31}\ntrials: 12\nblock: 4\n")
    assert load_design(file) == load_design(None, ["trials=12", "block=4"], ["sft=0", "rl=31"]) == DESIGN
    assert load_design(file, ["block=2"]).block == 2


@pytest.mark.parametrize("arms", [["rl"], ["rl=x"], ["=3"], ["rl=1", "rl=2"]])
def test_wrong_arms_are_refused(arms: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="--arm"):
        load_design(None, [], arms)


@pytest.mark.parametrize("text", ["trials: 3", "arms: {}", "arms: {a: 0}\nseeds: [1, 2]", "arms: {a: 0}\ntest: t"])
def test_wrong_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"arms|seeds|test"):
        load_design(tmp_path / "c.yaml")


def test_the_plan_tells_what_can_be_found() -> None:
    text = plan_text(dataclasses.replace(DESIGN, trials=25))
    assert "sft (version 0)" in text and "50 in all" in text and "points or more" in text
    assert "90 %     no difference" in text
