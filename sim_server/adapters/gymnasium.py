"""Any gymnasium environment whose observation is a box or a discrete state and whose action is a box or a choice."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import gymnasium
import numpy as np

from landbridge.config import from_mapping, option
from landbridge.contract import Contract, TensorSpec
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import FailedPrecondition, InvalidArgument
from sim_server.adapters.checks import require_finite, split_replay


@dataclasses.dataclass(frozen=True)
class GymnasiumOptions:
    """Options of the adapter."""

    max_episode_steps: int = option(0, "time limit in steps; 0: the id's own", minimum=0)
    success_return: float | None = option(
        None, 'an episode whose return reaches this is a success; none: the environment\'s info["is_success"]'
    )


def make(env_id: str, options: dict[str, Any]) -> GymnasiumEnv:
    """An environment for ``env_id``; unknown options are errors."""
    return GymnasiumEnv(env_id, from_mapping(GymnasiumOptions, options, "options"))


class GymnasiumEnv:
    """A discrete action is one number: the index of a choice, rounded and clipped. Reset options go to gymnasium."""

    can_render = False
    can_save_state = True

    def __init__(self, env_id: str, options: GymnasiumOptions) -> None:
        limit: dict[str, Any] = {"max_episode_steps": options.max_episode_steps} if options.max_episode_steps else {}
        try:
            self._env: Any = gymnasium.make(env_id, **limit)
        except gymnasium.error.Error as error:
            raise InvalidArgument(f"gymnasium cannot make {env_id!r}: {error}", field="task") from error
        self.options = options
        self.max_episode_steps = int((self._env.spec and self._env.spec.max_episode_steps) or 0)
        self.contract = Contract(
            observation=(_observation_spec(self._env.observation_space),),
            action=_action_spec(self._env.action_space),
            control_rate_hz=0.0,
            task=env_id,
        )
        self._low, self._high = self.contract.action.bounds()
        self._ended = "it has not been reset"

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        """Start the episode of ``seed``."""
        self._seed, self._reset_options = seed, options
        self._log: list[np.ndarray] = []
        self._steps, self._return, self._succeeded, self._ended = 0, 0.0, False, ""
        observation, _ = self._env.reset(seed=seed, options=options or None)
        self._last = self._observe(observation)
        return ResetResult(self._last)

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        """Every step is evaluated, whatever is asked: gymnasium computes the reward anyway."""
        if self._ended:
            raise FailedPrecondition(f"this environment cannot step: {self._ended}; call reset first")
        actions = np.asarray(actions, np.float32)
        require_finite(actions)
        length = len(actions)
        rewards, evaluated, success = np.zeros(length, np.float32), np.zeros(length, bool), np.zeros(length, bool)
        executed, terminated, truncated, finite = 0, False, False, True
        while executed < length and finite and not (terminated or truncated):
            raw, reward, terminated, truncated, info = self._env.step(self._to_gymnasium(actions[executed]))
            self._last = self._observe(raw)
            finite = bool(np.isfinite(reward) and np.isfinite(self._last["state"]).all())
            rewards[executed], evaluated[executed] = reward, True
            success[executed] = self._is_success(float(reward), info)
            executed += 1
        self._log.append(actions[:executed].copy())
        self._steps += executed
        self._succeeded |= bool(success.any())
        message = "" if finite else "an observation or reward is not finite"
        if terminated or truncated or not finite:
            self._ended = message or "its episode has ended"
        return ChunkResult(
            observation=self._last,
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            terminated=bool(terminated) and finite,
            truncated=bool(truncated and not terminated) and finite,
            abandoned=not finite,
            success=success,
            success_once=self._succeeded,
            success_at_end=bool(success[executed - 1]),
            episode_step=self._steps,
            message=message,
        )

    def _is_success(self, reward: float, info: dict[str, Any]) -> bool:
        self._return += reward
        goal = self.options.success_return
        return bool(info.get("is_success", False)) if goal is None else self._return >= goal

    def _to_gymnasium(self, action: np.ndarray) -> Any:
        space = self._env.action_space
        clipped = np.clip(action, self._low, self._high)
        if isinstance(space, gymnasium.spaces.Discrete):
            return int(space.start) + round(float(clipped[0]))
        return clipped.astype(space.dtype)

    def _observe(self, observation: Any) -> Observation:
        space, spec = self._env.observation_space, self.contract.observation[0]
        if isinstance(space, gymnasium.spaces.Discrete):
            one_hot = np.zeros(spec.shape, np.float32)
            one_hot[int(observation) - int(space.start)] = 1
            return {"state": one_hot}
        return {"state": np.array(observation, spec.dtype)}

    def render(self) -> np.ndarray:
        """Not offered: gymnasium's render modes are chosen when an environment is made."""
        raise NotImplementedError("the gymnasium adapter renders nothing")

    def save_state(self) -> bytes:
        """Seed, reset options and actions so far."""
        header = {**self._identity(), "seed": self._seed, "reset": self._reset_options}
        return json.dumps(header).encode() + b"\n" + b"".join(chunk.tobytes() for chunk in self._log)

    def restore_state(self, state: bytes) -> Observation:
        """Replay up to the saved moment; as exact as the environment is deterministic."""
        size = int(np.prod(self.contract.action.shape, dtype=np.int64))
        saved, actions = split_replay(state, self._identity(), size)
        self.reset(int(saved["seed"]), saved["reset"])
        if len(actions):
            self.step_chunk(actions.reshape(-1, *self.contract.action.shape), True)
        return self._last

    def _identity(self) -> dict[str, Any]:
        """A state continues only under the same task and options."""
        return {"adapter": "gymnasium", "task": self.contract.task, "options": dataclasses.asdict(self.options)}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _observation_spec(space: Any) -> TensorSpec:
    if isinstance(space, gymnasium.spaces.Discrete):
        return TensorSpec("state", (int(space.n),), low=(0.0,), high=(1.0,), description="one-hot index of the state")
    if isinstance(space, gymnasium.spaces.Box):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return TensorSpec("state", tuple(space.shape), dtype, *_bounds(space))
    raise InvalidArgument(f"observation space {space}: this adapter serves Box and Discrete", field="task")


def _action_spec(space: Any) -> TensorSpec:
    if isinstance(space, gymnasium.spaces.Discrete):
        return TensorSpec("action", (1,), low=(0.0,), high=(float(space.n - 1),), description="index of a choice")
    if isinstance(space, gymnasium.spaces.Box):
        return TensorSpec("action", tuple(space.shape), "float32", *_bounds(space))
    raise InvalidArgument(f"action space {space}: this adapter serves Box and Discrete", field="task")


def _bounds(space: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """``low`` and ``high`` of a Box, none where any is infinite: a contract knows bounded or not."""
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return (), ()
    low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
    if (low == low[0]).all() and (high == high[0]).all():
        return (float(low[0]),), (float(high[0]),)
    return tuple(low.tolist()), tuple(high.tolist())
