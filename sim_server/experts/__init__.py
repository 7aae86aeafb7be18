"""Scripted experts that make demonstrations.

They read the contract's observation only, and act in its physical units: the same code drives ManiSkill and a robot
cell that offers the same contract.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Protocol

import numpy as np

from landbridge.errors import NotFound
from sim_server.experts.cube import PickCubeExpert, pull_cube, push_cube

MAX_STEP = 0.1
"""Metres in one step: further than the arm's drive follows."""


class Expert(Protocol):
    """A reactive policy: no plan, a little memory within an episode."""

    def reset(self) -> None:
        """Forget the episode before."""
        ...

    def act(self, state: np.ndarray) -> np.ndarray:
        """The action [A] float32 for one observation ``state`` [S]."""
        ...


_EXPERTS: dict[str, Callable[[float], Expert]] = {
    "PickCube-v1": PickCubeExpert,
    "PushCube-v1": push_cube,
    "PullCube-v1": pull_cube,
}


def make_expert(task: str, max_step: float = MAX_STEP) -> Expert:
    """The expert for ``task``; ``max_step`` bounds the length of a displacement asked for in one step (metres)."""
    if task not in _EXPERTS:
        close = difflib.get_close_matches(task, _EXPERTS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise NotFound(f"no expert for {task!r}; {hint}there are experts for {sorted(_EXPERTS)}", field="task")
    return _EXPERTS[task](max_step)
