"""Settings of training that belong together, and what changes as a run goes on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from flow_parts import make_policy
from learning_parts import pendulum_contract, pendulum_policy

from landbridge import config
from landbridge.contract_codec import contract_to_json
from landbridge.errors import InvalidArgument
from landbridge.policies.flow import NoiseKind
from learner.config import ExplorationConfig, LearnConfig
from learner.serve import model_of

NEEDED = ["policy=127.0.0.1:1", "checkpoint=x"]


def test_the_noise_level_comes_half_the_way_to_its_end_in_a_half_life() -> None:
    falling = ExplorationConfig(half_life=10.0, final=0.1)
    assert [falling.level(0.5, n) for n in (0, 10, 20)] == pytest.approx([0.5, 0.3, 0.2])
    assert ExplorationConfig().level(0.5, 1000) == 0.5


@pytest.mark.parametrize("words", [["demos=d.npz"], ["ppo.imitation_weight=0.5"]])
def test_demonstrations_and_their_weight_go_together(words: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="go together"):
        config.load(LearnConfig, None, [*NEEDED, *words])
    config.load(LearnConfig, None, [*NEEDED, "demos=d.npz", "ppo.imitation_weight=0.5"])


@pytest.mark.parametrize("task", ["the same", "another"])
def test_demonstrations_of_another_contract_are_refused(tmp_path: Path, task: str) -> None:
    contract = pendulum_contract()
    shown = contract if task == "the same" else dataclasses.replace(contract, task=task)
    np.savez(
        tmp_path / "demos.npz",
        contract=np.array(json.dumps(contract_to_json(shown))),
        obs_state=np.zeros((8, 3), np.float32),
        actions=np.zeros((8, 1), np.float32),
        lengths=np.full(2, 4),
    )
    words = [f"demos={tmp_path / 'demos.npz'}", "ppo.imitation_weight=1"]
    settings = config.load(LearnConfig, None, [*NEEDED, *words])
    if task == "another":
        with pytest.raises(InvalidArgument, match="another contract"):
            model_of(pendulum_policy(), settings)
        return
    model = model_of(pendulum_policy(), settings)
    assert model.imitation is not None and float(model.imitation(model.generator).detach()) > 0.1


def test_noise_that_is_learned_cannot_be_turned_down() -> None:
    settings = config.load(LearnConfig, None, [*NEEDED, "exploration.half_life=5"])
    with pytest.raises(InvalidArgument, match="Flow-Noise"):
        model_of(make_policy(NoiseKind.NOISE), settings)
    assert model_of(make_policy(), settings).imitation is None
