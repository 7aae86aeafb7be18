"""Servers and channels, built one way everywhere: limits, health, reflection, deadlines, errors, graceful drain."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from landbridge import telemetry
from landbridge.errors import Internal, LandbridgeError, Unimplemented, from_rpc_error, to_status

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Both directions, both sides; gRPC's own default of 4 MB refuses a second camera."""

DEFAULT_TIMEOUT = 30.0
"""Deadline in seconds of calls that state none of their own."""

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Fewer wake-ups for messages of a few hundred kB; measured on loopback streams.
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    ("grpc.http2.max_frame_size", 4 * 1024 * 1024),
    ("grpc.http2.bdp_probe", 0),
]
_SERVER_OPTIONS: list[tuple[str, int | str]] = [
    *_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second server on a taken port must fail, not share it silently
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]
_CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    *_OPTIONS,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_retries", 0),  # our calls are not all idempotent: whoever may retry does so in the open
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """One gRPC service to mount: the generated ``add_…_to_server``, the servicer, its descriptor."""

    add: Callable[[Any, grpc.Server], None]
    servicer: Any
    descriptor: ServiceDescriptor


class Server:
    """A gRPC server with health, reflection and the error model. Binds to loopback unless told otherwise."""

    def __init__(
        self, services: Sequence[Service], *, host: str = "127.0.0.1", port: int = 0, max_workers: int = 64
    ) -> None:
        """``max_workers`` bounds calls under way, each open stream counting as one."""
        interceptors: list[Any] = [_ErrorInterceptor(), *telemetry.server_interceptors()]
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers, thread_name_prefix="rpc"),
            interceptors=interceptors,
            options=_SERVER_OPTIONS,
        )
        self._health = health.HealthServicer(experimental_non_blocking=True)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._names = [service.descriptor.full_name for service in services]
        for service in services:
            service.add(service.servicer, self._server)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise LandbridgeError(
                f"cannot listen on {host}:{port} ({error}); choose another --port, or 0 for any free one"
            ) from error
        self.address = f"{host}:{bound}"

    def start(self) -> str:
        """Begin to answer; returns ``host:port``."""
        self._server.start()
        self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return self.address

    def stop(self, grace: float = 2.0) -> None:
        """Refuse new calls, let those under way finish for ``grace`` seconds, then cancel them."""
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._server.stop(grace).wait(grace + 1.0)

    def _set_health(self, status: Any) -> None:
        for name in ("", *self._names):
            self._health.set(name, status)


def stop_event() -> threading.Event:
    """An event that SIGINT and SIGTERM set. Call from the main thread."""
    event = threading.Event()

    def handle(signum: int, frame: Any) -> None:
        event.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return event


class _ErrorInterceptor(grpc.ServerInterceptor):
    """Turns exceptions into statuses: ours as they are, NotImplementedError by the call's name, others INTERNAL."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        method = details.method
        if handler.response_streaming:
            kind = "stream_stream" if handler.request_streaming else "unary_stream"
            wrapped = _guard_stream(getattr(handler, kind), method)
        else:
            kind = "stream_unary" if handler.request_streaming else "unary_unary"
            wrapped = _guard_unary(getattr(handler, kind), method)
        build = getattr(grpc, f"{kind}_rpc_method_handler")
        return build(wrapped, handler.request_deserializer, handler.response_serializer)


def _guard_unary(behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(request, context)
        except Exception as error:
            _abort(error, method, context)

    return call


def _guard_stream(behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from behaviour(request, context)
        except Exception as error:
            _abort(error, method, context)

    return call


def _abort(error: Exception, method: str, context: Any) -> None:
    if isinstance(error, NotImplementedError):
        error = Unimplemented(f"{method} is not implemented by this server")
    elif not isinstance(error, LandbridgeError):
        if context.code() is not None:  # context.abort was called below us: let it pass
            raise error
        if isinstance(error, grpc.RpcError) and not context.is_active():
            raise error  # the client went away in mid-stream: there is nobody to tell
        log.exception("%s failed", method)
        error = Internal(f"{method}: {type(error).__name__}: {error}")
    context.abort_with_status(rpc_status.to_status(to_status(error)))


def channel(address: str) -> grpc.Channel:
    """A channel to ``host:port`` with the limits raised and dead peers detected within 15 s."""
    made = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    interceptors = telemetry.client_interceptors()
    return grpc.intercept_channel(made, *interceptors) if interceptors else made


def call(method: Callable[..., T], request: Any, timeout: float = DEFAULT_TIMEOUT, *, wait: bool = False) -> T:
    """One unary call with a deadline in seconds; failures come back as :class:`LandbridgeError` subclasses.

    ``wait`` waits for the server to appear, within the same deadline.
    """
    try:
        return method(request, timeout=timeout, wait_for_ready=wait)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Within it, ``grpc.RpcError`` (from streams) comes out as :class:`LandbridgeError`."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


def wait_serving(address: str, timeout: float) -> None:
    """Return once the server's health is SERVING; DEADLINE_EXCEEDED or UNAVAILABLE otherwise."""
    with channel(address) as link:
        stub = health_pb2_grpc.HealthStub(link)
        reply = call(stub.Check, health_pb2.HealthCheckRequest(), timeout, wait=True)
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise LandbridgeError(f"{address} answers but is not serving (health {reply.status})")
