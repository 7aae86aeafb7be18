"""The cell without a clock: physics, controller, latency and noise in virtual time.

The real-time process (``process.py``) advances it along the wall clock; research and tests advance it as fast as they
like. Same seeds and the same commands at the same times give the same episode, bit by bit.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from robot_bridge.cell.config import CellConfig
from robot_bridge.cell.controller import PERIOD, ToolController
from robot_bridge.cell.model import (
    ARM_JOINTS,
    CUBE_HALF_SIZE,
    HOME,
    JOINT_MAX_VELOCITY,
    MAX_WIDTH,
    TIMESTEP,
    build_model,
)
from robot_bridge.cell.sensing import Reading, Sensors

GOAL_RADIUS = 0.025
STATIC_SPEED = 0.2
"""rad/s: with every joint below it the robot counts as static."""
_CENTRE = np.array([0.615, 0.0])
_SPREAD, _GOAL_HEIGHT = 0.1, 0.3
_JUDGE_PERIOD = 0.05
"""Success is judged at the task's control rate, as in training."""
_TOLERANCE = 0.01
"""m: how far the tool may overshoot the workspace before it counts as outside."""
_SUBSTEPS = round(PERIOD / TIMESTEP)
_LINKS = ("link0", "link1", "link2", "link3", "link4", "link5", "link6", "link7", "right_hand")


@dataclass(frozen=True)
class Verdict:
    """The referee's view, from true poses: never an input of a policy."""

    elapsed: float
    success: bool
    success_once: bool
    grasped: bool
    distance: float
    skeleton: np.ndarray
    """[10, 3] origins of link0 … link7, the hand and the tool point, base frame."""
    cube_position: np.ndarray
    cube_rotation: np.ndarray
    goal_position: np.ndarray
    gripper_width: float


class CellSimulation:
    """One Panda, one cube, one goal. Not thread-safe."""

    def __init__(self, config: CellConfig | None = None, seed: int = 0) -> None:
        """``seed`` is this cell's own: with another, the same episode seeds lay out other scenes."""
        self.config = config or CellConfig()
        self._seed = seed
        self._model = build_model()
        self._data = mujoco.MjData(self._model)
        self._controller = ToolController(self._model, self.config)
        self._sensors = Sensors(self.config)
        self._site = self._model.site("grip_site").id
        self._cube_q = self._model.joint("cube").qposadr[0]
        self._cube = self._model.body("cube").id
        self._pads = [self._model.geom(f"finger{side}_pad_collision").id for side in (1, 2)]
        self._cube_geom = self._model.geom("cube").id
        self._skeleton = [self._model.body(name).id for name in _LINKS]
        self._low = np.array(self.config.workspace_low) - _TOLERANCE
        self._high = np.array(self.config.workspace_high) + _TOLERANCE
        self._commands: deque[tuple[float, np.ndarray, float]] = deque()
        self._ticks = 0
        self.counters: Counter[str] = Counter()
        """Limits exceeded, by the cell's own measure, since construction."""
        self.extremes: dict[str, float] = {"joint_velocity": 0.0, "tool_speed": 0.0}
        """Largest share of a joint's velocity limit, and tool speed in m/s, seen since construction."""
        self.reset(0)

    @property
    def time(self) -> float:
        """Virtual seconds since construction; a reset does not turn it back."""
        return self._ticks * PERIOD

    def reset(self, seed: int) -> Reading:
        """Everything at home and the scene of ``seed`` laid out, at once; the first reading of the episode."""
        scene, noise = (np.random.default_rng(s) for s in np.random.SeedSequence([self._seed, seed]).spawn(2))
        self._goal = np.zeros(3)
        cube = np.array([*(_CENTRE + scene.uniform(-_SPREAD, _SPREAD, 2)), CUBE_HALF_SIZE])
        yaw = scene.uniform(0.0, 2 * np.pi)
        self._goal[:2] = _CENTRE + scene.uniform(-_SPREAD, _SPREAD, 2)
        self._goal[2] = CUBE_HALF_SIZE + scene.uniform(0.0, _GOAL_HEIGHT)
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:ARM_JOINTS] = HOME
        self._data.qpos[ARM_JOINTS : ARM_JOINTS + 2] = MAX_WIDTH / 2, -MAX_WIDTH / 2
        at = self._cube_q
        self._data.qpos[at : at + 3] = cube
        self._data.qpos[at + 3 : at + 7] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        self._controller.restart()
        self._data.ctrl[:] = self._data.qpos[: ARM_JOINTS + 2]
        mujoco.mj_forward(self._model, self._data)
        self._commands.clear()
        self._began: float | None = None
        self._success_once = False
        self._success = False
        self._judged = 0
        self._tool_before = self._data.site_xpos[self._site].copy()
        self._sensors.restart(noise)
        self._sensors.measure(self._truth())
        return self.observe()

    def observe(self) -> Reading:
        """The newest reading that has arrived: ``observation_latency`` old and noisy."""
        return self._sensors.available(self.time)

    def command(self, position: np.ndarray, width: float) -> bool:
        """Send the tool to ``position`` [3] m and the gripper to ``width`` m, after ``command_latency``.

        False, and nothing happens, where a number is not finite. Outside the workspace it is clamped, and counted.
        """
        position = np.array(position, np.float64)
        if not (np.isfinite(position).all() and np.isfinite(width)):
            self.counters["target_not_finite"] += 1
            return False
        if self._began is None:
            self._began = self.time
        self._commands.append((self.time + self.config.command_latency, position, float(width)))
        return True

    def brake(self) -> None:
        """Decelerate and hold; commands under way are void."""
        self._commands.clear()
        self._controller.brake()

    def moving(self) -> bool:
        """Whether the tool is still on its way on command, or a command is under way to it."""
        return bool(self._commands) or not self._controller.arrived()

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, rounded to whole control periods of 4 ms (never fewer than one)."""
        for _ in range(max(1, round(seconds / PERIOD))):
            self._deliver()
            self._controller.tick(self._data.site_xpos[self._site], self._data.ctrl)
            self._step()

    def home(self, share: float, start: tuple[np.ndarray, float]) -> None:
        """One control period of a motion home from ``start`` (:meth:`posture`), ``share`` in 0 … 1 of the way done."""
        smooth = share * share * (3 - 2 * share)
        posture = start[0] + smooth * (HOME - start[0])
        velocity = (posture - self._controller.reference[0]) / PERIOD
        self._controller.follow(posture, velocity, start[1] + smooth * (MAX_WIDTH - start[1]), self._data.ctrl)
        self._step()

    def posture(self) -> tuple[np.ndarray, float]:
        """Reference joint positions [7] and gripper width: where a motion home starts."""
        self._commands.clear()
        return self._controller.reference

    def sound(self) -> bool:
        """False when the physics diverged in this episode; MuJoCo has then reset it to its own idea of a start."""
        bad = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)
        return not any(self._data.warning[kind].number for kind in bad)

    def verdict(self) -> Verdict:
        """The referee's view, now."""
        data = self._data
        return Verdict(
            elapsed=0.0 if self._began is None else self.time - self._began,
            success=self._success,
            success_once=self._success_once,
            grasped=self._grasped(),
            distance=float(np.linalg.norm(data.xpos[self._cube] - self._goal)),
            skeleton=np.concatenate([data.xpos[self._skeleton], data.site_xpos[[self._site]]]),
            cube_position=data.xpos[self._cube].copy(),
            cube_rotation=data.xquat[self._cube].copy(),
            goal_position=self._goal.copy(),
            gripper_width=self._width(),
        )

    def _deliver(self) -> None:
        while self._commands and self._commands[0][0] <= self.time + 1e-9:
            _, position, width = self._commands.popleft()
            if not self._controller.command(position, width):
                self.counters["target_clamped"] += 1

    def _step(self) -> None:
        mujoco.mj_step(self._model, self._data, nstep=_SUBSTEPS)
        mujoco.mj_kinematics(self._model, self._data)  # poses at the new time, not one step behind
        self._ticks += 1
        self._sensors.measure(self._truth())
        self._watch()
        self._judge()

    def _watch(self) -> None:
        share = float(np.max(np.abs(self._data.qvel[:ARM_JOINTS]) / JOINT_MAX_VELOCITY))
        tool = self._data.site_xpos[self._site]
        speed = float(np.linalg.norm(tool - self._tool_before)) / PERIOD
        self._tool_before = tool.copy()
        self.extremes["joint_velocity"] = max(self.extremes["joint_velocity"], share)
        self.extremes["tool_speed"] = max(self.extremes["tool_speed"], speed)
        self.counters["joint_velocity_exceeded"] += share > 1.0
        self.counters["tool_outside_workspace"] += bool((tool < self._low).any() or (tool > self._high).any())

    def _judge(self) -> None:
        if self._began is None or self.time - self._began < (self._judged + 1) * _JUDGE_PERIOD - 1e-9:
            return
        self._judged += 1
        near = np.linalg.norm(self._data.xpos[self._cube] - self._goal) <= GOAL_RADIUS
        static = np.max(np.abs(self._data.qvel[:ARM_JOINTS])) <= STATIC_SPEED
        self._success = bool(near and static)
        self._success_once = self._success_once or self._success

    def _grasped(self) -> bool:
        pairs = self._data.contact.geom
        touching = pairs[(pairs == self._cube_geom).any(axis=1)]
        return all(pad in touching for pad in self._pads)

    def _width(self) -> float:
        return float(self._data.qpos[ARM_JOINTS] - self._data.qpos[ARM_JOINTS + 1])

    def _truth(self) -> Reading:
        data: Any = self._data
        rotation = np.empty(4)
        mujoco.mju_mat2Quat(rotation, data.site_xmat[self._site])
        return Reading(
            time=self.time,
            joint_position=data.qpos[:ARM_JOINTS].copy(),
            joint_velocity=data.qvel[:ARM_JOINTS].copy(),
            tool_position=data.site_xpos[self._site].copy(),
            tool_rotation=rotation,
            gripper_width=self._width(),
            cube_position=data.xpos[self._cube].copy(),
            cube_rotation=data.xquat[self._cube].copy(),
            goal_position=self._goal,
        )
