"""Messages over a Unix socket pair between the pool and one worker: framed bytes, numbered, never pickles.

A message is a header (payload length, sequence number, kind) and a payload. An answer repeats its request's sequence
number, so that an answer nobody waits for any more can never be taken for the next one's.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time

from landbridge.errors import DeadlineExceeded, Unavailable

_HEADER = struct.Struct("<IIc")
_ONE_READ = 1 << 16
_SOCKET_BUFFER = 1 << 20
MAX_PAYLOAD = 1 << 30


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: ours, and the one a worker inherits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    return ours, theirs


class Link:
    """One end. For one thread at a time."""

    def __init__(self, end: socket.socket, *, blocking: bool = False) -> None:
        """``blocking``: an end that waits for ever (deadlines of None only) and is spared a system call a message."""
        end.setblocking(blocking)
        self._blocking = blocking
        self._end = end
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(end, select.POLLIN)
        self._writable.register(end, select.POLLOUT)

    def send(self, kind: bytes, sequence: int, payload: bytes, deadline: float | None) -> None:
        """Send one message by ``deadline`` (``time.monotonic()``; None: whenever). UNAVAILABLE: the peer is gone."""
        message = _HEADER.pack(len(payload), sequence, kind) + payload
        try:
            sent = self._end.send(message)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise Unavailable(f"the peer is gone ({error})") from error
        if sent < len(message):
            self._send_rest(memoryview(message)[sent:], deadline)

    def _send_rest(self, rest: memoryview, deadline: float | None) -> None:
        while rest:
            _wait(self._writable, deadline)
            try:
                rest = rest[self._end.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Unavailable(f"the peer is gone ({error})") from error

    def receive(self, deadline: float | None) -> tuple[bytes, int, bytes]:
        """``(kind, sequence, payload)``; DEADLINE_EXCEEDED at ``deadline``, UNAVAILABLE when the peer is gone."""
        data = self._read(_ONE_READ, deadline)
        while len(data) < _HEADER.size:
            data += self._read(_ONE_READ, deadline)
        length, sequence, kind = _HEADER.unpack_from(data)
        if length > MAX_PAYLOAD:
            raise Unavailable(f"the peer announced a message of {length} bytes, at most {MAX_PAYLOAD} are accepted")
        missing = length + _HEADER.size - len(data)
        if missing > 0:
            parts = [data]
            while missing > 0:
                parts.append(self._read(missing, deadline))
                missing -= len(parts[-1])
            data = b"".join(parts)
        return kind, sequence, data[_HEADER.size :]

    def _read(self, size: int, deadline: float | None) -> bytes:
        while True:
            if not self._blocking:
                _wait(self._readable, deadline)
            try:
                data = self._end.recv(size)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Unavailable(f"the peer is gone ({error})") from error
            if not data:
                raise Unavailable("the peer closed the connection")
            return data

    def hang_up(self) -> None:
        """The peer, and a thread that receives at this end, read the end of the connection."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket; for when nobody uses it any more."""
        self._end.close()


def _wait(poll: select.poll, deadline: float | None) -> None:
    if deadline is None:
        poll.poll()
        return
    remaining = deadline - time.monotonic()
    if not poll.poll(max(0, math.ceil(remaining * 1e3))):
        raise DeadlineExceeded("no answer came in time")
