"""Seconds to and from ``google.protobuf.Duration``."""

from __future__ import annotations

from google.protobuf import duration_pb2


def to_duration(seconds: float) -> duration_pb2.Duration:
    """The message for ``seconds``, to the nanosecond."""
    made = duration_pb2.Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made


def to_seconds(message: duration_pb2.Duration) -> float:
    """The seconds in ``message``; whatever came is a number (``ToNanoseconds`` overflows on hostile ones)."""
    return message.seconds + 1e-9 * message.nanos
