"""What can be chosen about the cell. Defaults are a plausible lab robot beside a depth camera."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CellConfig:
    """Seconds, metres, radians. ``CellConfig.ideal()`` has neither latency nor noise."""

    observation_latency: float = 0.025
    """From measuring to the reading being available."""
    command_latency: float = 0.020
    """From a target's arrival to the controller acting on it."""
    cube_bias: float = 0.0015
    """Standard deviation an axis of the offset of the cube's readings that is constant within an episode
    (calibration). A little over 2 mm in all."""
    cube_jitter: float = 0.0005
    """Standard deviation an axis of each camera frame's own error."""
    camera_rate_hz: float = 60.0
    """The cube's reading changes this often."""
    encoder_noise: float = 0.0002
    """Standard deviation of joint positions read, rad; also of the gripper's width / 10, m."""
    velocity_noise: float = 0.005
    """Standard deviation of joint velocities read, rad/s."""

    tracking_rate: float = 14.0
    """1/s: speed towards a target per metre of distance to it."""
    max_speed: float = 0.7
    """Of the tool, m/s."""
    max_acceleration: float = 8.0
    """Of the tool, m/s^2; also how it brakes."""
    max_gripper_speed: float = 0.3
    """Of the opening width, m/s."""

    workspace_low: tuple[float, float, float] = (0.30, -0.40, 0.010)
    workspace_high: tuple[float, float, float] = (0.75, 0.40, 0.60)
    """The tool point is not commanded outside this box, base frame."""

    @staticmethod
    def ideal() -> CellConfig:
        """No latency, no noise: for tests of one thing at a time."""
        return CellConfig(0.0, 0.0, 0.0, 0.0, 1000.0, 0.0, 0.0)
