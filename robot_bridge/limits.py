"""Limits a command is held against: the robot's own and those chosen for this installation, whichever is tighter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from landbridge.config import option
from landbridge.errors import FailedPrecondition
from robot_bridge.drivers.protocol import Capabilities


@dataclass(frozen=True)
class SafetyConfig:
    """What may be chosen about the safety layer. Metres, seconds, radians."""

    workspace_low: tuple[float, float, float] = option((0.30, -0.40, 0.010), "the tool stays inside this box …")
    workspace_high: tuple[float, float, float] = option((0.75, 0.40, 0.60), "… of the base frame, m")
    workspace_slack: float = option(
        0.10, "a target this far outside the box is brought back to it; farther out it is refused", minimum=0.0
    )
    joint_margin: float = option(0.02, "joints stay this far from their limits, rad", minimum=0.0)
    max_tool_speed: float = option(1.0, "of the tool, m/s; measured speed above it holds the robot", minimum=0.01)
    lead_time: float = option(
        0.2,
        "a target lies at most max_tool_speed times this ahead of the tool; longer ways are shortened",
        minimum=0.01,
    )
    max_state_age: float = option(0.15, "an older measurement of the robot holds it", minimum=0.01)
    max_chunk_age: float = option(1.0, "a chunk computed from an older observation holds the robot", minimum=0.01)
    target_validity: float = option(0.1, "a target not started on after this is void", minimum=0.01)


@dataclass(frozen=True)
class Limits:
    """The tighter of capabilities and configuration. Arrays are float64."""

    workspace_low: np.ndarray
    workspace_high: np.ndarray
    joint_lower: np.ndarray
    joint_upper: np.ndarray
    joint_max_velocity: np.ndarray
    max_tool_speed: float
    max_lead: float
    """m: how far a target may lie ahead of the measured tool."""
    max_gripper_width: float

    @staticmethod
    def of(capabilities: Capabilities, config: SafetyConfig) -> Limits:
        """FAILED_PRECONDITION where nothing would be left to move in."""
        low = np.maximum(capabilities.workspace_low, config.workspace_low)
        high = np.minimum(capabilities.workspace_high, config.workspace_high)
        if np.any(low >= high):
            raise FailedPrecondition(
                f"no workspace is left: the robot's is {capabilities.workspace_low.tolist()} to "
                f"{capabilities.workspace_high.tolist()}, the configured one {list(config.workspace_low)} to "
                f"{list(config.workspace_high)}"
            )
        speed = min(capabilities.max_tool_speed, config.max_tool_speed)
        return Limits(
            workspace_low=low,
            workspace_high=high,
            joint_lower=capabilities.joint_lower + config.joint_margin,
            joint_upper=capabilities.joint_upper - config.joint_margin,
            joint_max_velocity=capabilities.joint_max_velocity,
            max_tool_speed=speed,
            max_lead=speed * config.lead_time,
            max_gripper_width=capabilities.max_gripper_width,
        )
