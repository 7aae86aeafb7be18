"""The robot's side of the link (``robot_link.proto``) as a state machine: no sockets, no clock of its own.

:mod:`robot_bridge.cell.process` feeds it commands and ticks and sends what it returns.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from landbridge.errors import (
    Aborted,
    FailedPrecondition,
    InvalidArgument,
    LandbridgeError,
    NotFound,
    ResourceExhausted,
)
from landbridge.v1 import robot_link_pb2 as pb
from robot_bridge.cell import messages
from robot_bridge.cell.config import LinkConfig
from robot_bridge.cell.controller import PERIOD
from robot_bridge.cell.model import HOME, JOINT_MAX_VELOCITY
from robot_bridge.cell.simulation import CellSimulation

PROTOCOL_VERSION = 1

_HOMING_TIME = (0.3, 1.2)
"""Shortest and longest motion home, seconds of the simulation."""
_HOMING_SPEED = 0.7
"""Share of the joint velocity limits a motion home uses."""

Reply = tuple[bytes, pb.LinkReply]
"""To whom (ROUTER identity), and what."""


@dataclass
class _Session:
    id: str
    heard: float
    target_sequence: int = 0


@dataclass
class _Homing:
    seed: int
    client: bytes
    request_id: int
    began: float
    start: tuple[np.ndarray, float]
    ticks: int
    done: int = 0


class RobotLink:
    """Modes, session, stop generations, episodes, watchdog. ``now`` is robot time everywhere: monotonic seconds."""

    def __init__(self, simulation: CellSimulation, config: LinkConfig) -> None:
        self._sim = simulation
        self._config = config
        self.boot_id = secrets.token_hex(8)
        self.mode = pb.ROBOT_MODE_IDLE
        self.reason = ""
        self.stop_generation = 0
        self.episode_id = 0
        self._session: _Session | None = None
        self._homing: _Homing | None = None
        self._last_target = -math.inf
        self._sequence = 0
        self._outbox: list[Reply] = []
        self.counters: Counter[str] = Counter()
        simulation.brake()

    def handle(self, client: bytes, data: bytes, now: float) -> None:
        """Act on one message; what there is to answer is in :meth:`replies`."""
        try:
            command = pb.LinkCommand.FromString(data)
        except Exception:  # protobuf's DecodeError; nothing in it can be answered
            self.counters["malformed"] += 1
            return
        kind = command.WhichOneof("command")
        if kind == "target":
            self._take_target(command, now)
            return
        reply = pb.LinkReply(request_id=command.request_id)
        try:
            if kind is None:
                raise InvalidArgument(f"command {command.request_id}: none of the commands of protocol 1 is set")
            if kind not in ("hello", "stop"):
                self._require_session(command.session_id, now)
            answered = self._dispatch[kind](self, client, command, reply, now)
        except LandbridgeError as error:
            answered = True
            reply.error.code = error.code.value[0]
            reply.error.message = str(error)
            reply.error.retry_after = error.retry_after or 0.0
        if answered:
            self._outbox.append((client, reply))

    def replies(self) -> list[Reply]:
        """What is to be sent, once."""
        out, self._outbox = self._outbox, []
        return out

    def tick(self, now: float) -> None:
        """One control period of the cell, after the checks that need no message."""
        self._watch(now)
        if self._homing is not None:
            self._step_home(now)
        else:
            self._sim.advance(PERIOD)
        if not self._sim.sound():
            self._raise_stop(pb.ROBOT_MODE_FAULT, "the physics diverged; the cell was laid out anew")
            self._sim.reset(0)
            self._sim.brake()

    def state(self, now: float, speed: float) -> pb.LinkState:
        """The next ``state`` message; ``speed`` relates the simulation's time to robot time."""
        self._sequence += 1
        reading = self._sim.observe()
        message = messages.state(reading)
        message.boot_id = self.boot_id
        message.sequence = self._sequence
        message.robot_time = now - (self._sim.time - reading.time) / speed
        message.status.CopyFrom(self.status())
        message.target_sequence = self._session.target_sequence if self._session else 0
        message.targets_dropped = sum(n for name, n in self.counters.items() if name.startswith("target_dropped"))
        if self.episode_id == 0:
            del message.goal_position[:]
        return message

    def judgement(self, now: float) -> pb.LinkJudgement:
        """The next ``judge`` message."""
        message = messages.judgement(self._sim.verdict())
        message.boot_id, message.episode_id, message.robot_time = self.boot_id, self.episode_id, now
        return message

    def status(self) -> pb.LinkStatus:
        """Mode, generation and episode, now."""
        return pb.LinkStatus(
            mode=self.mode, stop_generation=self.stop_generation, episode_id=self.episode_id, reason=self.reason
        )

    # Requests: each fills `reply` and says whether to send it now.

    def _hello(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        version = command.hello.protocol_version
        if version != PROTOCOL_VERSION:
            raise InvalidArgument(f"hello: protocol version {version} asked for, {PROTOCOL_VERSION} is spoken here")
        if self._session is not None:
            left = self._session.heard + self._config.lease - now
            raise ResourceExhausted(
                f"hello: another client holds the robot; its lease ends {left:.1f} s after its last command",
                retry_after=max(left, 0.1),
            )
        self._session = _Session(secrets.token_hex(8), now)
        reply.hello.session_id = self._session.id
        reply.hello.lease = self._config.lease
        reply.hello.capabilities.CopyFrom(messages.capabilities(self._sim.config, self._config, self.boot_id))
        reply.hello.status.CopyFrom(self.status())
        return True

    def _time_sync(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        reply.time_sync.robot_time = now
        return True

    def _arm(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        self._require_generation("arm", command.arm.stop_generation)
        if self.mode not in (pb.ROBOT_MODE_IDLE, pb.ROBOT_MODE_HOLD, pb.ROBOT_MODE_ACTIVE):
            raise FailedPrecondition(
                f"arm: the robot is in {self._mode_name()} ({self.reason}); IDLE or HOLD is needed"
            )
        self._enter(pb.ROBOT_MODE_ACTIVE)
        reply.status.CopyFrom(self.status())
        return True

    def _reset(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        if self.mode != pb.ROBOT_MODE_ACTIVE:
            raise FailedPrecondition(f"reset: the robot is in {self._mode_name()} ({self.reason}); arm it first")
        start = self._sim.posture()
        share = float(np.max(np.abs(start[0] - HOME) / JOINT_MAX_VELOCITY))
        # Smoothstep peaks at 1.5 times its mean speed.
        shortest, longest = _HOMING_TIME
        seconds = 0.0 if self._config.homing == "instant" else min(max(1.5 * share / _HOMING_SPEED, shortest), longest)
        ticks = round(seconds / PERIOD)
        self._enter(pb.ROBOT_MODE_HOMING, "moving home for a reset")
        self._homing = _Homing(command.reset.seed, client, command.request_id, now, start, ticks)
        return False

    def _stop(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        self._raise_stop(pb.ROBOT_MODE_STOPPED, command.stop.reason or "stopped without a reason given")
        reply.status.CopyFrom(self.status())
        return True

    def _clear(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        self._require_generation("clear", command.clear.stop_generation)
        if self.mode in (pb.ROBOT_MODE_STOPPED, pb.ROBOT_MODE_FAULT):
            self._enter(pb.ROBOT_MODE_IDLE)
        reply.status.CopyFrom(self.status())
        return True

    def _audit(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        for name, count in {**self.counters, **self._sim.counters}.items():
            reply.audit.counters[name] = count
        for name, value in self._sim.extremes.items():
            reply.audit.extremes[name] = value
        return True

    def _goodbye(self, client: bytes, command: pb.LinkCommand, reply: pb.LinkReply, now: float) -> bool:
        self._end_session("the client said goodbye")
        reply.status.CopyFrom(self.status())
        return True

    _Handler = Callable[["RobotLink", bytes, pb.LinkCommand, pb.LinkReply, float], bool]
    _dispatch: dict[str, _Handler] = {  # noqa: RUF012
        "hello": _hello,
        "time_sync": _time_sync,
        "arm": _arm,
        "reset": _reset,
        "stop": _stop,
        "clear": _clear,
        "audit": _audit,
        "goodbye": _goodbye,
    }

    def _take_target(self, command: pb.LinkCommand, now: float) -> None:
        target = command.target
        if problem := self._objection(command.session_id, target, now):
            self.counters[f"target_dropped_{problem}"] += 1
            return
        assert self._session is not None
        if not self._sim.command(np.array(target.position), target.gripper_width):
            self.counters["target_dropped_not_finite"] += 1
            return
        self.counters["target_accepted"] += 1
        self._session.target_sequence = target.sequence
        self._session.heard = self._last_target = now

    def _objection(self, session_id: str, target: pb.SetTarget, now: float) -> str:
        """Why this target must not move the robot; empty when it may."""
        if self._session is None or session_id != self._session.id:
            return "session"
        if target.stop_generation != self.stop_generation:
            return "stop_generation"
        if self.mode != pb.ROBOT_MODE_ACTIVE:
            return "mode"
        if target.episode_id != self.episode_id:
            return "episode"
        if target.sequence <= self._session.target_sequence:
            return "sequence"
        if not now <= target.expires_at:
            return "expired"
        return "" if len(target.position) == 3 else "shape"

    def _watch(self, now: float) -> None:
        if self._session is not None and now - self._session.heard > self._config.lease:
            self._end_session(f"nothing came from the client for {self._config.lease:g} s")
        silent = now - self._last_target > self._config.watchdog
        if self.mode == pb.ROBOT_MODE_ACTIVE and silent and self._sim.moving():
            self.counters["watchdog_hold"] += 1
            self._hold(f"no target for {self._config.watchdog:g} s while moving")

    def _step_home(self, now: float) -> None:
        assert self._homing is not None
        homing = self._homing
        if homing.done < homing.ticks:
            homing.done += 1
            self._sim.home(homing.done / homing.ticks, homing.start)
            return
        reading = self._sim.reset(homing.seed)
        self.episode_id += 1
        self._homing = None
        self._enter(pb.ROBOT_MODE_ACTIVE)
        reply = pb.LinkReply(request_id=homing.request_id)
        reply.reset.episode_id = self.episode_id
        reply.reset.goal_position.extend(reading.goal_position.tolist())
        reply.reset.took = now - homing.began
        reply.reset.status.CopyFrom(self.status())
        self._outbox.append((homing.client, reply))

    def _hold(self, reason: str) -> None:
        self._abandon_homing(reason)
        self._sim.brake()
        self._enter(pb.ROBOT_MODE_HOLD, reason)

    def _raise_stop(self, mode: pb.RobotMode, reason: str) -> None:
        self._abandon_homing(reason)
        self._sim.brake()
        self.stop_generation += 1
        self.counters["stops"] += 1
        self._enter(mode, reason)

    def _abandon_homing(self, reason: str) -> None:
        if self._homing is None:
            return
        error = Aborted(f"reset: given up on the way home: {reason}")
        reply = pb.LinkReply(request_id=self._homing.request_id)
        reply.error.code, reply.error.message = error.code.value[0], str(error)
        self._outbox.append((self._homing.client, reply))
        self._homing = None
        self.episode_id += 1  # the old episode's scene is no more

    def _end_session(self, reason: str) -> None:
        self._session = None
        if self.mode in (pb.ROBOT_MODE_ACTIVE, pb.ROBOT_MODE_HOMING):
            self._hold(reason)

    def _enter(self, mode: pb.RobotMode, reason: str = "") -> None:
        self.mode, self.reason = mode, reason

    def _require_session(self, session_id: str, now: float) -> None:
        if self._session is None or session_id != self._session.id:
            raise NotFound(f"session {session_id!r} does not hold the robot (ended, expired, or never was); say hello")
        self._session.heard = now

    def _require_generation(self, what: str, given: int) -> None:
        if given != self.stop_generation:
            raise FailedPrecondition(
                f"{what}: issued under stop generation {given}, the present one is {self.stop_generation}: there was a "
                f"stop in between ({self.reason}); look, then ask again"
            )

    def _mode_name(self) -> str:
        return pb.RobotMode.Name(self.mode).removeprefix("ROBOT_MODE_")
