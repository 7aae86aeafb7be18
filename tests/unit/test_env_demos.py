"""``landbridge sim``: arguments reach the server, and demonstrations are the successful episodes, exactly."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from env_parts import served

from landbridge.cli.main import main
from landbridge.contract import Contract, TensorSpec
from landbridge.contract_codec import contract_from_json
from landbridge.env.protocol import ChunkResult, ResetResult
from landbridge.env.service import EnvServicer
from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound
from sim_server import cli
from sim_server.demos import DemoConfig, record
from sim_server.serve import SimServeConfig, add_serve_arguments, config_of

TCP, WIDTH, CUBE, GOAL = slice(14, 17), 17, slice(18, 21), slice(21, 24)


class PointCube:
    """Pick a cube with a hand that is a point and moves as told. Seeds divisible by 3 cannot succeed."""

    kind, name, max_episode_steps = "simulator", "point:PickCube-v1", 40
    contract = Contract((TensorSpec("state", (24,)),), TensorSpec("action", (4,)), 20.0, task="PickCube-v1")

    def __init__(self, num_envs: int, task: str = "PickCube-v1") -> None:
        self.num_envs = num_envs
        self.contract = dataclasses.replace(self.contract, task=task)
        self.states: dict[int, np.ndarray] = {}
        self.steps: dict[int, int] = {}
        self.seeds: dict[int, int] = {}

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        for i, seed in zip(env_ids, seeds, strict=True):
            state = np.zeros(24, np.float32)
            place = np.random.default_rng(seed).uniform(-0.1, 0.1, (3, 3))
            state[TCP], state[CUBE], state[GOAL], state[WIDTH] = place[0] + [0, 0, 0.3], place[1], place[2], 0.08
            self.states[i], self.steps[i], self.seeds[i] = state, 0, seed
        return [ResetResult({"state": self.states[i].copy()}) for i in env_ids]

    def step_chunk(self, ids: Sequence[int], actions: np.ndarray, every: bool, limit: float) -> list[ChunkResult]:
        assert actions.shape[1] == 1
        return [self._step(i, own[0]) for i, own in zip(ids, actions, strict=True)]

    def _step(self, i: int, action: np.ndarray) -> ChunkResult:
        state = self.states[i]
        held = state[WIDTH] < 0.05 and np.linalg.norm(state[TCP] - state[CUBE]) < 0.03
        state[TCP] += action[:3]
        state[CUBE] += action[:3] * held
        state[WIDTH] = action[3]
        self.steps[i] += 1
        success = bool(np.linalg.norm(state[CUBE] - state[GOAL]) < 0.02) and self.seeds[i] % 3 != 0
        return ChunkResult(
            observation={"state": state.copy()},
            rewards=np.array([success], np.float32),
            evaluated=np.ones(1, bool),
            executed=1,
            terminated=success,
            truncated=not success and self.steps[i] >= self.max_episode_steps,
            success=np.array([success]),
            success_once=success,
            success_at_end=success,
            episode_step=self.steps[i],
        )


def test_the_file_holds_successful_episodes_end_to_end(tmp_path: Path) -> None:
    lines: list[str] = []
    with served(EnvServicer(PointCube(3))) as client:
        path = record(client.address, DemoConfig(episodes=5, out=tmp_path / "a" / "demos.npz"), lines.append)
    with np.load(path, allow_pickle=False) as data:
        held = {name: data[name] for name in data.files}
    assert contract_from_json(json.loads(str(held["contract"]))) == PointCube(1).contract
    assert held["seeds"].tolist() == [1, 2, 4, 5, 7] and held["success"].all()
    assert held["lengths"].sum() == len(held["actions"]) == len(held["obs_state"])
    assert held["actions"].dtype == held["obs_state"].dtype == np.float32
    # Replaying the actions from the seed passes through the recorded observations.
    world, start = PointCube(1), 0
    for seed, length in zip(held["seeds"], held["lengths"], strict=True):
        state = world.reset([0], [int(seed)], {})[0].observation["state"]
        for k in range(start, start + length):
            assert np.array_equal(held["obs_state"][k], state)
            (result,) = world.step_chunk([0], held["actions"][None, k : k + 1], True, 1.0)
            state = result.observation["state"]
        assert result.success_at_end
        start += length
    assert any("5/5" in line for line in lines), "progress is shown"


def test_the_file_does_not_depend_on_the_number_of_environments(tmp_path: Path) -> None:
    held = []
    for count in (1, 4):
        with served(EnvServicer(PointCube(count))) as client:
            path = record(client.address, DemoConfig(episodes=4, out=tmp_path / f"{count}.npz"), lambda line: None)
        with np.load(path, allow_pickle=False) as data:
            held.append({name: data[name] for name in data.files})
    assert all(np.array_equal(held[0][name], held[1][name]) for name in held[0])


def test_the_expert_asks_for_no_more_than_the_contract_allows(tmp_path: Path) -> None:
    world = PointCube(2)
    bounded = TensorSpec("action", (4,), low=(-0.03, -0.03, -0.03, 0.0), high=(0.03, 0.03, 0.03, 0.08))
    world.contract = dataclasses.replace(world.contract, action=bounded)
    with served(EnvServicer(world)) as client:
        path = record(client.address, DemoConfig(episodes=2, out=tmp_path / "demos.npz"), lambda line: None)
    with np.load(path, allow_pickle=False) as data:
        lengths = np.linalg.norm(data["actions"][:, :3], axis=1)
    assert lengths.max() == pytest.approx(0.03)


def test_an_expert_that_fails_is_not_tried_for_ever(tmp_path: Path) -> None:
    config = DemoConfig(episodes=5, out=tmp_path / "demos.npz", max_tries=6)
    with (
        served(EnvServicer(PointCube(2))) as client,
        pytest.raises(FailedPrecondition, match="6 episodes tried, 4 of 5"),
    ):
        record(client.address, config, lambda line: None)
    assert not config.out.exists()


def test_a_task_without_an_expert_is_named(tmp_path: Path) -> None:
    with served(EnvServicer(PointCube(1, task="Juggle-v1"))) as client, pytest.raises(NotFound, match="Juggle"):
        record(client.address, DemoConfig(out=tmp_path / "demos.npz"), lambda line: None)


def parse(*words: str) -> SimServeConfig:
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    return config_of(parser.parse_args(["maniskill:PickCube-v1", *words]))


def test_options_of_the_adapter_are_read_as_yaml() -> None:
    config = parse("--num-envs", "4", "--option", "max_episode_steps=60", "--option", "action_gain=[0.9, 1.1]")
    assert config.num_envs == 4
    assert config.options == {"max_episode_steps": 60, "action_gain": [0.9, 1.1]}
    with pytest.raises(InvalidArgument, match="KEY=VALUE"):
        parse("--option", "max_episode_steps")


def test_the_simulators_own_python_is_given_the_same_configuration() -> None:
    config = parse("--port", "0", "--step-timeout", "2.5", "--option", "reward=sparse", "--option", "n=null")
    assert parse(*cli._flags(config)) == config


def test_the_command_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "serve", "gymnasim:CartPole-v1"]) == 2
    assert "did you mean 'gymnasium'" in capsys.readouterr().err
    assert main(["sim", "list"]) == 0
    assert {"gymnasium", "maniskill"} <= set(capsys.readouterr().out.split())
