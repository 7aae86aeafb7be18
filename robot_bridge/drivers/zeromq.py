"""A robot behind ``robot_link.proto``: the ZeroMQ driver."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time

from landbridge.errors import DeadlineExceeded, LandbridgeError, NotFound, ResourceExhausted, Unavailable
from landbridge.v1 import robot_link_pb2 as pb
from robot_bridge.drivers import readings
from robot_bridge.drivers.channel import Channel
from robot_bridge.drivers.protocol import Audit, Capabilities, Episode, Judgement, RobotState, Status, Target

PROTOCOL_VERSION = 1

_BUSY_PAUSE = 0.1
"""Seconds between two tries while another client's lease lasts."""
_GOODBYE = 0.2
"""Seconds spent on taking leave politely."""


class ZeroMQDriver:
    """Implements :class:`robot_bridge.drivers.protocol.Driver`; see there for what each method promises."""

    def __init__(self, command_endpoint: str, state_endpoint: str, client: str = "landbridge robot bridge") -> None:
        """Endpoints as ZeroMQ writes them, e.g. ``tcp://127.0.0.1:5555``. Nothing is sent before ``connect``."""
        self._endpoints = (command_endpoint, state_endpoint)
        self._client = client
        self._channel: Channel | None = None
        self._session_id = ""
        self._capabilities: Capabilities | None = None
        self._news = threading.Condition()
        self._state: RobotState | None = None
        self._judgement: Judgement | None = None
        self._problem = ""
        self._sequence = itertools.count(1)
        self._sending = threading.Lock()

    def connect(self, timeout: float) -> Capabilities:
        """As promised; waits, within ``timeout``, for a lease of another client that is about to end."""
        deadline = time.monotonic() + timeout
        self.close()
        with self._news:
            self._state = self._judgement = self._capabilities = None
            self._problem = ""
        self._channel = Channel(*self._endpoints, self._take)
        try:
            hello = self._say_hello(self._channel, deadline)
            self._session_id = hello.session_id
            self._sequence = itertools.count(1)
            capabilities = readings.capabilities(hello.capabilities)
            self._channel.keep_session(hello.session_id)
            with self._news:
                self._capabilities = capabilities
            self.wait_state(0, max(0.0, deadline - time.monotonic()))
        except BaseException:
            self.close()
            raise
        return capabilities

    def _say_hello(self, channel: Channel, deadline: float) -> pb.HelloReply:
        while True:
            hello = pb.LinkCommand(hello=pb.Hello(protocol_version=PROTOCOL_VERSION, client=self._client))
            left = deadline - time.monotonic()
            try:
                return channel.request(hello, max(left, 0.0)).hello
            except ResourceExhausted:
                if left < _BUSY_PAUSE:
                    raise
                time.sleep(_BUSY_PAUSE)

    @property
    def capabilities(self) -> Capabilities:
        """UNAVAILABLE before the first ``connect``."""
        if self._capabilities is None:
            raise Unavailable("the robot is not connected; connect first")
        return self._capabilities

    def latest_state(self) -> RobotState:
        """The newest measurement; look at its age."""
        with self._news:
            return self._require_state()

    def wait_state(self, after: int, timeout: float) -> RobotState:
        """The newest measurement with a sequence above ``after``."""
        with self._news:
            if not self._news.wait_for(lambda: self._state is not None and self._state.sequence > after, timeout):
                raise DeadlineExceeded(
                    f"no state newer than {after} came from {self._endpoints[1]} within {timeout:g} s"
                    + (f": {self._problem}" if self._problem else "")
                )
            return self._require_state()

    def _require_state(self) -> RobotState:
        if self._state is None:
            raise Unavailable(f"no state has come from {self._endpoints[1]}; connect first")
        return self._state

    def contact_age(self) -> float:
        """Seconds since the robot last answered; comparing clocks it is asked every 0.4 s."""
        channel = self._channel
        return time.monotonic() - channel.heard_at if channel else math.inf

    def arm(self, stop_generation: int, timeout: float = 1.0) -> Status:
        """Allow motion."""
        return readings.status(self._request(timeout, arm=pb.ArmRobot(stop_generation=stop_generation)).status)

    def reset(self, seed: int, timeout: float = 3.0) -> Episode:
        """Home the robot, lay out the scene of ``seed``, wait for the new episode's first state."""
        deadline = time.monotonic() + timeout
        episode = readings.episode(self._request(timeout, reset=pb.ResetEpisode(seed=seed)).reset)
        with self._news:
            if not self._news.wait_for(lambda: self._shows(episode), max(0.0, deadline - time.monotonic())):
                raise DeadlineExceeded(f"reset: done, but no state of episode {episode.episode_id} in {timeout:g} s")
        return episode

    def _shows(self, episode: Episode) -> bool:
        return self._state is not None and self._state.episode_id >= episode.episode_id

    def send_target(self, target: Target) -> int:
        """Send and forget."""
        with self._sending:  # numbered in the order sent
            channel, sequence = self._require_channel(), next(self._sequence)
            message = pb.SetTarget(
                sequence=sequence,
                episode_id=target.episode_id,
                stop_generation=target.stop_generation,
                expires_at=time.monotonic() + target.valid_for + channel.clock_offset,
                position=target.position.tolist(),
                gripper_width=target.gripper_width,
            )
            channel.send_target(pb.LinkCommand(session_id=self._session_id, target=message))
        return sequence

    def stop(self, reason: str, timeout: float = 0.5) -> Status:
        """Stop now; needs a connection but no session."""
        return readings.status(self._request(timeout, stop=pb.StopRobot(reason=reason)).status)

    def clear(self, stop_generation: int, timeout: float = 1.0) -> Status:
        """Leave STOPPED or FAULT."""
        return readings.status(self._request(timeout, clear=pb.ClearStop(stop_generation=stop_generation)).status)

    def judgement(self) -> Judgement | None:
        """The referee's newest reading."""
        with self._news:
            return self._judgement

    def audit(self, timeout: float = 1.0) -> Audit:
        """The robot's own account."""
        return readings.audit(self._request(timeout, audit=pb.GetAudit()).audit)

    def close(self) -> None:
        """Give the robot back."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        if self._session_id:
            goodbye = pb.LinkCommand(session_id=self._session_id, goodbye=pb.Goodbye())
            with contextlib.suppress(LandbridgeError):  # a robot that does not answer lets the lease end
                channel.request(goodbye, _GOODBYE)
            self._session_id = ""
        channel.close()

    def _require_channel(self) -> Channel:
        if self._channel is None:
            raise Unavailable("the robot is not connected; connect first")
        if self._problem:
            raise Unavailable(self._problem)
        if self._channel.session_lost:
            raise NotFound(self._channel.session_lost)
        return self._channel

    def _request(self, timeout: float, **command: object) -> pb.LinkReply:
        channel = self._channel
        if channel is None:
            raise Unavailable("the robot is not connected; connect first")
        message = pb.LinkCommand(session_id=self._session_id, **command)  # type: ignore[arg-type]
        return channel.request(message, timeout)

    def _take(self, topic: bytes, payload: bytes) -> None:
        """A message of the state socket, in the channel's thread."""
        now, channel, known = time.monotonic(), self._channel, self._capabilities
        if channel is None or known is None or math.isnan(channel.clock_offset):
            return
        try:
            if topic == b"state":
                self._take_state(pb.LinkState.FromString(payload), known, channel.clock_offset, now)
            elif topic == b"judge":
                judgement = readings.judgement(pb.LinkJudgement.FromString(payload), now)
                with self._news:
                    self._judgement = judgement
        except Exception as error:
            self._problem = f"the robot sent what is not a {topic.decode(errors='replace')} message: {error}"

    def _take_state(self, message: pb.LinkState, known: Capabilities, clock_offset: float, now: float) -> None:
        if message.boot_id != known.boot_id:
            self._problem = "the robot process was started anew; connect again"
            return
        state = readings.robot_state(message, len(known.joint_names), clock_offset, now)
        with self._news:
            self._state = state
            self._news.notify_all()
