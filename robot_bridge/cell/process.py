"""The cell as a process: sockets and the wall clock around :class:`RobotLink`.

One thread does it all, 125 times a second: commands in, two control periods of physics on, states out. Behind by more
than ``_SLIP`` it lets
the simulation lose time instead of hurrying after it.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time

import zmq

from landbridge.process import announce_ready, watch_parent
from robot_bridge.cell.config import ProcessConfig
from robot_bridge.cell.controller import PERIOD
from robot_bridge.cell.link import RobotLink
from robot_bridge.cell.simulation import CellSimulation

_TICKS = 2
"""Control periods a waking: with cold caches a single one costs twice as much."""
_SLIP = 0.05
"""Wall-clock seconds the simulation may be behind."""
_JUDGE_RATE = 20.0
_BURST = 100
"""Commands taken between two ticks at most: a flood must not stop the physics."""


class CellProcess:
    """Binds the sockets at once; :meth:`run` serves until ``stop`` is set."""

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._link = RobotLink(CellSimulation(config.cell, config.seed), config.link)
        self._context = zmq.Context()
        self._commands = self._bind(zmq.ROUTER, config.command_endpoint)
        self._states = self._bind(zmq.PUB, config.state_endpoint)
        self._states.sndhwm = 200
        self._poller = zmq.Poller()
        self._poller.register(self._commands, zmq.POLLIN)

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.bind(endpoint)
        return socket

    @property
    def command_endpoint(self) -> str:
        """Where it is really bound."""
        return self._commands.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def state_endpoint(self) -> str:
        """Where it is really bound."""
        return self._states.getsockopt_string(zmq.LAST_ENDPOINT)

    def run(self, stop: threading.Event) -> None:
        """Serve in real time; sockets are closed when it returns."""
        config, link = self._config, self._link
        period = _TICKS * PERIOD / config.speed
        next_tick = next_state = next_judge = time.monotonic()
        try:
            while not stop.is_set():
                self._receive(next_tick)
                now = time.monotonic()
                if now - next_tick > max(_SLIP, 2 * period):
                    link.counters["slips"] += 1
                    next_tick = now
                while next_tick <= now:
                    for _ in range(_TICKS):
                        link.tick(now)
                    next_tick += period
                if now >= next_state:
                    next_state = max(next_state + 1.0 / config.link.state_rate_hz, now)
                    self._publish(b"state", link.state(now, config.speed).SerializeToString())
                if now >= next_judge:
                    next_judge = max(next_judge + 1.0 / _JUDGE_RATE, now)
                    self._publish(b"judge", link.judgement(now).SerializeToString())
                self._answer()
        finally:
            self._context.destroy(linger=50)

    def _receive(self, until: float) -> None:
        wait = math.ceil(max(0.0, until - time.monotonic()) * 1000)
        if not self._poller.poll(wait):
            return
        for _ in range(_BURST):
            try:
                client, *rest = self._commands.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._link.handle(client, rest[-1] if rest else b"", time.monotonic())
            self._answer()

    def _answer(self) -> None:
        for client, reply in self._link.replies():
            try:
                self._commands.send_multipart([client, reply.SerializeToString()], zmq.NOBLOCK)
            except zmq.ZMQError:  # it has gone, or does not read
                self._link.counters["replies_lost"] += 1

    def _publish(self, topic: bytes, payload: bytes) -> None:
        self._states.send_multipart([topic, payload], zmq.NOBLOCK)


def serve(config: ProcessConfig) -> None:
    """Run until SIGTERM, SIGINT or the parent's death."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    watch_parent()
    process = CellProcess(config)
    gc.collect()
    gc.freeze()  # what lives for ever need not be looked at again by every collection
    announce_ready(
        process.command_endpoint,
        command_endpoint=process.command_endpoint,
        state_endpoint=process.state_endpoint,
        pid=os.getpid(),
    )
    process.run(stop)
