"""Any gymnasium environment with vector observations and a box or discrete action."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from landbridge.config import from_mapping
from landbridge.contract import Contract, TensorSpec
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import InvalidArgument


@dataclass(frozen=True)
class GymnasiumOptions:
    """Options of the adapter."""

    max_episode_steps: int = 0
    """0: the id's own limit."""
    success_return: float = 0.0
    """An episode whose return reaches this counts as a success; 0: the environment's ``info["is_success"]``."""


def make(env_id: str, options: dict[str, Any]) -> GymnasiumEnv:
    """An environment for ``env_id``; unknown options are errors."""
    return GymnasiumEnv(env_id, from_mapping(GymnasiumOptions, options))


class GymnasiumEnv:
    """A discrete action is one number: the index, rounded and clipped. See ``SingleEnv`` for the rest."""

    def __init__(self, env_id: str, options: GymnasiumOptions) -> None:
        limit: dict[str, Any] = {"max_episode_steps": options.max_episode_steps} if options.max_episode_steps else {}
        try:
            self._env: Any = gymnasium.make(env_id, **limit)
        except gymnasium.error.Error as error:
            raise InvalidArgument(f"gymnasium cannot make {env_id!r}: {error}", field="task") from error
        self.options = options
        spec = self._env.spec
        self.max_episode_steps = int((spec.max_episode_steps if spec else 0) or 0)
        self._discrete = isinstance(self._env.action_space, gymnasium.spaces.Discrete)
        self.contract = Contract(
            observation=(_spec("state", self._env.observation_space),),
            action=self._action_spec(),
            control_rate_hz=0.0,
            task=env_id,
        )
        self._low, self._high = self.contract.action.bounds()
        self._seed = 0
        self._log: list[np.ndarray] = []

    def _action_spec(self) -> TensorSpec:
        space = self._env.action_space
        if self._discrete:
            return TensorSpec("action", (1,), low=(0.0,), high=(float(space.n - 1),), description="index of a choice")
        return _spec("action", space)

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        """``options`` go to gymnasium's ``reset``."""
        self._seed, self._log = seed, []
        self._steps, self._return, self._succeeded = 0, 0.0, False
        observation, _ = self._env.reset(seed=seed % 2**31, options=options or None)
        return ResetResult(self._observe(observation))

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        """Every step is evaluated: gymnasium computes the reward anyway."""
        length = len(actions)
        rewards, evaluated, success = np.zeros(length, np.float32), np.zeros(length, bool), np.zeros(length, bool)
        executed, terminated, truncated = 0, False, False
        observation: Any = None
        while executed < length and not (terminated or truncated):
            self._log.append(np.array(actions[executed]))
            observation, reward, terminated, truncated, info = self._env.step(self._action(actions[executed]))
            rewards[executed], evaluated[executed] = reward, True
            self._return += float(reward)
            goal = self.options.success_return
            success[executed] = self._return >= goal if goal else bool(info.get("is_success", False))
            executed += 1
        self._steps += executed
        self._succeeded |= bool(success.any())
        return ChunkResult(
            observation=self._observe(observation),
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            terminated=bool(terminated),
            truncated=bool(truncated and not terminated),
            success=success,
            success_once=self._succeeded,
            success_at_end=bool(success[executed - 1]),
            episode_step=self._steps,
        )

    def _action(self, action: np.ndarray) -> Any:
        clipped = np.clip(action, self._low, self._high)
        return round(float(clipped[0])) if self._discrete else clipped.astype(self._env.action_space.dtype)

    def _observe(self, observation: Any) -> Observation:
        return {"state": np.asarray(observation, np.float32).reshape(self.contract.observation[0].shape)}

    def render(self) -> np.ndarray:
        """Not offered: gymnasium's render modes are chosen when an environment is made."""
        raise NotImplementedError("this adapter serves states only")

    def save_state(self) -> bytes:
        """Seed and actions so far."""
        actions = [action.tolist() for action in self._log]
        return json.dumps(
            {"adapter": "gymnasium", "task": self.contract.task, "seed": self._seed, "actions": actions}
        ).encode()

    def restore_state(self, state: bytes) -> Observation:
        """Replay up to the saved moment."""
        saved = json.loads(state)
        if (saved.get("adapter"), saved.get("task")) != ("gymnasium", self.contract.task):
            raise InvalidArgument(f"a state of gymnasium:{self.contract.task} is expected", field="state")
        observation = self.reset(saved["seed"], {}).observation
        actions = np.asarray(saved["actions"], np.float32)
        return self.step_chunk(actions, True).observation if len(actions) else observation

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _spec(name: str, space: Any) -> TensorSpec:
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise InvalidArgument(f"{name} space {space} is not a vector; this adapter serves vectors only", field="task")
    finite = np.isfinite(space.low).all() and np.isfinite(space.high).all()
    low, high = (space.low.tolist(), space.high.tolist()) if finite else ((), ())
    return TensorSpec(name, tuple(space.shape), low=tuple(low), high=tuple(high))
