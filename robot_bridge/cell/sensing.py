"""What the cell's sensors say: late, and a little wrong."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from robot_bridge.cell.config import CellConfig


@dataclass(frozen=True)
class Reading:
    """One measurement; float64, base frame, SI units, rotations w x y z."""

    time: float
    """The simulation's own, when it was measured."""
    joint_position: np.ndarray
    joint_velocity: np.ndarray
    tool_position: np.ndarray
    tool_rotation: np.ndarray
    gripper_width: float
    cube_position: np.ndarray
    cube_rotation: np.ndarray
    goal_position: np.ndarray

    def policy_state(self) -> np.ndarray:
        """The task's ``state`` [24] float32: joints, their velocities, tool, width, cube, goal."""
        parts = (self.joint_position, self.joint_velocity, self.tool_position, [self.gripper_width])
        return np.concatenate([*parts, self.cube_position, self.goal_position]).astype(np.float32)


class Sensors:
    """Keeps the readings under way; what leaves it is ``observation_latency`` old."""

    def __init__(self, config: CellConfig) -> None:
        self._config = config
        self._under_way: deque[Reading] = deque()
        self.restart(np.random.default_rng(0))

    def restart(self, rng: np.random.Generator) -> None:
        """Forget everything; noise comes from ``rng`` from now on."""
        self._rng = rng
        self._bias = rng.normal(0.0, self._config.cube_bias, 3)
        self._under_way.clear()
        self._frame: tuple[float, np.ndarray, np.ndarray] | None = None

    def measure(self, truth: Reading) -> None:
        """Take a measurement of ``truth`` now."""
        rng, config = self._rng, self._config
        noise = rng.standard_normal(15)
        _, cube, rotation = self._camera(truth)
        self._under_way.append(
            replace(
                truth,
                joint_position=truth.joint_position + config.encoder_noise * noise[:7],
                joint_velocity=truth.joint_velocity + config.velocity_noise * noise[7:14],
                gripper_width=truth.gripper_width + config.encoder_noise / 10 * float(noise[14]),
                cube_position=cube,
                cube_rotation=rotation,
            )
        )

    def available(self, now: float) -> Reading:
        """The newest reading that has arrived by ``now``; of an episode that just began, its first."""
        arrived = now - self._config.observation_latency + 1e-9
        while len(self._under_way) > 1 and self._under_way[1].time <= arrived:
            self._under_way.popleft()
        return self._under_way[0]

    def _camera(self, truth: Reading) -> tuple[float, np.ndarray, np.ndarray]:
        if self._frame is None or truth.time - self._frame[0] >= 1.0 / self._config.camera_rate_hz - 1e-9:
            jitter = self._rng.normal(0.0, self._config.cube_jitter, 3)
            self._frame = (truth.time, truth.cube_position + self._bias + jitter, truth.cube_rotation)
        return self._frame
