"""Errors as part of the interface: what was expected, what came, what to do.

Inside a process code raises :class:`LandbridgeError` subclasses; :mod:`landbridge.rpc` turns them into gRPC statuses
(google.rpc.Status with BadRequest, RetryInfo and ErrorInfo details) and back into the same classes in the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from landbridge.durations import to_duration, to_seconds

DOMAIN = "landbridge"


class LandbridgeError(Exception):
    """Base: a message for people, a gRPC code, optionally the field at fault and when to try again."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, field: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after = retry_after


class InvalidArgument(LandbridgeError):
    """The request is wrong whatever the server's state; ``field`` is the path of the wrong part."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class FailedPrecondition(LandbridgeError):
    """The request is right but not in this state; the message says which state is needed."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class NotFound(LandbridgeError):
    """No such session, version or environment; the message lists what there is."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(LandbridgeError):
    """It is there already, with other contents."""

    code = grpc.StatusCode.ALREADY_EXISTS


class ResourceExhausted(LandbridgeError):
    """Full; ``retry_after`` says when to try again (seconds)."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceeded(LandbridgeError):
    """The time given was not enough."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Aborted(LandbridgeError):
    """Overtaken: a newer request of the same session took its place."""

    code = grpc.StatusCode.ABORTED


class DataLoss(LandbridgeError):
    """Bytes are missing or their checksum is wrong."""

    code = grpc.StatusCode.DATA_LOSS


class Unavailable(LandbridgeError):
    """The server is not there, is draining, or lost its worker; trying again may help."""

    code = grpc.StatusCode.UNAVAILABLE


class Unimplemented(LandbridgeError):
    """This endpoint does not offer that call."""

    code = grpc.StatusCode.UNIMPLEMENTED


class PermissionDenied(LandbridgeError):
    """The caller may not do that."""

    code = grpc.StatusCode.PERMISSION_DENIED


class Internal(LandbridgeError):
    """A bug on the server's side; the message names the exception."""

    code = grpc.StatusCode.INTERNAL


_CLASSES: dict[grpc.StatusCode, type[LandbridgeError]] = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        FailedPrecondition,
        NotFound,
        AlreadyExists,
        ResourceExhausted,
        DeadlineExceeded,
        Aborted,
        DataLoss,
        Unavailable,
        Unimplemented,
        PermissionDenied,
        Internal,
    )
}
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def to_status(error: LandbridgeError) -> status_pb2.Status:
    """The google.rpc.Status of an error, with field violation, retry hint and class as details."""
    status = status_pb2.Status(code=error.code.value[0], message=error.message)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=type(error).__name__, domain=DOMAIN))
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=to_duration(error.retry_after)))
    return status


def from_code(code: int, message: str, retry_after: float | None = None, field: str = "") -> LandbridgeError:
    """The error class of a numeric status code (used where a status travels inside a stream's message)."""
    cls = _CLASSES.get(_BY_NUMBER.get(code, grpc.StatusCode.UNKNOWN), LandbridgeError)
    return cls(message, field=field, retry_after=retry_after)


def from_rpc_error(error: grpc.RpcError) -> LandbridgeError:
    """The client's side of :func:`to_status`; works on any server's statuses, richer on ours."""
    call: Any = error if hasattr(error, "trailing_metadata") else None
    if call is None:
        return from_code(code_pb2.UNKNOWN, str(error))
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # details and status disagree: trust the plain status
        status = None
    if status is None:
        return from_code(call.code().value[0], call.details() or str(error))
    field, retry = "", None
    bad, info = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
        elif detail.Unpack(info):
            retry = to_seconds(info.retry_delay)
    return from_code(status.code, status.message, retry, field)


@dataclass(frozen=True)
class Path:
    """A field path that grows as a message is descended: ``Path("observation")["state"] / "raw"``."""

    text: str

    def __truediv__(self, name: str) -> Path:
        return Path(f"{self.text}.{name}")

    def __getitem__(self, key: str | int) -> Path:
        return Path(f"{self.text}[{key!r}]" if isinstance(key, int) else f'{self.text}["{key}"]')

    def __str__(self) -> str:
        return self.text
