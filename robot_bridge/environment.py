"""A robot as an environment: one, exclusive, in real time.

A chunk's actions are executed at the control rate: each is a displacement of the *measured* tool position, passed
through the safety layer and sent as an absolute target. A thread watches the robot meanwhile and latches what it finds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from landbridge.config import option
from landbridge.contract import Contract, DeltaReference, Quantity, Segment, TensorSpec, Unit
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import FailedPrecondition, InvalidArgument, LandbridgeError, Unavailable
from robot_bridge.drivers.protocol import Driver, Judgement, Mode, RobotState, Target
from robot_bridge.limits import Limits, SafetyConfig
from robot_bridge.safety import ACTION_SIZE, Command, Refused, SafetyLayer, SafetyMode

STATE_SIZE = 24
_WATCH_PERIOD = 0.02
_CONTACT_LOST = 1.0
"""Seconds without any answer from the robot process after which it counts as lost."""
_LATE = 0.15
"""Seconds between an observation and its chunk above which the answer says so."""


@dataclass(frozen=True)
class RobotConfig:
    """What the environment is told about the task."""

    task: str = option("PickCube-v1", "name of the task")
    embodiment: str = option("panda", "name of the robot")
    instruction: str = option("pick up the cube and hold it at the goal", "what to do, in words")
    object_name: str = option("cube", "which object's reading is the observation's cube")
    control_rate_hz: float = option(20.0, "actions a second", minimum=1.0)
    action_limit: float = option(0.1, "largest displacement an action may ask for, m an axis", minimum=0.001)
    max_episode_steps: int = option(60, "control steps until an episode is truncated", minimum=1)
    terminate_on_success: bool = option(True, "an episode ends with the referee's success")
    speed: float = option(1.0, "of the robot's clock, for simulated cells; 1 is real time", minimum=0.1)
    safety: SafetyConfig = option(SafetyConfig())


def robot_contract(config: RobotConfig, max_width: float) -> Contract:
    """What a Panda cell measures and takes; the meanings are the training environment's."""
    q = Quantity
    layout = [
        ("qpos", 7, q.JOINT_POSITION, Unit.RADIAN, ""),
        ("qvel", 7, q.JOINT_VELOCITY, Unit.RADIAN_PER_SECOND, ""),
        ("tcp_position", 3, q.EE_POSITION, Unit.METRE, "base"),
        ("gripper_width", 1, q.GRIPPER, Unit.METRE, ""),
        ("cube_position", 3, q.OBJECT_POSITION, Unit.METRE, "base"),
        ("goal_position", 3, q.GOAL_POSITION, Unit.METRE, "base"),
    ]
    segments, start = [], 0
    for name, size, quantity, unit, frame in layout:
        closed, opened = (0.0, max_width) if quantity is q.GRIPPER else (None, None)
        segments.append(Segment(name, start, size, quantity, unit, frame, gripper_closed=closed, gripper_open=opened))
        start += size
    limit = config.action_limit
    displacement = Segment(
        "tcp_displacement", 0, 3, q.EE_POSITION_DELTA, Unit.METRE, "base", delta_reference=DeltaReference.MEASURED
    )
    width = Segment("gripper_width", 3, 1, q.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=max_width)
    return Contract(
        observation=(TensorSpec("state", (start,), segments=tuple(segments), description="What the robot measures."),),
        action=TensorSpec(
            "action",
            (ACTION_SIZE,),
            low=(-limit, -limit, -limit, 0.0),
            high=(limit, limit, limit, max_width),
            segments=(displacement, width),
        ),
        control_rate_hz=config.control_rate_hz,
        task=config.task,
        embodiment=config.embodiment,
        instruction=config.instruction,
        notes=("The tool's rotation is held; the robot's own controller interpolates towards a target.",),
    )


class RobotEnvironment:
    """See the module's docstring; the interface is :class:`landbridge.env.protocol.VectorBackend` with N = 1."""

    kind = "robot"
    num_envs = 1

    def __init__(
        self, driver: Driver, config: RobotConfig, *, auto_arm: bool = False, connect_timeout: float = 10.0
    ) -> None:
        """Connects. ``driver`` stays the maker's to close. ``auto_arm``: a reset arms a disarmed robot; cells only."""
        self._auto_arm = auto_arm
        self._driver = driver
        self._config = config
        self.name = f"{config.embodiment} cell, {config.task}"
        capabilities = driver.connect(connect_timeout)
        self.contract = robot_contract(config, capabilities.max_gripper_width)
        self.max_episode_steps = config.max_episode_steps
        self.layer = SafetyLayer(Limits.of(capabilities, config.safety), config.safety)
        self._period = 1.0 / config.control_rate_hz / config.speed
        self._halt = threading.Event()
        self._closed = threading.Event()
        self._running = False
        self._episode = 0
        self._steps = 0
        self._observed_at = time.monotonic()
        self._succeeded = False
        self.session_alive: Callable[[], bool] = lambda: True
        """Whether the session that armed the robot is still open; set by RobotService."""
        self._watcher = threading.Thread(target=self._watch, name="robot-watch", daemon=True)
        self._watcher.start()

    def arm(self, *, clear_stop: bool, clear_fault: bool) -> None:
        """Allow motion, in the layer and in the robot."""
        with self.layer.lock:
            self.layer.arm(clear_stop=clear_stop, clear_fault=clear_fault)
            try:
                state = self._driver.latest_state()
                if state.mode in (Mode.STOPPED, Mode.FAULT):
                    status = self._driver.clear(state.stop_generation)
                    self._driver.arm(status.stop_generation)
                elif state.mode is not Mode.ACTIVE:
                    self._driver.arm(state.stop_generation)
            except LandbridgeError as error:
                self.layer.fault(f"the robot could not be armed: {error.message}", time.monotonic())
                raise
            self._halt.clear()

    def emergency_stop(self, reason: str) -> None:
        """Latch first, then tell the robot: whatever the connection does, no further command leaves here."""
        self.layer.stop(reason, time.monotonic())
        self._halt.set()
        self._driver.stop(reason)

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        """Home the robot and have the scene of the seed laid out. Needs an armed robot."""
        if options:
            raise InvalidArgument(f"options {sorted(options)} are unknown; a robot's reset has none", field="options")
        if self._auto_arm and self.layer.mode is SafetyMode.DISARMED:
            self.arm(clear_stop=False, clear_fault=False)
        self._require_armed()
        self._running = False
        state = self._driver.latest_state()
        if state.mode is Mode.HOLD:  # between episodes nothing is commanded, and the robot's own watchdog holds it
            self._driver.arm(state.stop_generation)
        episode = self._driver.reset(int(seeds[0]), timeout=10.0)
        self._episode = episode.episode_id
        self._steps, self._succeeded = 0, False
        state = self._driver.latest_state()
        self._observed_at = time.monotonic()
        self._running = True
        return [ResetResult(self._observation(state))]

    def _require_armed(self) -> None:
        if self.layer.mode is not SafetyMode.ARMED:
            raise FailedPrecondition(
                f"the robot is {self.layer.mode.name} ({self.layer.reason or 'not armed yet'}); "
                "look at it, then call RobotService.Arm"
            )

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        """Execute ``actions`` [1, C, 4] in real time. Every step is judged where there is a referee.

        A refusal before the first action raises; later it ends the episode as abandoned. Either way the robot holds.
        """
        chunk = actions[0]
        generation, began = self.layer.generation, time.monotonic()
        waited = began - self._observed_at
        messages = [f"late: the chunk came {waited:.3f} s after its observation"] if waited > _LATE else []
        progress = _Progress(len(chunk))
        for action in chunk:
            try:
                state = self._usable_state()
                command = Command(action, self._episode, generation, self._observed_at)
                passed = self.layer.check(command, state, time.monotonic())
                self._send(passed.position, passed.gripper_width, state)
            except LandbridgeError as error:
                if progress.executed == 0:
                    self._end_badly(error)
                    raise
                return [self._abandoned(progress, messages, error)]
            messages += passed.changes
            progress.executed += 1
            if self._halt.wait(max(0.0, began + progress.executed * self._period - time.monotonic())):
                return [self._abandoned(progress, messages, Refused("emergency_stop", self.layer.reason))]
            self._steps += 1
            if self._judge(progress) or self._steps >= self.max_episode_steps:
                break
        return [self._result(progress, messages)]

    def _usable_state(self) -> RobotState:
        state = self._driver.latest_state()
        if state.mode is not Mode.ACTIVE:
            self._mirror(state)
            raise Refused("watchdog" if state.mode is Mode.HOLD else "driver", state.reason or state.mode.value)
        return state

    def _send(self, position: np.ndarray, width: float, state: RobotState) -> None:
        try:
            validity = self._config.safety.target_validity
            self._driver.send_target(Target(position, width, self._episode, state.stop_generation, validity))
        except LandbridgeError as error:
            self.layer.fault(error.message, time.monotonic())
            raise

    def _judge(self, progress: _Progress) -> bool:
        """Take the referee's reading of this moment; True when the episode is over."""
        judgement = self._judgement()
        if judgement is None:
            return False
        step = progress.executed - 1
        progress.evaluated[step] = True
        progress.success[step] = judgement.success
        self._succeeded |= judgement.success
        return judgement.success and self._config.terminate_on_success

    def _judgement(self) -> Judgement | None:
        judgement = self._driver.judgement()
        return judgement if judgement is not None and judgement.episode_id == self._episode else None

    def _result(self, progress: _Progress, messages: list[str]) -> ChunkResult:
        last = progress.executed - 1
        succeeded = bool(progress.success[last])
        terminated = succeeded and self._config.terminate_on_success
        truncated = not terminated and self._steps >= self.max_episode_steps
        state = self._driver.latest_state()
        self._running = not (terminated or truncated)
        self._observed_at = time.monotonic()
        return ChunkResult(
            observation=self._observation(state),
            rewards=progress.success.astype(np.float32),
            evaluated=progress.evaluated,
            executed=progress.executed,
            terminated=terminated,
            truncated=truncated,
            success=progress.success,
            success_once=self._succeeded,
            success_at_end=succeeded,
            episode_step=self._steps,
            message="; ".join(messages),
        )

    def _abandoned(self, progress: _Progress, messages: list[str], error: LandbridgeError) -> ChunkResult:
        self._end_badly(error)
        return ChunkResult(
            observation=self._observation(self._driver.latest_state()),
            rewards=np.zeros(progress.length, np.float32),
            evaluated=progress.evaluated,
            executed=progress.executed,
            abandoned=True,
            success=progress.success,
            success_once=self._succeeded,
            episode_step=self._steps,
            message="; ".join([*messages, error.message]),
        )

    def _end_badly(self, error: LandbridgeError) -> None:
        """Nothing more is sent; the robot's own watchdog brings it to rest, and its hold latches."""
        self._running = False
        if isinstance(error, Unavailable):
            self.layer.fault(error.message, time.monotonic())

    def _observation(self, state: RobotState) -> Observation:
        values = np.empty(STATE_SIZE, np.float32)
        values[0:7] = state.joint_position
        values[7:14] = state.joint_velocity
        values[14:17] = state.tool_position
        values[17] = state.gripper_width
        seen = state.objects.get(self._config.object_name)
        if seen is None or state.goal_position is None:
            raise FailedPrecondition(
                f"the robot reports {sorted(state.objects)}; an object {self._config.object_name!r} "
                "and a goal are needed"
            )
        values[18:21] = seen.position
        values[21:24] = state.goal_position
        return {"state": values}

    def _watch(self) -> None:
        """Latch what the robot or the clock says while an episode runs; disarm when the session that armed is gone."""
        while not self._closed.wait(_WATCH_PERIOD):
            if not self.session_alive():
                self.layer.disarm()
            now = time.monotonic()
            lasting = (SafetyMode.FAULT, SafetyMode.STOPPED)
            if self.layer.mode not in lasting and self._driver.contact_age() > _CONTACT_LOST:
                self.layer.fault("the robot process does not answer", now)
            if self._running and self.layer.mode is SafetyMode.ARMED:
                with contextlib.suppress(LandbridgeError):
                    self._mirror(self._driver.latest_state())

    def _mirror(self, state: RobotState) -> None:
        now = time.monotonic()
        if state.mode is Mode.FAULT:
            self.layer.fault(state.reason, now)
        elif state.mode is Mode.STOPPED:
            self.layer.stop(state.reason, now)
        elif state.mode is Mode.HOLD and self._steps:
            self.layer.hold("watchdog", state.reason or "the robot holds", now)
        elif state.age(now) > self._config.safety.max_state_age:
            self.layer.hold("freshness", f"the robot's newest measurement is {state.age(now):.3f} s old", now)

    def geometry(self) -> Judgement | None:
        """The referee's newest reading, for pictures."""
        return self._driver.judgement()

    def render(self, env_id: int) -> np.ndarray:
        """Not offered yet."""
        raise NotImplementedError("this robot has no camera")

    def save_state(self, env_id: int) -> bytes:
        """A robot cannot be set back."""
        raise NotImplementedError("a robot's state cannot be saved")

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        """A robot cannot be set back."""
        raise NotImplementedError("a robot's state cannot be restored")

    def close(self) -> None:
        """Leave the robot at rest."""
        self._closed.set()
        self._watcher.join(1.0)
        self.layer.disarm()
        with contextlib.suppress(LandbridgeError):
            self._driver.stop("the bridge is shutting down")


class _Progress:
    """Of one chunk."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.executed = 0
        self.evaluated = np.zeros(length, bool)
        self.success = np.zeros(length, bool)
