"""The lean step: ManiSkill's ``pd_ee_delta_pos`` control of the Panda, without its tensors.

``env.step`` spends a tenth of its time on physics; most of the rest is torch on one-element tensors. Here the same
float32 arithmetic is done on arrays of three, in the same order, so that simulator states are bit-identical
(``tests/unit/test_maniskill_lean.py``), while reward, success and observation are computed only where somebody
reads them.

Source of the arithmetic: ``mani_skill.agents.controllers.pd_ee_pose.PDEEPosController`` and
``pd_joint_pos.PDJointPosMimicController`` of mani_skill 3.0.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sim_server.adapters.maniskill_scene import PhysicsScene

ARM_LIMIT = np.float32(0.1)
"""Largest displacement a step of pd_ee_delta_pos can command, in metres an axis (normalised action 1)."""
FINGER_LOW, FINGER_HIGH = np.float32(-0.01), np.float32(0.04)
"""Finger joint targets at normalised gripper action -1 and 1, in metres."""
ARM_JOINTS = 7
REST = np.array([0, np.pi / 8, 0, -np.pi * 5 / 8, 0, np.pi * 3 / 4, np.pi / 4, 0.04, 0.04])
"""Joint positions around which an episode starts (``TableSceneBuilder.initialize``), radians and metres."""

_HALF, _ONE = np.float32(0.5), np.float32(1)
_MIDDLE = _HALF * (np.array([ARM_LIMIT] * 3 + [FINGER_HIGH]) + np.array([-ARM_LIMIT] * 3 + [FINGER_LOW]))
_SPAN = _HALF * (np.array([ARM_LIMIT] * 3 + [FINGER_HIGH]) - np.array([-ARM_LIMIT] * 3 + [FINGER_LOW]))
_SHARE = np.array([1, 1, 1, 0.5], np.float32)
"""Of a physical action in the target of an axis or joint; a factor of 1 leaves the displacement's rounding alone."""
_SHIFT = np.array([0, 0, 0, _MIDDLE[3]], np.float32)
_IK_EPSILON, _IK_ITERATIONS = 1e-4, 100
"""SAPIEN's default tolerance; the iterations ManiSkill allows."""


class Reading(NamedTuple):
    """What is read from the simulator after a step, world frame: arrays float32 and the cube's ``sapien.Pose``."""

    qpos: np.ndarray
    qvel: np.ndarray
    tcp: np.ndarray
    cube: Any
    contacts: Callable[[], list[Any]]
    """Lists PhysX's contacts; costly, so only where they matter."""


class Commands:
    """From actions in the contract's units to what the drives are told."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        """``low`` and ``high`` float32 [4]: the contract's bounds."""
        self._low = np.maximum(self._normalise(low), -_ONE)
        self._high = np.minimum(self._normalise(high), _ONE)

    def __call__(self, physical: np.ndarray) -> np.ndarray:
        """Actions float32 [C, 4] (metres and opening width) to displacement and finger joint target [C, 4], metres.

        They pass through ManiSkill's [-1, 1] on the way, as an action given to ``env.step`` would, with the same
        rounding; clipping there is clipping in the contract's units, for rounding keeps the order of numbers. A width
        is shared by two fingers; 0 is closed.
        """
        goals = self._normalise(physical)
        np.maximum(goals, self._low, out=goals)
        np.minimum(goals, self._high, out=goals)
        goals *= _SPAN
        goals += _MIDDLE
        return goals

    @staticmethod
    def _normalise(physical: np.ndarray) -> np.ndarray:
        normalised: np.ndarray = physical * _SHARE
        normalised -= _SHIFT
        normalised /= _SPAN
        return normalised


class LeanPanda:
    """Control and measurement of the Panda in one ManiSkill environment; no torch on the way."""

    def __init__(self, env: Any, physics: PhysicsScene) -> None:
        """``env`` is the unwrapped ManiSkill env with control mode pd_ee_delta_pos on the CPU backend."""
        import sapien

        self._pose = sapien.Pose
        kinematics = env.agent.controller.controllers["arm"].kinematics
        robot = env.agent.robot
        self.articulation = robot._objs[0]
        self.tcp = kinematics.end_link._objs[0]
        joints = [joint._objs[0] for joint in robot.active_joints]
        names = [joint.name for joint in joints]
        if len(names) != 9 or not all(f"panda_joint{i + 1}" in name for i, name in enumerate(names[:ARM_JOINTS])):
            raise ValueError(f"unexpected joint order {names}")
        self._set_targets = [joint.set_drive_target for joint in joints]
        self._solver = kinematics.pmodel  # owns what the bound method below computes in
        self._inverse_kinematics = kinematics.pmodel.compute_inverse_kinematics
        self._end_link_index = kinematics.end_link_idx
        self._ik_mask = kinematics.qmask.numpy().astype(np.int32)
        self._physics = physics
        self._substeps = range(int(env._sim_steps_per_control))
        self._root = robot.root._objs[0]
        self._base = sapien.Pose([-0.615, 0, 0])
        self._still = np.zeros(9, np.float32)
        self._root_known: list[float] = []
        self.read_base()

    def read_base(self) -> None:
        """Take the base's pose from the simulator; call after every reset.

        ManiSkill transforms by the base's quaternion as PhysX returns it, whose real part may be 1.0000001; the
        products below keep its float32 rounding: ``quaternion_apply`` of a pure real w is ``(w * p) * w``.
        """
        root = self._root.entity_pose
        values = [*root.p.tolist(), *root.q.tolist()]
        if values == self._root_known:
            return
        if any(values[4:]):
            raise ValueError(f"the lean step assumes an unrotated robot base; this one has q = {root.q}")
        self._root_known = values
        w = np.float32(root.q[0])
        self._w3, self._w4 = np.full(3, w), np.full(4, w)  # arrays: numpy multiplies them faster than by a scalar
        self._to_base = (w * -np.asarray(root.p, np.float32)) * w

    def place(self, qpos: np.ndarray) -> None:
        """Start of an episode: joints at ``qpos`` [9], everything still. The order of calls is ManiSkill's."""
        articulation = self.articulation
        articulation.set_root_linear_velocity(self._still[:3])
        articulation.set_root_angular_velocity(self._still[:3])
        articulation.set_qpos(qpos)
        articulation.set_qvel(self._still)
        articulation.set_qf(self._still)
        articulation.set_pose(self._base)

    def in_base(self, position: np.ndarray) -> np.ndarray:
        """A world position [..., 3] in the robot's base frame, float32."""
        moved = position * self._w3
        moved *= self._w3
        moved += self._to_base
        return moved

    def control_step(self, delta: np.ndarray, finger: float) -> None:
        """One control period (50 ms): inverse kinematics, drive targets, physics.

        ``delta`` float32 [3] is added to the measured tool position, base frame; ``finger`` is the target of both
        finger joints. Where the inverse kinematics find nothing, the arm holds where it is, as in ManiSkill.
        """
        measured = self.tcp.entity_pose
        position = self.in_base(measured.p)
        position += delta
        rotation = measured.q * self._w4
        if rotation[0] < 0:  # ManiSkill's quaternion products are standardised to a non-negative real part
            rotation = -rotation
        current = self.articulation.qpos
        solution, success, _ = self._inverse_kinematics(
            self._end_link_index,
            self._pose(position, rotation),
            current,
            self._ik_mask,
            _IK_EPSILON,
            _IK_ITERATIONS,
        )
        goals = (solution if success else current).tolist()
        goals[ARM_JOINTS:] = finger, finger
        for set_target, goal in zip(self._set_targets, goals, strict=True):
            set_target(goal)
        step = self._physics.step
        for _ in self._substeps:
            step()

    def link_positions(self) -> np.ndarray:
        """Origins of the arm's links and the tool [n, 3] float32 in the base frame, base first."""
        links = [link for link in self.articulation.links if "panda_link" in link.name]
        points = [link.entity_pose.p for link in links] + [self.tcp.entity_pose.p]
        return self.in_base(np.asarray(points, np.float32))
