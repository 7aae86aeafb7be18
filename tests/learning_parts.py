"""What the tests of training share: a small policy for Pendulum, servers and learners as processes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from landbridge.contract import Contract
from landbridge.policies.checkpoint import save_checkpoint
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, Statistics
from landbridge.process import Child, ProcessGroup
from sim_server.adapters import make_env

torch.set_num_threads(1)

HORIZON = 2
EPISODE_STEPS = 10
START = 60.0


def pendulum_contract() -> Contract:
    env = make_env("gymnasium:Pendulum-v1", {})
    try:
        return env.contract
    finally:
        env.close()


def pendulum_policy(seed: int = 0) -> FlowPolicy:
    torch.manual_seed(seed)
    config = FlowPolicyConfig(horizon=HORIZON, hidden=(16, 16), critic_hidden=(16,))
    statistics = Statistics({"state": ([0.0, 0.0, 0.0], [0.7, 0.7, 4.0])}, [0.0], [2.0])
    return FlowPolicy(pendulum_contract(), config, statistics)


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    return save_checkpoint(folder, pendulum_policy(seed), version=0, training_step=0)


def landbridge(*words: object) -> list[str | Path]:
    return [sys.executable, "-m", "landbridge.cli", *map(str, words)]


def start_policy(group: ProcessGroup, checkpoint: Path, *flags: object, port: int = 0) -> Child:
    child = group.start("policy", landbridge("policy", "serve", "--checkpoint", checkpoint, "--port", port, *flags))
    child.wait_serving(START)
    return child


def start_sim(group: ProcessGroup, num_envs: int, *flags: object, port: int = 0) -> Child:
    words = landbridge("sim", "serve", "gymnasium:Pendulum-v1", "--num-envs", num_envs, "--port", port)
    child = group.start("sim", [*words, "--option", f"max_episode_steps={EPISODE_STEPS}", *map(str, flags)])
    child.wait_serving(START)
    return child


@contextlib.contextmanager
def processes(log_folder: Path) -> Iterator[ProcessGroup]:
    with ProcessGroup(log_folder=log_folder) as group:
        yield group


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
