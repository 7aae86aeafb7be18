"""Real environments in this process: what the tests of the environment service stand on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from landbridge import rpc
from landbridge.env.client import EnvClient
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.env.service import EnvServicer
from sim_server.adapters import make_env


class LocalBackend:
    """A VectorBackend of gymnasium environments in this process."""

    kind = "simulator"

    def __init__(self, task: str = "Pendulum-v1", num_envs: int = 2, **options: Any) -> None:
        self.name = f"gymnasium:{task}"
        self.envs = [make_env(self.name, options) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.contract = self.envs[0].contract
        self.max_episode_steps = self.envs[0].max_episode_steps
        self.limits: list[float] = []

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        return [self.envs[i].reset(seed, options) for i, seed in zip(env_ids, seeds, strict=True)]

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        self.limits.append(deadline_s)
        return [self.envs[i].step_chunk(own, evaluate_every_step) for i, own in zip(env_ids, actions, strict=True)]

    def render(self, env_id: int) -> np.ndarray:
        return self.envs[env_id].render()

    def save_state(self, env_id: int) -> bytes:
        return self.envs[env_id].save_state()

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        return self.envs[env_id].restore_state(state)

    def close(self) -> None:
        for env in self.envs:
            env.close()


@contextlib.contextmanager
def served(servicer: EnvServicer, timeout: float = 10.0) -> Iterator[EnvClient]:
    """A client of ``servicer``, over gRPC."""
    server = rpc.Server([servicer.service()])
    try:
        with EnvClient(server.start(), timeout) as client:
            yield client
    finally:
        server.stop(0.0)
        servicer.close()
