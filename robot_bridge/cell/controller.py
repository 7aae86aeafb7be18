"""The cell's own controller: tool targets in, joint servo references out, at 250 Hz.

Unlike a simulator's it has a reference of its own: the tool's reference point approaches the target with bounded speed
and acceleration, joints follow by damped least squares on the *reference* posture, and the drives' impedance (see
``model.py``) does the rest. Where contact holds the tool back, the reference waits within reach of it.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from robot_bridge.cell.config import CellConfig
from robot_bridge.cell.model import ARM_JOINTS, HOME, JOINT_LOWER, JOINT_MAX_VELOCITY, JOINT_UPPER, MAX_WIDTH

PERIOD = 0.004
"""Seconds between ticks."""

_LEASH = 0.05
"""How far the reference may run ahead of the measured tool, m: bounds the force of a contact."""
_CORRECTION = 20.0
"""1/s: how fast the reference posture's own error (integration drift, rotation) is worked off."""
_DAMPING = 1e-3
"""Of the least squares: about the square of the smallest singular value still trusted."""
_POSTURE = 2.0
"""1/s: pull towards the home posture in the null space."""
_MARGIN = 0.01
"""rad: how far the reference posture keeps from the joints' limits."""
_STILL = 1e-3
"""m/s and m: below this the reference counts as arrived."""


class ToolController:
    """Keeps the reference; :meth:`tick` every ``PERIOD`` seconds."""

    def __init__(self, model: Any, config: CellConfig) -> None:
        self._model = model
        self._config = config
        self._posture = mujoco.MjData(model)  # kinematics of the reference posture; never stepped
        self._site = model.site("grip_site").id
        self._servo_gain = model.actuator_gainprm[:, 0].copy()
        self._servo_damping = -model.actuator_biasprm[:, 2].copy()
        self._jacobian = np.zeros((6, model.nv))
        self._rotation_error = np.zeros(3)
        self._quaternion = np.zeros((3, 4))
        self._low, self._high = np.array(config.workspace_low), np.array(config.workspace_high)
        self.restart()

    def restart(self) -> None:
        """Rest at home, hand open."""
        self._q = HOME.copy()
        self._qd = np.zeros(ARM_JOINTS)
        self._forward()
        self._home_rotation = self._rotation().copy()
        self._point = self._tool().copy()
        self._velocity = np.zeros(3)
        self._width = self._width_target = MAX_WIDTH
        self._target = self._point.copy()
        self._braking = False
        self._following = False

    def command(self, position: np.ndarray, width: float) -> bool:
        """Go there; False when the target lay outside the workspace or the gripper's range and was clamped."""
        if self._following:
            self._resume()
        self._braking = False
        self._target = np.clip(position, self._low, self._high)
        self._width_target = min(max(width, 0.0), MAX_WIDTH)
        return bool(np.array_equal(self._target, position)) and self._width_target == width

    def brake(self) -> None:
        """Decelerate along the present path and stay there; the gripper stops where it is but keeps its grip."""
        if self._following:
            self._resume()
        self._braking = True

    def arrived(self) -> bool:
        """Nothing moves on command any more."""
        distance = 0.0 if self._braking else float(np.linalg.norm(self._target - self._point))
        return distance < _STILL and float(np.linalg.norm(self._velocity)) < _STILL

    def tick(self, measured_tool: np.ndarray, ctrl: np.ndarray) -> None:
        """One period: writes servo references [9] into ``ctrl`` given the tool's measured position [3]."""
        self._advance_point(measured_tool)
        self._advance_posture()
        step = self._config.max_gripper_speed * PERIOD
        if not self._braking:
            self._width += min(max(self._width_target - self._width, -step), step)
        # Velocity feed-forward: cancels the drives' damping of the motion that is wanted.
        lead = self._servo_damping[:ARM_JOINTS] / self._servo_gain[:ARM_JOINTS]
        ctrl[:ARM_JOINTS] = self._q + lead * self._qd
        ctrl[ARM_JOINTS], ctrl[ARM_JOINTS + 1] = self._width / 2, -self._width / 2

    def follow(self, posture: np.ndarray, velocity: np.ndarray, width: float, ctrl: np.ndarray) -> None:
        """One period of a prescribed joint motion [7] (homing) in place of :meth:`tick`."""
        self._following = True
        self._q, self._qd, self._width = posture.copy(), velocity.copy(), width
        lead = self._servo_damping[:ARM_JOINTS] / self._servo_gain[:ARM_JOINTS]
        ctrl[:ARM_JOINTS] = self._q + lead * self._qd
        ctrl[ARM_JOINTS], ctrl[ARM_JOINTS + 1] = width / 2, -width / 2

    @property
    def reference(self) -> tuple[np.ndarray, float]:
        """Reference posture [7] rad and gripper width, m."""
        return self._q.copy(), self._width

    def _advance_point(self, measured: np.ndarray) -> None:
        config = self._config
        if self._braking:
            wanted = np.zeros(3)
        else:
            wanted = config.tracking_rate * (self._target - self._point)
            speed = float(np.linalg.norm(wanted))
            wanted *= min(1.0, config.max_speed / max(speed, 1e-9))
        change = wanted - self._velocity
        size = float(np.linalg.norm(change))
        self._velocity = self._velocity + change * min(1.0, config.max_acceleration * PERIOD / max(size, 1e-9))
        before = self._point
        ahead = before + self._velocity * PERIOD - measured
        length = float(np.linalg.norm(ahead))
        if length > _LEASH:
            ahead *= _LEASH / length
        self._point = np.clip(measured + ahead, self._low, self._high)
        self._velocity = (self._point - before) / PERIOD if length > _LEASH else self._velocity

    def _resume(self) -> None:
        """Take the tool's reference over from a prescribed joint motion, in position and velocity."""
        self._following = False
        self._forward()
        self._point = self._tool().copy()
        self._velocity = self._differentiate()[:3] @ self._qd
        self._target = self._point.copy()
        self._width_target = self._width

    def _differentiate(self) -> np.ndarray:
        """Jacobian [6, 7] of the reference tool: linear above angular."""
        mujoco.mj_jacSite(self._model, self._posture, self._jacobian[:3], self._jacobian[3:], self._site)
        return self._jacobian[:, :ARM_JOINTS]

    def _advance_posture(self) -> None:
        self._forward()
        jacobian = self._differentiate()
        twist = np.empty(6)
        twist[:3] = self._velocity + _CORRECTION * (self._point - self._tool())
        twist[3:] = _CORRECTION * self._turn_home()
        pull = _POSTURE * (HOME - self._q)
        # qd = J^T (J J^T + d I)^-1 (twist - J pull) + pull: least squares with the pull left over in the null space.
        qd = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + _DAMPING * np.eye(6), twist - jacobian @ pull) + pull
        qd /= max(1.0, float(np.max(np.abs(qd) / (0.85 * JOINT_MAX_VELOCITY))))
        new = np.clip(self._q + qd * PERIOD, JOINT_LOWER + _MARGIN, JOINT_UPPER - _MARGIN)
        self._qd = (new - self._q) / PERIOD
        self._q = new

    def _turn_home(self) -> np.ndarray:
        """Rotation vector [3], base frame, that turns the reference tool back to its rotation at home."""
        now, home, back = self._quaternion
        mujoco.mju_mat2Quat(now, self._rotation())
        mujoco.mju_negQuat(back, now)
        mujoco.mju_mat2Quat(home, self._home_rotation)
        mujoco.mju_mulQuat(now, home, back)
        mujoco.mju_quat2Vel(self._rotation_error, now, 1.0)
        return self._rotation_error

    def _forward(self) -> None:
        self._posture.qpos[:ARM_JOINTS] = self._q
        mujoco.mj_kinematics(self._model, self._posture)
        mujoco.mj_comPos(self._model, self._posture)

    def _tool(self) -> np.ndarray:
        position: np.ndarray = self._posture.site_xpos[self._site]
        return position

    def _rotation(self) -> np.ndarray:
        rotation: np.ndarray = self._posture.site_xmat[self._site]
        return rotation
