"""What the cases of the environment suite are written with: sessions, actions made from the contract, refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from landbridge import rpc
from landbridge.contract import TensorSpec
from landbridge.env.client import EnvClient, EnvDescription, EnvSession, StepResult
from landbridge.errors import LandbridgeError
from landbridge.tensors import dtype_number, encode, numpy_dtype
from landbridge.v1 import env_pb2 as pb
from landbridge.verdict import NotKept, expect

TIMEOUT = 30.0
"""Seconds one call of the suite may take."""
LONGEST_EPISODE = 2000
"""Steps the suite is willing to wait for an episode's end."""


class Skipped(Exception):
    """The case does not apply to this endpoint; the message says why."""


def refused(wanted: type[LandbridgeError], call: Callable[[], Any], mention: str = "") -> LandbridgeError:
    """``call`` must be answered with ``wanted``, its message naming ``mention``; returns the error."""
    try:
        call()
    except LandbridgeError as error:
        got = f"{error.code.name}: {error}"
        expect(isinstance(error, wanted), f"{wanted.code.name} expected, {got} came")
        expect(mention in f"{error} {error.field}", f"the message should name {mention!r}; it says: {error}")
        return error
    raise NotKept(f"{wanted.code.name} expected, but the call was answered as if nothing were wrong")


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray], what: str) -> None:
    """Both observations must be bit-identical."""
    expect(set(left) == set(right), f"{what}: tensors {sorted(left)} and {sorted(right)}")
    for name, value in left.items():
        other = right[name]
        if not np.array_equal(value, other):
            raise NotKept(f"{what}: {name!r} differs by up to {_difference(value, other)}")


def _difference(left: np.ndarray, right: np.ndarray) -> str:
    if left.shape != right.shape:
        return f"its shape, {list(left.shape)} and {list(right.shape)}"
    return f"{float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max()):.3g}"


@dataclass(frozen=True)
class Probe:
    """One endpoint under test."""

    client: EnvClient
    info: EnvDescription

    @contextlib.contextmanager
    def open(self, num_envs: int = 1, lease: float | None = None, stream: bool = False) -> Iterator[EnvSession]:
        """A session of ``num_envs``; :class:`Skipped` where the endpoint has fewer."""
        if num_envs > self.info.num_envs:
            raise Skipped(f"needs {num_envs} environments, there are {self.info.num_envs}")
        with self.client.open(num_envs, name="compliance", lease=lease, stream=stream) as session:
            yield session

    def call(self, method: str, request: Any, timeout: float = TIMEOUT) -> Any:
        """One raw call."""
        return rpc.call(getattr(self.client.stub, method), request, timeout)

    @property
    def action(self) -> TensorSpec:
        """The action's spec."""
        return self.info.contract.action

    def actions(self, count: int, length: int, seed: int = 0) -> np.ndarray:
        """[count, length, …A], drawn within the contract's bounds ([-1, 1] where there are none)."""
        low, high = self.action.bounds()
        low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
        drawn = np.random.default_rng(seed).uniform(low, high, (count, length, *self.action.shape))
        return drawn.astype(numpy_dtype(dtype_number(self.action.dtype)))

    def chunk(self, session: EnvSession, actions: np.ndarray, **fields: Any) -> pb.StepChunkRequest:
        """A raw request."""
        return pb.StepChunkRequest(session_id=session.id, actions=encode(actions), **fields)

    def length(self, wanted: int = 3) -> int:
        """A chunk length the endpoint allows, ``wanted`` at most."""
        return min(wanted, self.info.max_chunk)

    def run_to_end(self, session: EnvSession, env_id: int, length: int, seed: int = 0) -> list[StepResult]:
        """Step one environment, which has just been reset, until its episode ends."""
        limit = self.info.max_episode_steps
        if not 0 < limit <= LONGEST_EPISODE:
            raise Skipped(f"episodes end after {limit or 'no number of'} steps; the suite waits for {LONGEST_EPISODE}")
        results: list[StepResult] = []
        steps = 0
        while not results or not results[-1].done[0]:
            expect(steps <= limit, f"the episode goes on after {steps} steps, max_episode_steps is {limit}")
            results.append(session.step_chunk(self.actions(1, length, seed + steps), [env_id]))
            moved = int(results[-1].executed[0])
            expect(moved > 0, "a chunk in a running environment executed no step and did not end the episode")
            steps += moved
        return results
