"""What an environment endpoint implements, in Python terms; the gRPC face is ``service.py``.

Two layers:

* :class:`SingleEnv` is one simulator environment, written by an adapter's author. It lives in a worker
  process of its own.
* :class:`VectorBackend` is what :class:`landbridge.env.service.EnvService` serves: N environments, addressed
  by index. ``sim_server`` builds one from worker processes; ``robot_bridge`` builds one (N = 1) from a robot.

Semantics are gymnasium's: ``terminated`` (the task's own end) differs from ``truncated`` (a time limit), and
success is reported apart from reward. No automatic reset: a finished environment stays finished, its last
observation is the final one, and stepping it again is an error until it is reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from landbridge.contract import Contract

Observation = dict[str, np.ndarray]


@dataclass
class ChunkResult:
    """What one environment did with one action chunk of length C (a single step is C = 1).

    Execution stops at the first step that ends the episode; later entries are zero / False.
    """

    observation: Observation
    """After the last executed step; of a finished episode, its final observation."""
    rewards: np.ndarray
    """[C] float32. Where ``evaluated`` is False the reward was not computed and is 0."""
    evaluated: np.ndarray
    """[C] bool: steps on which reward, success and termination were computed."""
    executed: int
    """Number of actions really executed, 0 … C."""
    terminated: bool = False
    truncated: bool = False
    abandoned: bool = False
    """The episode was lost (worker died, hung, produced NaN): no value target may reach across it."""
    success: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """[C] bool, per executed and evaluated step."""
    success_once: bool = False
    """Success on any evaluated step of the episode so far (never at reset)."""
    success_at_end: bool = False
    """Success on the last evaluated step."""
    episode_step: int = 0
    """Steps executed in this episode so far."""
    message: str = ""
    """Why it was abandoned; empty otherwise."""


@dataclass
class ResetResult:
    """First observation of an episode."""

    observation: Observation
    info: dict[str, Any] = field(default_factory=dict)


class SingleEnv(Protocol):
    """One simulator environment, as an adapter's author writes it. Not thread-safe."""

    contract: Contract
    max_episode_steps: int

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        """Start an episode. The same seed gives the bit-identical episode, whatever ran before."""
        ...

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        """Execute ``actions`` [C, A] in the contract's physical units.

        With ``evaluate_every_step`` False, reward, success and termination may be computed on the last
        executed step only (a lean inner step); the states passed through must be identical either way.
        Actions outside the contract's bounds are clipped here, in the adapter.
        """
        ...

    def render(self) -> np.ndarray:
        """An RGB frame [H, W, 3] uint8. Raise ``NotImplementedError`` where there is none."""
        ...

    def save_state(self) -> bytes:
        """An opaque state (no pickle); ``NotImplementedError`` where unsupported."""
        ...

    def restore_state(self, state: bytes) -> Observation:
        """Continue exactly from ``save_state``; returns the observation there."""
        ...

    def close(self) -> None:
        """Free everything. Called once."""
        ...


class VectorBackend(Protocol):
    """N environments behind one endpoint. Methods are called from one thread at a time per env index."""

    name: str
    kind: str
    """``simulator`` or ``robot``."""
    contract: Contract
    num_envs: int
    max_episode_steps: int

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        """Reset the named environments, in that order."""
        ...

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        """Run ``actions`` [len(env_ids), C, A] in parallel; one result an environment, in order."""
        ...

    def render(self, env_id: int) -> np.ndarray:
        """RGB frame [H, W, 3] uint8."""
        ...

    def save_state(self, env_id: int) -> bytes:
        """Opaque state of one environment."""
        ...

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        """Continue from a saved state."""
        ...

    def close(self) -> None:
        """End every worker; bounded in time."""
        ...
