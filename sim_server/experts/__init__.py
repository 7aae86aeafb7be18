"""Scripted experts that make demonstrations.

They read the contract's observation only, and act in its physical units: the same code drives ManiSkill and a robot
cell that offers the same contract.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from landbridge.errors import NotFound
from sim_server.experts.cube import PickCubeExpert, PushCubeExpert


class Expert(Protocol):
    """A reactive policy: no plan, a little memory within an episode."""

    def reset(self) -> None:
        """Forget the episode before."""
        ...

    def act(self, state: np.ndarray) -> np.ndarray:
        """The action [A] for one observation ``state`` [24]."""
        ...


_EXPERTS: dict[str, type[PickCubeExpert] | type[PushCubeExpert]] = {
    "PickCube-v1": PickCubeExpert,
    "PushCube-v1": PushCubeExpert,
}


def make_expert(task: str, max_step: float = 0.06) -> Expert:
    """The expert for ``task``; ``max_step`` bounds the displacement it asks for in one step (metres)."""
    if task not in _EXPERTS:
        raise NotFound(f"no expert for {task!r}; there are experts for {sorted(_EXPERTS)}", field="task")
    return _EXPERTS[task](max_step)
