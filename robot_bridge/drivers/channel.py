"""One connection to a robot process: two ZeroMQ sockets owned by one thread, requests matched to their replies.

Callers put messages in a queue and wake the thread, so any number of threads may use a channel. A request that timed
out is forgotten: its late reply matches nothing, and if it was not sent yet it never will be.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent import futures

import zmq

from landbridge.errors import DeadlineExceeded, Unavailable, from_code
from landbridge.v1 import robot_link_pb2 as pb

SYNC_PERIOD = 0.4
"""Seconds between clock comparisons; they also keep the session's lease."""

_LOOP = 100
"""Milliseconds the thread sleeps at most."""
_SYNC_SAMPLES = 8
_MAX_QUEUED_TARGETS = 4
"""Targets are worth less than their age: with more than this unsent the link is not keeping up."""


class Channel:
    """Connects at once (ZeroMQ goes on trying in the background); :meth:`close` frees everything."""

    def __init__(self, command_endpoint: str, state_endpoint: str, on_message: Callable[[bytes, bytes], None]) -> None:
        """``on_message(topic, payload)`` gets the newest message of each topic, in the channel's thread."""
        self._on_message = on_message
        self._context = zmq.Context()
        self._commands = self._connect(zmq.DEALER, command_endpoint)
        self._states = self._connect(zmq.SUB, state_endpoint)
        self._states.subscribe(b"")
        self._lock = threading.Lock()
        self._requests: deque[pb.LinkCommand] = deque()
        self._targets: deque[pb.LinkCommand] = deque()
        self._waiting: dict[int, futures.Future[pb.LinkReply]] = {}
        self._ids = itertools.count(1)
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        self._closing = False
        self._session_id = ""
        self._syncs: deque[tuple[float, float]] = deque(maxlen=_SYNC_SAMPLES)
        self._sync_sent: tuple[int, float] = (0, -math.inf)
        self.heard_at = -math.inf
        """Local time of the last reply."""
        self.late_replies = 0
        self.session_lost = ""
        """Why the robot no longer knows this session; empty while it does."""
        self._thread = threading.Thread(target=self._run, name="robot-channel", daemon=True)
        self._thread.start()

    def _connect(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.immediate = 1  # queue nothing for a robot that is not there
        socket.reconnect_ivl = 50
        socket.heartbeat_ivl, socket.heartbeat_timeout = 200, 600  # a dead connection is noticed and made anew
        socket.rcvhwm = socket.sndhwm = 64
        socket.connect(endpoint)
        return socket

    @property
    def clock_offset(self) -> float:
        """Robot time minus local time, from the quickest of the last exchanges; NaN before the first."""
        with self._lock:
            return min(self._syncs)[1] if self._syncs else math.nan

    def keep_session(self, session_id: str) -> None:
        """From now on compare clocks, in this session's name."""
        self._session_id = session_id
        self._wake()

    def request(self, command: pb.LinkCommand, timeout: float) -> pb.LinkReply:
        """Send and wait for the reply. The robot's refusal is raised as what it is; silence as DEADLINE_EXCEEDED."""
        name = command.WhichOneof("command")
        future: futures.Future[pb.LinkReply] = futures.Future()
        with self._lock:
            if self._closing:
                raise Unavailable(f"{name}: the connection is closed; connect first")
            command.request_id = next(self._ids)
            self._waiting[command.request_id] = future
            if name == "stop":
                self._targets.clear()
                self._requests.appendleft(command)
            else:
                self._requests.append(command)
        self._wake()
        try:
            reply = future.result(timeout)
        except futures.TimeoutError:
            raise DeadlineExceeded(f"{name}: the robot did not answer within {timeout:g} s") from None
        finally:
            with self._lock:
                self._waiting.pop(command.request_id, None)
        if reply.HasField("error"):
            raise from_code(reply.error.code, reply.error.message, reply.error.retry_after or None)
        return reply

    def send_target(self, command: pb.LinkCommand) -> None:
        """Send without an answer. UNAVAILABLE when those before it are still waiting to be sent."""
        with self._lock:
            if self._closing:
                raise Unavailable("target: the connection is closed; connect first")
            if len(self._targets) >= _MAX_QUEUED_TARGETS:
                self._targets.clear()
                raise Unavailable("target: the robot is not connected; targets before this one were dropped unsent")
            self._targets.append(command)
        self._wake()

    def close(self) -> None:
        """End the thread and free the sockets; what is unsent is dropped."""
        with self._lock:
            already, self._closing = self._closing, True
        if already:
            return
        self._wake()
        self._thread.join(2.0)
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(Unavailable("the connection was closed while a request waited for its answer"))
        os.close(self._wake_in)
        os.close(self._wake_out)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._wake_in, b"x")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_out, zmq.POLLIN)
        poller.register(self._states, zmq.POLLIN)
        try:
            while not self._closing:
                unsent = bool(self._requests or self._targets)
                poller.register(self._commands, zmq.POLLIN | (zmq.POLLOUT if unsent else 0))
                ready = dict(poller.poll(_LOOP))
                if self._wake_out in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_out, 4096)
                self._sync_clock()
                self._send()
                self._receive()
                self._take_messages()
        finally:
            self._context.destroy(linger=0)

    def _sync_clock(self) -> None:
        now = time.monotonic()
        if not self._session_id or now - self._sync_sent[1] < SYNC_PERIOD:
            return
        command = pb.LinkCommand(session_id=self._session_id, request_id=next(self._ids), time_sync=pb.TimeSync())
        with contextlib.suppress(zmq.Again):
            self._commands.send(command.SerializeToString(), zmq.NOBLOCK)
        self._sync_sent = (command.request_id, now)

    def _send(self) -> None:
        while True:
            with self._lock:
                queue = self._requests or self._targets
                if not queue:
                    return
                command = queue[0]
                if command.request_id and command.request_id not in self._waiting:
                    queue.popleft()  # nobody waits for it any more
                    continue
                try:
                    self._commands.send(command.SerializeToString(), zmq.NOBLOCK)
                except zmq.Again:
                    return
                queue.popleft()

    def _receive(self) -> None:
        while True:
            try:
                data = self._commands.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            reply = pb.LinkReply.FromString(data)
            self.heard_at = time.monotonic()
            if reply.request_id == self._sync_sent[0]:
                self._compare_clocks(reply)
                continue
            with self._lock:
                future = self._waiting.pop(reply.request_id, None)
            if future is None:
                self.late_replies += 1
            else:
                future.set_result(reply)

    def _compare_clocks(self, reply: pb.LinkReply) -> None:
        if not reply.HasField("time_sync"):
            self.session_lost = reply.error.message
            return
        sent, trip = self._sync_sent[1], self.heard_at - self._sync_sent[1]
        with self._lock:
            self._syncs.append((trip, reply.time_sync.robot_time - (sent + trip / 2)))

    def _take_messages(self) -> None:
        newest: dict[bytes, bytes] = {}
        while True:
            try:
                topic, payload = self._states.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            newest[topic] = payload
        for topic, payload in newest.items():
            self._on_message(topic, payload)
