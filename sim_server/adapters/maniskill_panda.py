"""The lean step: ManiSkill's ``pd_ee_delta_pos`` control of the Panda, without its tensors.

``env.step`` spends 0.25 ms of its 2 ms on physics; most of the rest is torch on one-element tensors. Here the same
float32 arithmetic is done on a few numpy scalars, in the same order, so that simulator states are bit-identical
(``tests/unit/test_maniskill_lean.py``), while reward, success and observation are computed only where somebody
reads them.

Source of the arithmetic: ``mani_skill.agents.controllers.pd_ee_pose.PDEEPosController`` and
``pd_joint_pos.PDJointPosMimicController`` of mani_skill 3.0.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ARM_LIMIT = np.float32(0.1)
"""Largest displacement a step of pd_ee_delta_pos can command, in metres a axis (normalised action 1)."""
FINGER_LOW, FINGER_HIGH = np.float32(-0.01), np.float32(0.04)
"""Finger joint targets at normalised gripper action -1 and 1, in metres."""
ARM_JOINTS = 7

_ARM_MIDDLE = np.float32(0.5) * (ARM_LIMIT + -ARM_LIMIT)
_ARM_HALF = np.float32(0.5) * (ARM_LIMIT - -ARM_LIMIT)
_FINGER_MIDDLE = np.float32(0.5) * (FINGER_HIGH + FINGER_LOW)
_FINGER_HALF = np.float32(0.5) * (FINGER_HIGH - FINGER_LOW)
_ONE = np.float32(1)


def normalise_action(action: np.ndarray) -> np.ndarray:
    """Physical [dx, dy, dz (m), opening width (m)] to ManiSkill's [-1, 1]^4, float32, clipped.

    A width is shared by two fingers. 0 is closed: the fingers press with the drive's full stiffness over the
    object's half-width.
    """
    out = np.empty(4, np.float32)
    out[:3] = action[:3] / ARM_LIMIT
    out[3] = (np.float32(0.5) * action[3] - _FINGER_MIDDLE) / _FINGER_HALF
    return np.clip(out, -_ONE, _ONE)


class LeanPanda:
    """Control and measurement of the Panda in one ManiSkill environment; no torch on the way."""

    def __init__(self, env: Any) -> None:
        """``env`` is the unwrapped ManiSkill env with control mode pd_ee_delta_pos on the CPU backend."""
        import sapien

        self._pose = sapien.Pose
        arm = env.agent.controller.controllers["arm"]
        robot = env.agent.robot
        kinematics = arm.kinematics
        self.articulation = robot._objs[0]
        self.tcp = kinematics.end_link._objs[0]
        self._joints = [joint._objs[0] for joint in robot.active_joints]
        self._inverse_kinematics = kinematics.pmodel.compute_inverse_kinematics
        self._end_link_index = kinematics.end_link_idx
        self._ik_mask = kinematics.qmask.numpy().copy()
        self._physics_step = env.scene.px.step
        self._substeps = int(env._sim_steps_per_control)
        self._root = robot.root._objs[0]
        self.read_base()
        self._names = [joint.name for joint in self._joints]
        if not all(f"panda_joint{i + 1}" in name for i, name in enumerate(self._names[:ARM_JOINTS])):
            raise ValueError(f"unexpected joint order {self._names}")

    def read_base(self) -> None:
        """Take the base's pose from the simulator; call after every reset.

        ManiSkill transforms by the base's quaternion as PhysX returns it, whose real part may be 1.0000001; the
        products below keep its float32 rounding: ``quaternion_apply`` of a pure real w is ``(w * p) * w``.
        """
        root = self._root.entity_pose
        if np.any(root.q[1:]):
            raise ValueError(f"the lean step assumes an unrotated robot base; this one has q = {root.q}")
        self._w = np.float32(root.q[0])
        self._to_base = (self._w * -np.asarray(root.p, np.float32)) * self._w

    def in_base(self, position: np.ndarray) -> np.ndarray:
        """A world position [..., 3] in the robot's base frame, float32."""
        return self._to_base + (self._w * position) * self._w

    def control_step(self, normalised: np.ndarray) -> None:
        """One control period (50 ms): inverse kinematics, drive targets, physics. ``normalised`` is float32 [4]."""
        delta = _ARM_MIDDLE + _ARM_HALF * normalised[:3]
        finger = float(_FINGER_MIDDLE + _FINGER_HALF * normalised[3])
        measured = self.tcp.entity_pose
        rotation = self._w * measured.q
        if rotation[0] < 0:  # ManiSkill's quaternion products are standardised to a non-negative real part
            rotation = -rotation
        target = self._pose(delta + self.in_base(measured.p), rotation)
        current = self.articulation.qpos
        solution, success, _ = self._inverse_kinematics(
            self._end_link_index, target, initial_qpos=current, active_qmask=self._ik_mask, max_iterations=100
        )
        arm = np.asarray(solution[:ARM_JOINTS], np.float32) if success else current[:ARM_JOINTS]
        joints = self._joints
        for joint, value in zip(joints, arm.tolist(), strict=False):
            joint.set_drive_target(value)
        joints[7].set_drive_target(finger)
        joints[8].set_drive_target(finger)
        step = self._physics_step
        for _ in range(self._substeps):
            step()

    def tcp_in_base(self) -> np.ndarray:
        """Tool position [3] float32, metres, robot base frame."""
        return self.in_base(self.tcp.entity_pose.p)

    def link_positions(self) -> np.ndarray:
        """Origins of the arm's links and the tool [n, 3] float32 in the base frame, base first."""
        links = [link for link in self.articulation.links if "panda_link" in link.name]
        points = [link.entity_pose.p for link in links] + [self.tcp.entity_pose.p]
        return self.in_base(np.asarray(points, np.float32))
