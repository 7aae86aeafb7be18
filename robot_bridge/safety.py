"""The safety layer: every command passes the checks in this order, and what they decide is recorded.

    finite → shape → session, episode and freshness → workspace → joints → velocity → (driver)

A check passes a command, limits it (what was asked and what is done are both recorded), or refuses it and holds the
robot. HOLD, STOPPED and FAULT latch: nothing but :meth:`SafetyLayer.arm` leaves them. Pure: no threads, no clock, no
I/O; time is passed in. The layer is shared by the executor and by whoever stops the robot, under one lock.
"""

from __future__ import annotations

import collections
import enum
import threading
from dataclasses import dataclass, field

import numpy as np

from landbridge.errors import FailedPrecondition
from robot_bridge.drivers.protocol import RobotState
from robot_bridge.limits import Limits, SafetyConfig

KEPT_DECISIONS = 64
ACTION_SIZE = 4
"""Displacement of the tool x y z (m, base frame) and opening width (m)."""
_SPEED_SLACK = 1.2
"""Measured speeds are noisy: the robot is held at this many times a limit."""


class SafetyMode(enum.Enum):
    """Values are ``SafetyMode`` of robot.proto."""

    DISARMED = 1
    ARMED = 2
    HOLD = 3
    STOPPED = 4
    FAULT = 5


class Refused(FailedPrecondition):
    """A command was not executed and the robot holds; ``check`` says which check it was."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}; the robot holds until it is armed again")
        self.check = check


@dataclass(frozen=True)
class Command:
    """One action, and what it was issued under."""

    action: np.ndarray
    """[4] physical units; untrusted."""
    episode_id: int
    generation: int
    """Stop generation the command was issued under."""
    observed_at: float
    """When the observation was handed out that the command was computed from."""


@dataclass(frozen=True)
class Passed:
    """What may be sent to the robot: an absolute tool position [3] m and a width m, and what was changed on the way."""

    position: np.ndarray
    gripper_width: float
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Recorded:
    """What a check did to a command."""

    check: str
    outcome: str
    """``limited``, ``refused``, ``hold``."""
    message: str
    asked: tuple[float, ...]
    done: tuple[float, ...]
    time: float


@dataclass
class SafetyLayer:
    """Mode, stop generation, decisions; the checks."""

    limits: Limits
    config: SafetyConfig
    mode: SafetyMode = SafetyMode.DISARMED
    reason: str = ""
    generation: int = 0
    recent: collections.deque[Recorded] = field(default_factory=lambda: collections.deque(maxlen=KEPT_DECISIONS))
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def arm(self, *, clear_stop: bool, clear_fault: bool) -> None:
        """Allow motion. FAILED_PRECONDITION says what stands against it; commands issued before stay void."""
        with self.lock:
            if self.mode is SafetyMode.STOPPED and not clear_stop:
                raise FailedPrecondition(
                    f"an emergency stop is in force ({self.reason}); look at the robot, then arm with clear_stop"
                )
            if self.mode is SafetyMode.FAULT and not clear_fault:
                raise FailedPrecondition(
                    f"a fault is in force ({self.reason}); put it right, then arm with clear_fault"
                )
            self.mode, self.reason = SafetyMode.ARMED, ""
            self.generation += 1

    def disarm(self) -> None:
        """No motion until armed; a stop or fault in force stays."""
        with self.lock:
            if self.mode in (SafetyMode.ARMED, SafetyMode.HOLD):
                self.mode, self.reason = SafetyMode.DISARMED, ""
                self.generation += 1

    def hold(self, check: str, message: str, now: float) -> None:
        """Latch HOLD; a stop or fault in force is not weakened."""
        self._latch(SafetyMode.HOLD, check, message, now, over=(SafetyMode.ARMED, SafetyMode.DISARMED))

    def stop(self, message: str, now: float) -> None:
        """Latch STOPPED: an emergency stop; never refused, and said last it is the one that counts."""
        self._latch(SafetyMode.STOPPED, "emergency_stop", message, now, over=tuple(SafetyMode))

    def fault(self, message: str, now: float) -> None:
        """Latch FAULT, unless an emergency stop is in force."""
        over = (SafetyMode.ARMED, SafetyMode.DISARMED, SafetyMode.HOLD)
        self._latch(SafetyMode.FAULT, "driver", message, now, over=over)

    def _latch(self, mode: SafetyMode, check: str, message: str, now: float, *, over: tuple[SafetyMode, ...]) -> None:
        with self.lock:
            self.generation += 1
            if self.mode in over:
                self.mode, self.reason = mode, f"{check}: {message}"
            self._record(check, "hold", message, (), (), now)

    def check(self, command: Command, state: RobotState, now: float) -> Passed:
        """All checks on one command, in order. Raises :class:`Refused` and holds where one refuses."""
        with self.lock:
            try:
                return self._check(command, state, now)
            except Refused as refusal:
                asked = tuple(np.ravel(command.action)[:16].astype(float).tolist())
                self._record(refusal.check, "refused", refusal.message, asked, (), now)
                self.hold(refusal.check, refusal.message, now)
                raise

    def _check(self, command: Command, state: RobotState, now: float) -> Passed:
        if self.mode is not SafetyMode.ARMED:
            raise Refused("session", f"the robot is {self.mode.name} ({self.reason or 'never armed'})")
        action = self._finite_and_shaped(command.action)
        self._fresh(command, state, now)
        changes: list[str] = []
        tool = state.tool_position
        target = self._within_workspace(tool + action[:3], changes, now)
        self._joints(state)
        target = self._velocity(tool, target, state, changes, now)
        width = float(np.clip(action[3], 0.0, self.limits.max_gripper_width))
        self.counts["command/passed"] += 1
        return Passed(target, width, tuple(changes))

    @staticmethod
    def _finite_and_shaped(action: np.ndarray) -> np.ndarray:
        values = np.asarray(action)
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise Refused("finite", f"a command must be finite numbers, {values.ravel()[:8].tolist()} came")
        if values.shape != (ACTION_SIZE,):
            raise Refused("shape", f"a command is [{ACTION_SIZE}], {list(values.shape)} came")
        return values.astype(np.float64)

    def _fresh(self, command: Command, state: RobotState, now: float) -> None:
        if command.generation != self.generation:
            raise Refused("freshness", "the command was issued before a stop, a hold or an arming")
        if command.episode_id != state.episode_id:
            raise Refused("freshness", f"a command of episode {command.episode_id}, this is {state.episode_id}")
        if (age := state.age(now)) > self.config.max_state_age:
            raise Refused("freshness", f"the robot's newest measurement is {age:.3f} s old")
        if (age := now - command.observed_at) > self.config.max_chunk_age:
            raise Refused("freshness", f"the command answers an observation of {age:.3f} s ago")

    def _within_workspace(self, target: np.ndarray, changes: list[str], now: float) -> np.ndarray:
        low, high = self.limits.workspace_low, self.limits.workspace_high
        inside = np.clip(target, low, high)
        outside = float(np.max(np.abs(target - inside)))
        if outside > self.config.workspace_slack:
            shown = ", ".join(f"{value:.4g}" for value in target)
            raise Refused("workspace", f"target [{shown}] lies {outside:.3g} m outside the workspace")
        if outside > 0:
            self._limit("workspace", f"brought back {outside:.4f} m into the workspace", target, inside, changes, now)
        return inside

    def _joints(self, state: RobotState) -> None:
        low, high = self.limits.joint_lower, self.limits.joint_upper
        beyond = (state.joint_position < low) | (state.joint_position > high)
        if beyond.any():
            joint = int(np.argmax(beyond))
            raise Refused(
                "joint",
                f"joint {joint + 1} at {state.joint_position[joint]:.3f} rad is outside "
                f"{low[joint]:.3f} … {high[joint]:.3f}",
            )

    def _velocity(
        self, tool: np.ndarray, target: np.ndarray, state: RobotState, changes: list[str], now: float
    ) -> np.ndarray:
        share = np.abs(state.joint_velocity) / self.limits.joint_max_velocity
        if (worst := float(share.max())) > _SPEED_SLACK:
            raise Refused("velocity", f"joint {int(share.argmax()) + 1} moves at {worst:.2f} times its limit")
        way = target - tool
        length = float(np.linalg.norm(way))
        if length <= self.limits.max_lead:
            return target
        shortened = tool + way * (self.limits.max_lead / length)
        self._limit("velocity", f"a way of {length:.3f} m shortened", target, shortened, changes, now)
        return shortened

    def _limit(
        self, check: str, message: str, asked: np.ndarray, done: np.ndarray, changes: list[str], now: float
    ) -> None:
        changes.append(f"{check}: {message}")
        self._record(check, "limited", message, tuple(asked.tolist()), tuple(done.tolist()), now)

    def _record(
        self, check: str, outcome: str, message: str, asked: tuple[float, ...], done: tuple[float, ...], now: float
    ) -> None:
        self.counts[f"{check}/{outcome}"] += 1
        self.recent.append(Recorded(check, outcome, message, asked, done, now))
