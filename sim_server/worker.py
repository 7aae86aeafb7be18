"""One worker process and the link to it, seen from the pool."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent import futures
from typing import Any

from landbridge.errors import DeadlineExceeded, Internal, LandbridgeError, Unavailable
from sim_server import frames, link

# The kernel's parent-death signal fires when the *thread* that forked ends, so one thread that stays forks for all.
_spawner = futures.ThreadPoolExecutor(1, thread_name_prefix="worker-spawner")

# Each environment is one thread's work: with the defaults, 16 workers on two cores fight over them.
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")


class Worker:
    """A fresh interpreter with one environment. Not forked from this process: simulators hang after a fork."""

    def __init__(self, spec: str, options: dict[str, Any]) -> None:
        """Start it; :meth:`hello` tells when it is up."""
        ours, theirs = link.pair()
        command = [sys.executable, "-m", "sim_server.worker_process", str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = _spawner.submit(
                subprocess.Popen[bytes],
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a simulator prints must not mix with the server's ready line
                env={**os.environ, **_THREADS},
                pass_fds=(theirs.fileno(),),
            ).result()
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._link = link.Link(ours)
        self._sequence = 0
        self._hello = self.send(frames.HELLO, json.dumps({"spec": spec, "options": options}).encode(), None)

    def hello(self, deadline: float) -> dict[str, Any]:
        """The worker's first message: contract, time limit, abilities. The adapter's error where it cannot start."""
        made: dict[str, Any] = json.loads(self.receive(self._hello, deadline))
        return made

    def send(self, kind: bytes, payload: bytes, deadline: float | None) -> int:
        """Send a request; its number is what :meth:`receive` wants. UNAVAILABLE when the process is gone."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        try:
            self._link.send(kind, self._sequence, payload, deadline)
        except Unavailable:
            raise Unavailable(f"the worker process {self.describe_end()}") from None
        return self._sequence

    def receive(self, sequence: int, deadline: float) -> bytes:
        """The payload of the answer to request ``sequence``, or the error it holds."""
        try:
            kind, answered, payload = self._link.receive(deadline)
        except Unavailable:
            raise Unavailable(f"the worker process {self.describe_end()}") from None
        except DeadlineExceeded:
            raise DeadlineExceeded("the worker process did not answer in time") from None
        if answered != sequence:
            raise Internal(f"the worker answered request {answered} in place of {sequence}")
        if kind == frames.ERROR:
            raise WorkerError(frames.unpack_error(payload))
        return payload

    def describe_end(self) -> str:
        """``was ended by SIGKILL`` or ``ended with status 1``."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def hang_up(self) -> None:
        """Ask it to end: it closes its environment when it reads the end of the connection."""
        self._link.hang_up()

    def kill(self, grace: float = 0.0) -> None:
        """End it, at the latest after ``grace`` seconds."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        self._link.close()


class WorkerError(Exception):
    """The environment in a healthy worker refused or failed; ``error`` is what it said."""

    def __init__(self, error: LandbridgeError) -> None:
        super().__init__(str(error))
        self.error = error
