"""ManiSkill tasks as small entries of one table: which actors matter, success, dense reward.

Success and reward repeat ManiSkill's formulas in numpy float32 on numbers read straight from the simulator; the test
compares them with ``env.evaluate()`` and ``compute_normalized_dense_reward`` step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sim_server.adapters.maniskill_panda import ARM_JOINTS, LeanPanda

GRASP_FORCE = 0.5
"""Newtons on each finger, as in ``Panda.is_grasping``."""
GRASP_ANGLE = 85.0
"""Largest angle in degrees between a finger's force and its opening direction."""


@dataclass(frozen=True)
class Judgement:
    """What was found after a step: success, ManiSkill's normalised dense reward in [0, 1], grasp flag."""

    success: bool
    reward: float
    grasped: bool


class Task(Protocol):
    """One ManiSkill task, seen through its actors."""

    instruction: str
    cube: Any
    goal: Any

    def judge(self, panda: LeanPanda, cube: np.ndarray, qvel: np.ndarray, tcp: np.ndarray) -> Judgement:
        """``cube`` and ``tcp`` are world positions [3], ``qvel`` is [9]."""
        ...


def _distance(a: np.ndarray, b: np.ndarray) -> np.float32:
    return np.float32(np.sqrt(np.sum(np.square(a - b), dtype=np.float32)))


def _closeness(distance: np.float32) -> np.float32:
    return np.float32(1) - np.tanh(np.float32(5) * distance)


class PickCube:
    """PickCube-v1: grasp the cube, bring it to the goal in the air, hold still."""

    instruction = "pick up the cube and hold it at the goal"

    def __init__(self, env: Any) -> None:
        self.cube = env.cube._objs[0]
        self.goal = env.goal_site._objs[0]
        self._threshold = np.float32(env.goal_thresh)
        self._px = env.scene.px
        self._fingers = [env.agent.finger1_link._objs[0], env.agent.finger2_link._objs[0]]

    def judge(self, panda: LeanPanda, cube: np.ndarray, qvel: np.ndarray, tcp: np.ndarray) -> Judgement:
        """Source: ``PickCubeEnv.evaluate`` and ``compute_dense_reward``, mani_skill 3.0.1."""
        arm_velocity = qvel[:ARM_JOINTS]
        to_goal = _distance(self.goal.pose.p, cube)
        placed = to_goal <= self._threshold
        static = np.abs(arm_velocity).max() <= np.float32(0.2)
        grasped = self._is_grasping()
        if placed and static:
            return Judgement(True, 1.0, grasped)
        reward = _closeness(_distance(cube, tcp))
        if grasped:
            reward += np.float32(1) + _closeness(to_goal)
        if placed:
            reward += _closeness(np.float32(np.sqrt(np.sum(np.square(arm_velocity), dtype=np.float32))))
        return Judgement(False, float(reward / np.float32(5)), grasped)

    def _is_grasping(self) -> bool:
        forces = _finger_forces(self._px, self._fingers, self.cube)
        if forces is None:
            return False
        for finger, force, sign in zip(self._fingers, forces, (1.0, -1.0), strict=True):
            size = float(np.linalg.norm(force))
            opening = sign * _opening_axis(finger.entity_pose.q)
            if size < GRASP_FORCE:
                return False
            cosine = float(np.clip(opening @ force / (np.linalg.norm(opening) * size), -1.0, 1.0))
            if np.degrees(np.arccos(cosine)) > GRASP_ANGLE:
                return False
        return True


class PushCube:
    """PushCube-v1: push the cube along x into the target circle on the table."""

    instruction = "push the cube into the target circle"

    def __init__(self, env: Any) -> None:
        self.cube = env.obj._objs[0]
        self.goal = env.goal_region._objs[0]
        self._radius = np.float32(env.goal_radius)
        self._half_size = np.float32(env.cube_half_size)

    def judge(self, panda: LeanPanda, cube: np.ndarray, qvel: np.ndarray, tcp: np.ndarray) -> Judgement:
        """Source: ``PushCubeEnv.evaluate`` and ``compute_dense_reward``, mani_skill 3.0.1."""
        to_goal = _distance(cube[:2], self.goal.pose.p[:2])
        if to_goal < self._radius and cube[2] < self._half_size + np.float32(5e-3):
            return Judgement(True, 1.0, False)
        push_from = cube + np.array([-self._half_size - np.float32(0.005), 0, 0], np.float32)
        to_push = _distance(push_from, tcp)
        reward = _closeness(to_push)
        if to_push < np.float32(0.01):
            place = _closeness(to_goal)
            reward += place + place * _closeness(np.abs(cube[2] - self._half_size))
        return Judgement(False, float(reward / np.float32(3)), False)


def _opening_axis(q: np.ndarray) -> np.ndarray:
    """Second column of the rotation matrix of quaternion wxyz ``q``: a finger link's y axis."""
    w, x, y, z = (float(v) for v in q)
    return np.array([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)])


def _finger_forces(px: Any, fingers: list[Any], cube: Any) -> list[np.ndarray] | None:
    """Force of each finger on the cube [3] in newtons, or None where a finger does not touch it."""
    totals = [np.zeros(3), np.zeros(3)]
    touched = [False, False]
    entities = [finger.entity for finger in fingers]
    for contact in px.get_contacts():
        first, second = contact.bodies[0].entity, contact.bodies[1].entity
        if first is cube or first == cube:
            other, sign = second, -1.0
        elif second is cube or second == cube:
            other, sign = first, 1.0
        else:
            continue
        for index, entity in enumerate(entities):
            if other == entity:
                touched[index] = True
                totals[index] += sign * np.sum([point.impulse for point in contact.points], axis=0)
    return [total / px.timestep for total in totals] if all(touched) else None


TASKS: dict[str, type[PickCube] | type[PushCube]] = {"PickCube-v1": PickCube, "PushCube-v1": PushCube}
