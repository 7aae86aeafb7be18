"""ManiSkill tasks as small entries of one table: where things start, success, dense reward.

They repeat ManiSkill's formulas on numbers read straight from the simulator. Starts are bit-identical to
``env.reset(seed)``; success equals ``env.evaluate()`` and the reward ``compute_normalized_dense_reward`` to 1e-6
(``tests/unit/test_maniskill_lean.py``). Sources: ``mani_skill.envs.tasks.tabletop`` of mani_skill 3.0.1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import acos, degrees, dist, hypot, sqrt, tanh
from typing import Any, NamedTuple, Protocol

import numpy as np

from sim_server.adapters.maniskill_panda import ARM_JOINTS, Reading

GRASP_FORCE = 0.5
"""Newtons on each finger, as in ``Panda.is_grasping``."""
GRASP_ANGLE = 85.0
"""Largest angle in degrees between a finger's force and its opening direction."""
CUBE_HALF_SIZE = 0.02
_TARGET_ROTATION = np.array([sqrt(0.5), 0, sqrt(0.5), 0])
"""euler2quat(0, π/2, 0): a disc that lies on the table."""


class Judgement(NamedTuple):
    """What was found after a step: success, ManiSkill's normalised dense reward in [0, 1], grasp flag."""

    success: bool
    reward: float
    grasped: bool


class Start(NamedTuple):
    """Poses of an episode's start, world frame: position [3] and rotation wxyz [4] of cube and goal."""

    cube: tuple[np.ndarray, np.ndarray]
    goal: tuple[np.ndarray, np.ndarray]


class Task(Protocol):
    """One ManiSkill task, seen through its actors. Made from the env and the share of its goal radius that counts."""

    instruction: str
    cube: Any
    """Entities of cube and goal."""
    goal: Any

    def start(self, generator: Any) -> Start:
        """Draw an episode's start from a seeded ``torch.Generator``, in ManiSkill's order."""
        ...

    def judge(self, reading: Reading, goal: list[float]) -> Judgement:
        """Judge the state just read; ``goal`` is the goal's world position [3]."""
        ...


def _uniform(generator: Any, count: int) -> np.ndarray:
    """``count`` of torch's uniform numbers, float32: ManiSkill draws with torch, so the episode's start does too."""
    import torch

    drawn: np.ndarray = torch.rand(count, generator=generator).numpy()
    return drawn


def _closeness(distance: float) -> float:
    return 1.0 - tanh(5.0 * distance)


class PickCube:
    """PickCube-v1: grasp the cube, bring it to the goal in the air, hold still."""

    instruction = "pick up the cube and hold it at the goal"

    def __init__(self, env: Any, tolerance: float) -> None:
        self.cube = env.cube._objs[0]
        self.goal = env.goal_site._objs[0]
        self._threshold = float(np.float32(env.goal_thresh)) * tolerance
        self._static = float(np.float32(0.2))
        self._spread, self._height = float(env.cube_spawn_half_size), float(env.max_goal_height)
        fingers = (env.agent.finger1_link._objs[0], env.agent.finger2_link._objs[0])
        self._grip = _Grip(float(env.scene.px.timestep), fingers, self.cube)

    def start(self, generator: Any) -> Start:
        """``PickCubeEnv._initialize_episode``: cube on the table turned about z, goal up to 0.3 m above it."""
        cube, goal = np.zeros(3, np.float32), np.zeros(3, np.float32)
        cube[:2] = _uniform(generator, 2) * self._spread * 2 - self._spread
        cube[2] = CUBE_HALF_SIZE
        angle = _uniform(generator, 3)[2:] * np.float32(2 * np.pi)
        goal[:2] = _uniform(generator, 2) * self._spread * 2 - self._spread
        goal[2:] = _uniform(generator, 1) * self._height + cube[2:]
        return Start((cube, _about_z(angle)), (goal, np.array([1, 0, 0, 0], np.float32)))

    def judge(self, reading: Reading, goal: list[float]) -> Judgement:
        """``PickCubeEnv.evaluate`` and ``compute_dense_reward``."""
        cube = reading.cube.p.tolist()
        arm_velocity = reading.qvel.tolist()[:ARM_JOINTS]
        to_goal = dist(goal, cube)
        placed = to_goal <= self._threshold
        grasped = self._grip.holds(reading.contacts())
        if placed and max(map(abs, arm_velocity)) <= self._static:
            return Judgement(True, 1.0, grasped)
        reward = _closeness(dist(cube, reading.tcp.tolist()))
        if grasped:
            reward += 1.0 + _closeness(to_goal)
        if placed:
            reward += _closeness(hypot(*arm_velocity))
        return Judgement(False, reward / 5.0, grasped)


class _SlideCube:
    """A cube to be moved along x into a circle on the table, by a tool that comes from one side of it."""

    instruction = ""
    _goal_offset = 0.0
    """Of the goal from the cube's start, metres along x; its sign is the direction of the motion."""
    _reach = 0.0
    """From the cube's centre to where the tool should touch it, metres along x."""
    _best = 0.0
    """ManiSkill's largest dense reward, by which it normalises."""

    def __init__(self, env: Any, tolerance: float) -> None:
        self.cube = env.obj._objs[0]
        self.goal = env.goal_region._objs[0]
        self._radius = float(np.float32(env.goal_radius)) * tolerance
        self._top = float(np.float32(CUBE_HALF_SIZE + 5e-3))

    def start(self, generator: Any) -> Start:
        """``_initialize_episode`` of both tasks."""
        cube = np.zeros(3, np.float32)
        cube[:2] = _uniform(generator, 2) * 0.2 - 0.1
        cube[2] = CUBE_HALF_SIZE
        goal = cube + np.array([self._goal_offset, 0, 0], np.float32)
        goal[2] = 1e-3
        return Start((cube, np.array([1, 0, 0, 0], np.float32)), (goal, _TARGET_ROTATION))

    def judge(self, reading: Reading, goal: list[float]) -> Judgement:
        """``evaluate`` and ``compute_dense_reward`` of both tasks."""
        cube = reading.cube.p.tolist()
        to_goal = dist(cube[:2], goal[:2])
        if to_goal < self._radius and self._on_table(cube[2]):
            return Judgement(True, 1.0, False)
        to_touch = dist([cube[0] + self._reach, cube[1], cube[2]], reading.tcp.tolist())
        reward = _closeness(to_touch)
        if to_touch < 0.01:
            place = _closeness(to_goal)
            reward += place + place * self._level(cube[2])
        return Judgement(False, reward / self._best, False)

    def _on_table(self, height: float) -> bool:
        return True

    def _level(self, height: float) -> float:
        return 0.0


class PushCube(_SlideCube):
    """PushCube-v1: away from the robot; the cube has to stay on the table."""

    instruction = "push the cube into the target circle"
    _goal_offset, _reach, _best = 0.2, -(CUBE_HALF_SIZE + 0.005), 4.0

    def _on_table(self, height: float) -> bool:
        return height < self._top

    def _level(self, height: float) -> float:
        return _closeness(abs(height - CUBE_HALF_SIZE))


class PullCube(_SlideCube):
    """PullCube-v1: towards the robot."""

    instruction = "pull the cube into the target circle"
    _goal_offset, _reach, _best = -0.2, CUBE_HALF_SIZE + 2 * 0.005, 3.0


def _about_z(angle: np.ndarray) -> np.ndarray:
    """Quaternion wxyz [4] of a turn about z by ``angle`` [1], rounded as ManiSkill's way through a matrix rounds it.

    Source: ``random_quaternions`` and ``rotation_conversions.matrix_to_quaternion``. Sine and cosine are torch's.
    """
    import torch

    given = torch.from_numpy(angle)
    one, two = np.float32(1), np.float32(2)
    cos, sin = torch.cos(given).numpy()[0], torch.sin(given).numpy()[0]
    real = np.sqrt(np.maximum(one + cos + cos + one, np.float32(0)))
    axis = np.sqrt(np.maximum(one - cos - cos + one, np.float32(0)))
    quaternion: np.ndarray
    if real >= axis:
        quaternion = np.array([real * real, 0, 0, sin + sin], np.float32) / (two * real)
    else:
        quaternion = np.array([sin + sin, 0, 0, axis * axis], np.float32) / (two * axis)
    return -quaternion if quaternion[0] < 0 else quaternion


class _Grip:
    """Do both fingers press on the cube? Source: ``Panda.is_grasping``."""

    def __init__(self, timestep: float, fingers: tuple[Any, Any], cube: Any) -> None:
        import sapien

        self._timestep = timestep
        self._left, self._right = fingers
        self._cube = cube.find_component_by_type(sapien.physx.PhysxRigidDynamicComponent)

    def holds(self, contacts: list[Any]) -> bool:
        """From the contacts of the last physics step."""
        left, right = np.zeros(3), np.zeros(3)
        for contact in contacts:
            first, second = contact.bodies
            if first is self._cube:
                other, sign = second, -1.0
            elif second is self._cube:
                other, sign = first, 1.0
            else:
                continue
            if other is self._left:
                left += sign * np.sum([point.impulse for point in contact.points], axis=0)
            elif other is self._right:
                right += sign * np.sum([point.impulse for point in contact.points], axis=0)
        return self._presses(left, self._left, 1.0) and self._presses(right, self._right, -1.0)

    def _presses(self, impulse: np.ndarray, finger: Any, sign: float) -> bool:
        force = [value / self._timestep for value in impulse.tolist()]
        size = hypot(*force)
        if size < GRASP_FORCE:
            return False
        w, x, y, z = finger.entity_pose.q.tolist()
        opening = (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x))  # the link's y axis
        along = sign * sum(a * b for a, b in zip(opening, force, strict=True)) / (hypot(*opening) * size)
        return degrees(acos(min(1.0, max(-1.0, along)))) <= GRASP_ANGLE


TASKS: dict[str, Callable[[Any, float], Task]] = {
    "PickCube-v1": PickCube,
    "PushCube-v1": PushCube,
    "PullCube-v1": PullCube,
}
