"""Reactive experts for the table-top cube tasks (observation layout of ``maniskill.contract_for``)."""

from __future__ import annotations

import numpy as np

TCP, WIDTH, CUBE, GOAL = slice(14, 17), 17, slice(18, 21), slice(21, 24)
OPEN, CLOSED = 0.08, 0.0
GRASP_WIDTH = 0.05
"""A gripper narrower than this (metres) around a 4 cm cube holds it."""


def _toward(target: np.ndarray, position: np.ndarray, gain: float, limit: float) -> np.ndarray:
    """A displacement towards ``target``, its length bounded by ``limit``."""
    step: np.ndarray = gain * (target - position)
    length = float(np.linalg.norm(step))
    return step if length <= limit else step * (limit / length)


class PickCubeExpert:
    """Hover above the cube, descend, close, carry to the goal, hold."""

    def __init__(self, max_step: float) -> None:
        self._limit = max_step
        self.reset()

    def reset(self) -> None:
        """Start with an open hand."""
        self._closing = 0

    def act(self, state: np.ndarray) -> np.ndarray:
        """[dx, dy, dz, width] in metres for ``state`` [24]."""
        tcp, cube, goal = state[TCP], state[CUBE], state[GOAL]
        offset = tcp - cube
        aside = float(np.hypot(offset[0], offset[1]))
        inside = aside < 0.012 and abs(float(offset[2])) < 0.012
        if self._closing and float(np.linalg.norm(offset)) > 0.05:
            self._closing = 0  # lost it: begin again
        if self._closing or inside:
            self._closing += 1
            if self._closing <= 2:
                return np.array([0.0, 0.0, 0.0, CLOSED])
            return np.append(_toward(goal, cube, 1.4, self._limit), CLOSED)
        height = 0.0 if aside < 0.012 else min(0.06, 2.5 * aside)
        return np.append(_toward(cube + np.array([0, 0, height]), tcp, 1.6, self._limit), OPEN)


class PushCubeExpert:
    """Close the hand, go behind the cube, push along x."""

    def __init__(self, max_step: float) -> None:
        self._limit = max_step

    def reset(self) -> None:
        """Nothing is remembered."""

    def act(self, state: np.ndarray) -> np.ndarray:
        """[dx, dy, dz, width] in metres for ``state`` [24]."""
        tcp, cube, goal = state[TCP], state[CUBE], state[GOAL]
        start = cube + np.array([-0.05, 0.0, 0.0])
        aside = abs(float(tcp[1] - cube[1]))
        low = abs(float(tcp[2] - cube[2])) < 0.015
        if aside < 0.015 and low and tcp[0] < cube[0]:
            return np.append(_toward(np.array([goal[0], cube[1], cube[2]]), tcp, 1.5, self._limit), CLOSED)
        if np.hypot(*(tcp - start)[:2]) > 0.02:
            start = start + np.array([0, 0, 0.07])
        return np.append(_toward(start, tcp, 1.6, self._limit), CLOSED)
