"""A simulator that does on command what simulators do by accident. An adapter as a user would write one."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import numpy as np

from landbridge.contract import Contract, TensorSpec
from landbridge.env.protocol import ChunkResult, Observation, ResetResult

FINE, DIE, HANG, NAN, RAISE, SLOW, NAN_REWARD = range(7)
"""The first number of an action says what happens at that step; the second one moves the state."""


class FaultyEnv:
    """A state that drifts by its action and by noise of the episode's seed; succeeds above 3."""

    def __init__(self, options: dict[str, Any]) -> None:
        if options.get("die_at_start"):
            os.kill(os.getpid(), signal.SIGKILL)
        if options.get("refuse_to_start"):
            raise ValueError("no such asset")
        self._options = options
        self.max_episode_steps = 20
        specs = (TensorSpec("state", (3,)), TensorSpec("time", (), "float64"), TensorSpec("image", (2, 2, 3), "uint8"))
        self.contract = Contract(specs, TensorSpec("action", (2,), low=(0.0, -1.0), high=(9.0, 1.0)), 20.0)

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        if seed == self._options.get("die_at_seed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if options:
            raise ValueError(f"options {sorted(options)} are unknown")
        self._rng = np.random.default_rng(seed)
        self._state = self._rng.normal(size=3).astype(np.float32)
        if seed == self._options.get("nan_at_seed"):
            self._state[1] = np.nan
        self._step, self._once = 0, False
        return ResetResult(self._observe())

    def _observe(self) -> Observation:
        image = np.full((2, 2, 3), self._step, np.uint8)
        return {"state": self._state.copy(), "time": np.array(self._step / 20.0), "image": image}

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        length = len(actions)
        rewards, evaluated, success = np.zeros(length, np.float32), np.zeros(length, bool), np.zeros(length, bool)
        executed = 0
        while executed < length and self._step < self.max_episode_steps:
            self._fail(round(float(actions[executed, 0])))
            self._state += actions[executed, 1] + self._rng.normal(size=3).astype(np.float32) * np.float32(0.01)
            self._step += 1
            if evaluate_every_step or executed == length - 1 or self._step == self.max_episode_steps:
                evaluated[executed], success[executed] = True, self._state[0] > 3
                bad = round(float(actions[executed, 0])) == NAN_REWARD
                rewards[executed] = np.nan if bad else self._state[0]
            executed += 1
        self._once |= bool(success.any())
        return ChunkResult(
            observation=self._observe(),
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            truncated=self._step >= self.max_episode_steps,
            success=success,
            success_once=self._once,
            success_at_end=bool(success[executed - 1]),
            episode_step=self._step,
        )

    def _fail(self, how: int) -> None:
        if how == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == HANG:
            time.sleep(3600.0)
        if how == NAN:
            self._state[2] = np.nan
        if how == RAISE:
            raise RuntimeError("the solver diverged")
        if how == SLOW:
            time.sleep(0.4)

    def render(self) -> np.ndarray:
        return np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)

    def save_state(self) -> bytes:
        return json.dumps([self._state.tolist(), self._step, self._rng.bit_generator.state]).encode()

    def restore_state(self, state: bytes) -> Observation:
        values, self._step, generator = json.loads(state)
        self._state = np.array(values, np.float32)
        self._rng = np.random.default_rng(0)
        self._rng.bit_generator.state = generator
        return self._observe()

    def close(self) -> None:
        pass


def make(task: str, options: dict[str, Any]) -> FaultyEnv:
    """``faulty:ANYTHING``."""
    return FaultyEnv(options)
