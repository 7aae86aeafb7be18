"""Reactive experts for the table-top cube tasks.

They read the contract's ``state`` [24] (``sim_server/adapters/maniskill_contract.py``) and nothing else, so they drive
any cell that offers the same. Distances are metres, positions are in the robot's base frame.
"""

from __future__ import annotations

import numpy as np

TCP, WIDTH, CUBE, GOAL = slice(14, 17), 17, slice(18, 21), slice(21, 24)
OPEN, CLOSED = 0.08, 0.0
FORWARD, UP = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def _toward(target: np.ndarray, position: np.ndarray, gain: float, limit: float) -> np.ndarray:
    """A displacement [3] towards ``target``, its length bounded by ``limit``.

    A gain above 1 makes up for the drive, which covers part of a commanded displacement in a step.
    """
    step: np.ndarray = gain * (target - position)
    length = float(np.linalg.norm(step))
    return step if length <= limit else step * (limit / length)


def _action(displacement: np.ndarray, width: float) -> np.ndarray:
    return np.array([*displacement, width], np.float32)


class PickCubeExpert:
    """Hover above the cube, descend, close, carry to the goal, hold."""

    _ASIDE, _HIGH = 0.012, 0.012
    """How far beside and above the cube's centre the tool may be to close on it."""
    _LOST = 0.05
    """Between tool and cube: further apart, the cube was not taken along."""
    _GRIPPING = 2
    """Steps of closing before the lift, at least; a slow gripper takes as long as its fingers move."""
    _STILL = 0.001
    """Metres a step: fingers that move less have closed on something."""

    def __init__(self, max_step: float) -> None:
        self._limit = max_step
        self.reset()

    def reset(self) -> None:
        """Start with an open hand."""
        self._closing = 0
        self._gripped = False
        self._width = OPEN

    def act(self, state: np.ndarray) -> np.ndarray:
        """[dx, dy, dz, width] in metres, float32, for ``state`` [24]."""
        tcp, cube, goal = (state[part].astype(np.float64) for part in (TCP, CUBE, GOAL))
        offset = tcp - cube
        aside = float(np.hypot(offset[0], offset[1]))
        above = aside < self._ASIDE
        if self._closing and float(np.linalg.norm(offset)) > self._LOST:
            self._closing, self._gripped = 0, False  # begin again
        moved, self._width = self._width - float(state[WIDTH]), float(state[WIDTH])
        if self._closing or (above and abs(float(offset[2])) < self._HIGH):
            self._closing += 1
            self._gripped = self._gripped or (self._closing > self._GRIPPING and moved < self._STILL)
            if not self._gripped:
                return _action(np.zeros(3), CLOSED)
            return _action(_toward(goal, cube, 1.4, self._limit), CLOSED)
        height = 0.0 if above else min(0.06, 2.5 * aside)
        return _action(_toward(cube + height * UP, tcp, 1.6, self._limit), OPEN)


class SlideCubeExpert:
    """Close the hand, come down on one side of the cube, slide it along x to the goal."""

    _ASIDE, _HIGH = 0.015, 0.015
    """How far from the cube's y and z the tool may be to slide it."""
    _CLEARANCE = 0.05
    """Between the cube's centre and where the hand comes down."""
    _OVER = 0.07
    """Height over the cube's centre at which the hand travels."""

    def __init__(self, max_step: float, direction: float) -> None:
        """``direction`` +1 slides away from the robot, -1 towards it."""
        self._limit = max_step
        self._direction = direction

    def reset(self) -> None:
        """Nothing is remembered."""

    def act(self, state: np.ndarray) -> np.ndarray:
        """[dx, dy, dz, width] in metres, float32, for ``state`` [24]."""
        tcp, cube, goal = (state[part].astype(np.float64) for part in (TCP, CUBE, GOAL))
        offset = tcp - cube
        behind = offset[0] * self._direction < 0
        if behind and abs(offset[1]) < self._ASIDE and abs(offset[2]) < self._HIGH:
            return _action(_toward(np.array([goal[0], cube[1], cube[2]]), tcp, 1.5, self._limit), CLOSED)
        start = cube - self._CLEARANCE * self._direction * FORWARD
        if np.hypot(*(tcp - start)[:2]) > 0.02:
            start = start + self._OVER * UP
        return _action(_toward(start, tcp, 1.6, self._limit), CLOSED)


def push_cube(max_step: float) -> SlideCubeExpert:
    """The expert of PushCube-v1."""
    return SlideCubeExpert(max_step, 1.0)


def pull_cube(max_step: float) -> SlideCubeExpert:
    """The expert of PullCube-v1."""
    return SlideCubeExpert(max_step, -1.0)
