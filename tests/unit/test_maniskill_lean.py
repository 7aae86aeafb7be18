"""The lean path against plain ManiSkill in another process: same starts, same states to the bit, same verdicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mani_skill")

from maniskill_reference import simulator_state

from sim_server.adapters import make_env
from sim_server.experts import make_expert

RANDOM_SEEDS = (3, 11, 2**31 - 1)
EXPERT_SEEDS = (100, 101, 102, 103)
LENGTH = 200


class Recorded:
    """One task: episodes of random and of expert actions, and what ManiSkill makes of them."""

    def __init__(self, task: str, folder: Path) -> None:
        self.task = task
        self.env = make_env(f"maniskill:{task}", {"terminate_on_success": False, "max_episode_steps": LENGTH})
        self.actions = {seed: random_actions(seed) for seed in RANDOM_SEEDS}
        if task != "PullCube-v1":
            self.actions |= {seed: expert_actions(self.env, task, seed) for seed in EXPERT_SEEDS}
        source, target = folder / "actions.npz", folder / "reference.npz"
        np.savez(source, **{f"actions_{seed}": actions for seed, actions in self.actions.items()})
        script = Path(__file__).with_name("maniskill_reference.py")
        subprocess.run([sys.executable, "-W", "ignore", script, task, source, target], check=True, timeout=120)
        with np.load(target) as file:
            self.reference = dict(file)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.reference[name]


def random_actions(seed: int) -> np.ndarray:
    """Jerky, beyond the bounds now and then, with a drift down into cube and table, and every kind of width."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-0.12, 0.12, (LENGTH, 4))
    actions[:, 2] -= 0.02
    actions[:, 3] = rng.choice([0.0, 0.08, 0.03, -0.1, 0.2], LENGTH) + rng.uniform(0, 0.01, LENGTH)
    return actions.astype(np.float32)


def expert_actions(env, task: str, seed: int) -> np.ndarray:
    expert = make_expert(task, 0.05)
    expert.reset()
    state, actions = env.reset(seed, {}).observation["state"], []
    for _ in range(40):
        actions.append(expert.act(state).astype(np.float32))
        state = env.step_chunk(actions[-1][None], False).observation["state"]
    return np.stack(actions)


@pytest.fixture(scope="module", params=["PickCube-v1", "PushCube-v1", "PullCube-v1"])
def recorded(request, tmp_path_factory) -> Recorded:
    return Recorded(request.param, tmp_path_factory.mktemp("reference"))


def test_an_episode_starts_where_maniskill_s_reset_starts_it(recorded):
    for seed in recorded.actions:
        recorded.env.reset(seed, {})
        assert np.array_equal(simulator_state(recorded.env._env), recorded[f"states_{seed}"][0]), seed


def test_every_state_is_bit_identical_to_env_step_whatever_ran_before(recorded):
    for seed in [*recorded.actions, *recorded.actions]:  # twice: the second time with another history
        recorded.env.reset(seed, {})
        for step, action in enumerate(recorded.actions[seed], start=1):
            recorded.env.step_chunk(action[None], False)
            state = simulator_state(recorded.env._env)
            assert np.array_equal(state, recorded[f"states_{seed}"][step]), (seed, step)


def test_reward_success_and_grasp_are_maniskill_s_on_every_step(recorded):
    for seed, actions in recorded.actions.items():
        recorded.env.reset(seed, {})
        for step, action in enumerate(actions):
            result = recorded.env.step_chunk(action[None], True)
            assert result.rewards[0] == pytest.approx(recorded[f"rewards_{seed}"][step], abs=1e-6), (seed, step)
            assert result.success[0] == recorded[f"success_{seed}"][step], (seed, step)
            assert result.observation["privileged"][0] == recorded[f"grasped_{seed}"][step], (seed, step)


def test_the_recordings_hold_what_they_are_to_compare(recorded):
    success = np.concatenate([recorded[f"success_{seed}"] for seed in recorded.actions])
    grasped = np.concatenate([recorded[f"grasped_{seed}"] for seed in recorded.actions])
    moved = max(np.abs(np.diff(recorded[f"states_{seed}"], axis=0)).max() for seed in RANDOM_SEEDS)
    assert moved > 0.1
    if recorded.task != "PullCube-v1":
        assert success.any()
        assert not success.all()
    if recorded.task == "PickCube-v1":
        assert 0.1 < grasped.mean() < 0.9


@pytest.mark.parametrize("evaluate_every_step", [True, False])
def test_chunks_pass_through_the_same_states_evaluated_or_not(recorded, evaluate_every_step):
    seed = RANDOM_SEEDS[0]
    recorded.env.reset(seed, {})
    for start in range(0, 48, 4):
        result = recorded.env.step_chunk(recorded.actions[seed][start : start + 4], evaluate_every_step)
        assert np.array_equal(simulator_state(recorded.env._env), recorded[f"states_{seed}"][start + 4])
        assert result.evaluated.tolist() == [evaluate_every_step] * 3 + [True]
        expected = recorded[f"rewards_{seed}"][start : start + 4] * result.evaluated
        assert result.rewards == pytest.approx(expected, abs=1e-6)
