"""Child processes under supervision: started, awaited, logged, and never left behind.

Every child runs in a session of its own (Ctrl-C in a terminal reaches the parent only, which then ends its children in
order) and is killed by the kernel when the parent dies, by whatever cause. Servers tell that they serve, and where, in
one JSON line on stdout (:func:`announce_ready`), which is how ``--port 0`` becomes an address.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any

from landbridge.errors import DeadlineExceeded, FailedPrecondition, LandbridgeError, NotFound, Unavailable

STOP_GRACE = 3.0
"""Seconds a child has between SIGTERM and SIGKILL."""

_KEPT_LINES = 200
_SHOWN_LINES = 20

# Set in the child, between fork and its program, by an interpreter of its own: a preexec_fn may deadlock in a parent
# that has gRPC's threads. The parent may have died before prctl was called, hence the second look.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""

# The kernel's parent-death signal fires when the *thread* that forked ends, so one thread that stays forks for all.
_spawner = futures.ThreadPoolExecutor(1, thread_name_prefix="spawner")


def announce_ready(address: str, **extra: Any) -> None:
    """Print the line a supervisor waits for: ``{"ready": true, "address": "127.0.0.1:PORT", ...}``."""
    print(json.dumps({"ready": True, "address": address, **extra}), flush=True)


def read_ready(child: Child, timeout: float) -> dict[str, Any]:
    """The content of ``child``'s ready line, waited for at most ``timeout`` seconds.

    UNAVAILABLE with the child's last lines when it ends first; DEADLINE_EXCEEDED with them when time runs out.
    """
    ready = child.ready.wait(timeout)
    if child.ready_line is not None:
        return child.ready_line
    if ready:
        raise Unavailable(f"{child.describe_end()} before it was ready{child.tail()}")
    raise DeadlineExceeded(f"{child.name} was not ready within {timeout:g} s{child.tail()}")


def watch_parent(on_death: Callable[[], None] | None = None) -> None:
    """End this process when its parent has died; for children that :class:`ProcessGroup` did not start.

    ``on_death`` replaces the default: SIGTERM to this process, and after three seconds the end.
    """
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent, on_death or _end_self), name="watch-parent", daemon=True).start()


def _watch(parent: int, on_death: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, AttributeError):  # gone already, or no pidfd on this system
        descriptor = os.pidfd_open(parent)
        try:
            while os.getppid() == parent and not select.select([descriptor], [], [], 1.0)[0]:
                pass
        finally:
            os.close(descriptor)
    while os.getppid() == parent:
        time.sleep(0.2)
    on_death()


def _end_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_GRACE)
    os._exit(1)


class Child:
    """One child process. Made by :meth:`ProcessGroup.start`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        log: Path | None,
        on_line: Callable[[str], None] | None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.ready = threading.Event()
        """Set with the ready line, or when there will be none because the output ended."""
        self.ready_line: dict[str, Any] | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._log = log
        self._on_line = on_line
        self._lock = threading.Lock()
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        self._popen = _spawner.submit(
            subprocess.Popen[bytes],
            [*launcher, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        ).result()
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read, name=f"log-{name}", daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        """``host:port`` as announced; FAILED_PRECONDITION before :func:`read_ready`."""
        if self.ready_line is None:
            raise FailedPrecondition(f"{self.name} has not announced its address yet; call read_ready first")
        return str(self.ready_line["address"])

    def poll(self) -> int | None:
        """Exit status (negative: the signal that ended it), or None while it runs.

        With the child its whole process group is ended: nothing it started is left.
        """
        with self._lock:
            if self._popen.returncode is None:
                state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if state is None:
                    return None
                self._kill_group()  # while the unreaped leader still keeps the group's number from being reused
                self._popen.wait()
            return self._popen.returncode

    def wait(self, timeout: float) -> int | None:
        """As :meth:`poll`, after waiting up to ``timeout`` seconds for the end."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return status

    def wait_serving(self, timeout: float) -> str:
        """Wait for the ready line and then for gRPC health SERVING; returns the address. Errors as read_ready."""
        from landbridge import rpc

        deadline = time.monotonic() + timeout
        address = str(read_ready(self, timeout)["address"])
        while True:
            try:
                rpc.wait_serving(address, timeout=1.0)
                return address
            except LandbridgeError as error:
                if self.poll() is not None:
                    raise Unavailable(f"{self.describe_end()} before it served{self.tail()}") from error
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(f"{self.name} at {address}: {error}{self.tail()}") from error
                time.sleep(0.05)

    def terminate(self) -> None:
        """SIGTERM to the child itself; what it started is its own to end, within the grace it is given."""
        with self._lock:
            if self._popen.returncode is None:
                self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        with self._lock:
            if self._popen.returncode is None:
                self._kill_group()

    def tail(self, lines: int = _SHOWN_LINES) -> str:
        """The last lines it printed, indented on lines of their own; empty when there are none."""
        if self._popen.returncode is not None:
            self._reader.join(0.5)  # what it said last is the most telling
        return "".join(f"\n    {line}" for line in list(self._lines)[-lines:])

    def describe_end(self) -> str:
        """``NAME ended with status 1`` or ``NAME was ended by SIGKILL``."""
        status = self.wait(1.0)
        if status is None:
            return f"{self.name} closed its output"
        if status >= 0:
            return f"{self.name} ended with status {status}"
        return f"{self.name} was ended by {signal.Signals(-status).name}"

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("ab", buffering=0)) if self._log else None
            for raw in self._popen.stdout:
                line = raw.decode("utf-8", "replace").rstrip()
                self._lines.append(line)
                if log is not None:
                    log.write(raw)
                if self._on_line is not None:
                    with contextlib.suppress(OSError, ValueError):  # our own stdout has gone: go on draining the pipe
                        self._on_line(line)
                self._notice_ready(line)
        self.ready.set()

    def _notice_ready(self, line: str) -> None:
        if self.ready_line is None and line.startswith("{") and '"ready"' in line:
            with contextlib.suppress(ValueError):
                content = json.loads(line)
                if content.get("ready") is True and "address" in content:
                    self.ready_line = content
                    self.ready.set()


def _echo(name: str, line: str) -> None:
    print(f"{name} | {line}", flush=True)


class ProcessGroup:
    """Children that start and end together. Use it as a context manager: leaving it ends them all.

    Nothing is restarted: what died stays dead and :meth:`check` says so.
    """

    def __init__(self, *, log_folder: Path | None = None, echo: bool = False) -> None:
        """Output goes to ``log_folder/NAME.log`` where given, and with ``echo`` to stdout, prefixed by the name."""
        self.children: list[Child] = []
        self._log_folder = log_folder
        self._echo = echo
        if log_folder is not None:
            log_folder.mkdir(parents=True, exist_ok=True)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Child:
        """Start ``command``; ``env`` is added to this process's own. NOT_FOUND where there is no such program.

        ``on_line`` gets every line of output, in a thread of the child's, in place of echoing.
        """
        words = [str(word) for word in command]
        if shutil.which(words[0]) is None:
            raise NotFound(f"cannot start {name}: there is no program {words[0]!r}")
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        log = self._log_folder / f"{name}.log" if self._log_folder is not None else None
        if on_line is None and self._echo:
            on_line = functools.partial(_echo, name)
        child = Child(name, words, variables, cwd, log, on_line)
        self.children.append(child)
        return child

    def ended(self) -> list[Child]:
        """The children that have ended."""
        return [child for child in self.children if child.poll() is not None]

    def check(self) -> None:
        """UNAVAILABLE, with its last lines, when a child has ended."""
        for child in self.ended():
            raise Unavailable(f"{child.describe_end()}{child.tail()}")

    def wait_any(self, timeout: float) -> Child | None:
        """The first child found ended, waiting up to ``timeout`` seconds; None when all run on."""
        deadline = time.monotonic() + timeout
        while True:
            if ended := self.ended():
                return ended[0]
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    def stop_all(self, grace: float = STOP_GRACE) -> None:
        """SIGTERM to every child, SIGKILL to the groups of those left after ``grace`` seconds. Never raises."""
        deadline = time.monotonic() + grace
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            child.wait(max(0.0, deadline - time.monotonic()))
        for child in self.children:
            child.kill()
        deadline = time.monotonic() + 1.0  # for the kernel to act; shared, so that the whole stays bounded
        for child in self.children:
            child.wait(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop_all()
