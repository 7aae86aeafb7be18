"""What the bridge needs from a robot, whatever it is and however it is connected.

A driver carries; it decides nothing. Limits, freshness and interpolation are the safety layer's and the executor's.
Units are SI, positions are in the robot's base frame, rotations are quaternions w x y z, and every local time is
``time.monotonic()`` of this machine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Mode(enum.Enum):
    """What the robot is doing; see ``robot_link.proto`` for the transitions."""

    IDLE = "idle"
    ACTIVE = "active"
    """The only mode in which targets move the robot."""
    HOLD = "hold"
    HOMING = "homing"
    STOPPED = "stopped"
    FAULT = "fault"


@dataclass(frozen=True)
class Capabilities:
    """What the robot said of itself when it was connected. Arrays [J] follow ``joint_names``; float64."""

    robot: str
    boot_id: str
    """Differs after every restart of the robot process."""
    joint_names: tuple[str, ...]
    joint_lower: np.ndarray
    joint_upper: np.ndarray
    joint_max_velocity: np.ndarray
    workspace_low: np.ndarray
    """[3]"""
    workspace_high: np.ndarray
    max_tool_speed: float
    max_tool_acceleration: float
    max_gripper_width: float
    """Open; 0 is closed. Sum of both fingers."""
    max_gripper_speed: float
    state_rate_hz: float
    max_command_rate_hz: float
    watchdog: float
    """Seconds without a target after which the moving robot holds, latched."""
    frame: str
    command_kinds: tuple[str, ...]
    """``tool_position``: :class:`Target`."""
    objects: tuple[str, ...]
    cameras: tuple[str, ...]


@dataclass(frozen=True)
class ObjectPose:
    """A reading of an object: position [3], rotation [4] (w x y z)."""

    position: np.ndarray
    rotation: np.ndarray


@dataclass(frozen=True)
class RobotState:
    """One measurement. Arrays are float64 and read-only."""

    sequence: int
    measured_at: float
    """Local time of the measurement, as well as the two clocks are known to agree."""
    received_at: float
    mode: Mode
    reason: str
    """Why the mode is what it is; empty in IDLE and ACTIVE."""
    stop_generation: int
    episode_id: int
    joint_position: np.ndarray
    """[J] rad"""
    joint_velocity: np.ndarray
    """[J] rad/s"""
    tool_position: np.ndarray
    """[3] m"""
    tool_rotation: np.ndarray
    """[4] w x y z"""
    gripper_width: float
    objects: Mapping[str, ObjectPose]
    goal_position: np.ndarray | None
    """[3]; None before the first episode."""
    target_sequence: int
    """The last target the robot accepted."""
    targets_dropped: int

    def age(self, now: float) -> float:
        """Seconds since this was measured. Grows without end when nothing newer comes."""
        return now - self.measured_at


@dataclass(frozen=True)
class Target:
    """A tool position and a gripper width to move to, and what it was issued under."""

    position: np.ndarray
    """[3] m"""
    gripper_width: float
    episode_id: int
    stop_generation: int
    valid_for: float = 0.1
    """Seconds from sending after which the robot must not start on it any more."""


@dataclass(frozen=True)
class Episode:
    """A scene laid out: what ``reset`` answers."""

    episode_id: int
    goal_position: np.ndarray
    stop_generation: int
    took: float


@dataclass(frozen=True)
class Judgement:
    """A referee's reading from true poses: for scores and pictures, never for a policy."""

    episode_id: int
    received_at: float
    elapsed: float
    success: bool
    success_once: bool
    grasped: bool
    distance: float
    """Cube to goal, m."""
    skeleton: np.ndarray
    """[L, 3] origins of the arm's links, then the tool point."""
    cube_position: np.ndarray
    cube_rotation: np.ndarray
    goal_position: np.ndarray
    gripper_width: float


@dataclass(frozen=True)
class Audit:
    """The robot process's own account since its start: what it accepted, dropped, and saw exceed a limit."""

    counters: Mapping[str, int]
    extremes: Mapping[str, float]


@dataclass(frozen=True)
class Status:
    """Mode, stop generation and episode as a request left them."""

    mode: Mode
    stop_generation: int
    episode_id: int
    reason: str


class Driver(Protocol):
    """One robot. Thread-safe: the executor streams targets while another thread stops the robot.

    Requests raise :class:`landbridge.errors.LandbridgeError`: DEADLINE_EXCEEDED when no answer came in ``timeout``
    seconds (the request may have been carried out), FAILED_PRECONDITION when the robot's mode forbids it, NOT_FOUND
    when the session has ended (connect again), UNAVAILABLE when not connected.
    """

    def connect(self, timeout: float) -> Capabilities:
        """Take the robot and wait for its first state. Connecting again drops the old session and what it had queued.

        RESOURCE_EXHAUSTED while another client holds it.
        """
        ...

    @property
    def capabilities(self) -> Capabilities:
        """As of the last ``connect``."""
        ...

    def latest_state(self) -> RobotState:
        """The newest measurement, never waiting; look at its age. UNAVAILABLE when there has been none."""
        ...

    def wait_state(self, after: int, timeout: float) -> RobotState:
        """The newest measurement with a sequence above ``after``; DEADLINE_EXCEEDED when none comes."""
        ...

    def contact_age(self) -> float:
        """Seconds since the robot last answered anything on the command channel; infinite when never."""
        ...

    def arm(self, stop_generation: int, timeout: float = 1.0) -> Status:
        """Allow motion; refused when there was a stop since ``stop_generation``."""
        ...

    def reset(self, seed: int, timeout: float = 3.0) -> Episode:
        """Home the robot and lay out the scene of ``seed``; returns when done. Targets of older episodes are void."""
        ...

    def send_target(self, target: Target) -> int:
        """Send and forget; returns the target's sequence number. UNAVAILABLE when it cannot be sent at once."""
        ...

    def stop(self, reason: str, timeout: float = 0.5) -> Status:
        """Stop now, ahead of everything queued; returns when the robot says that it is stopping."""
        ...

    def clear(self, stop_generation: int, timeout: float = 1.0) -> Status:
        """Leave STOPPED or FAULT for IDLE; refused when there was another stop since ``stop_generation``."""
        ...

    def judgement(self) -> Judgement | None:
        """The referee's newest reading; None where there is none."""
        ...

    def audit(self, timeout: float = 1.0) -> Audit:
        """The robot's own account."""
        ...

    def close(self) -> None:
        """Give the robot back and free everything; bounded in time. Closing twice is not an error."""
        ...
