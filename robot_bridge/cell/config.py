"""What can be chosen about the cell. Defaults are a plausible lab robot beside a depth camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from landbridge.config import option


@dataclass(frozen=True)
class CellConfig:
    """Physics, controller and sensors. Seconds, metres, radians."""

    observation_latency: float = option(0.025, "seconds from measuring to the reading being available", minimum=0.0)
    command_latency: float = option(
        0.020, "seconds from a target's arrival to the controller acting on it", minimum=0.0
    )
    cube_bias: float = option(
        0.0015, "std an axis of the cube reading's offset, constant in an episode (calibration), m", minimum=0.0
    )
    cube_jitter: float = option(0.0005, "std an axis of each camera frame's own error, m", minimum=0.0)
    camera_rate_hz: float = option(60.0, "the cube's reading changes this often", minimum=1.0)
    encoder_noise: float = option(
        0.0002, "std of joint positions read, rad; a tenth of it of the width, m", minimum=0.0
    )
    velocity_noise: float = option(0.005, "std of joint velocities read, rad/s", minimum=0.0)

    tracking_rate: float = option(14.0, "speed towards a target per metre of distance to it, 1/s", minimum=0.1)
    max_speed: float = option(0.7, "of the tool's reference, m/s", minimum=0.01)
    max_acceleration: float = option(8.0, "of the tool's reference, m/s^2; also how it brakes", minimum=0.1)
    max_gripper_speed: float = option(0.3, "of the opening width, m/s", minimum=0.01)

    workspace_low: tuple[float, float, float] = option((0.30, -0.40, 0.010), "the tool is commanded inside this box")
    workspace_high: tuple[float, float, float] = option((0.75, 0.40, 0.60), "x y z in the base frame, m")

    @staticmethod
    def ideal() -> CellConfig:
        """No latency, no noise: for tests of one thing at a time."""
        return CellConfig(
            observation_latency=0.0,
            command_latency=0.0,
            cube_bias=0.0,
            cube_jitter=0.0,
            camera_rate_hz=1000.0,
            encoder_noise=0.0,
            velocity_noise=0.0,
        )


@dataclass(frozen=True)
class LinkConfig:
    """How the robot process behaves towards its client. Seconds of the wall clock."""

    state_rate_hz: float = option(100.0, "state messages a second", minimum=1.0, maximum=250.0)
    watchdog: float = option(0.25, "seconds without a target after which a moving robot holds", minimum=0.02)
    lease: float = option(2.0, "seconds without a command after which a session is lost", minimum=0.1)
    homing: Literal["motion", "instant"] = option("motion", "how a reset gets the robot home")


@dataclass(frozen=True)
class ProcessConfig:
    """``python -m robot_bridge.cell``."""

    command_endpoint: str = option("tcp://127.0.0.1:*", "ZeroMQ address of the command socket; * is a free port")
    state_endpoint: str = option("tcp://127.0.0.1:*", "ZeroMQ address of the state socket")
    seed: int = option(0, "this cell's own: with another, the same episode seeds lay out other scenes", minimum=0)
    speed: float = option(1.0, "virtual seconds a wall-clock second", minimum=0.01)
    cell: CellConfig = option(CellConfig())
    link: LinkConfig = option(LinkConfig())
