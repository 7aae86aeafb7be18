"""OpenTelemetry spans that follow a call from process to process; nothing at all while off.

Off (the default) means: :func:`span` returns one shared object that does nothing, servers and channels get no
interceptors, and no ``opentelemetry`` module is imported. :func:`configure` turns it on for the process; channels
and servers made afterwards carry the W3C ``traceparent`` in gRPC metadata.

Metadata travels once a call, so a stream is one span: its messages are told apart by attributes, not by parents.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc

from landbridge.errors import FailedPrecondition

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class _NoSpan(AbstractContextManager["_NoSpan"]):
    """What :func:`span` gives while telemetry is off."""

    __slots__ = ()

    def __exit__(self, *exc: object) -> None:
        return None

    def set_attribute(self, key: str, value: Any) -> None:
        """Ignored."""


_NO_SPAN = _NoSpan()


@dataclass(frozen=True)
class _Tracing:
    """What is needed while telemetry is on; modules are held here so that nothing imports them while it is off."""

    provider: Any
    tracer: Any
    trace: Any
    propagator: Any


_tracing: _Tracing | None = None


def enabled() -> bool:
    """Whether spans are recorded in this process."""
    return _tracing is not None


def configure(service_name: str, endpoint: str | None = None, *, exporter: Any = None) -> bool:
    """Turn tracing on where an OTLP endpoint is given; returns whether it is on.

    ``endpoint`` is ``http://host:4317``; absent, ``OTEL_EXPORTER_OTLP_ENDPOINT`` decides, and absent that too,
    telemetry stays off. ``exporter`` replaces OTLP by any OpenTelemetry span exporter, called span by span.
    FAILED_PRECONDITION where it is asked for and the packages are missing. Call it before making servers or channels.
    """
    global _tracing
    endpoint = endpoint or os.environ.get(ENDPOINT_VARIABLE)
    if exporter is None and not endpoint:
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if exporter is not None:
            processor: Any = SimpleSpanProcessor(exporter)
        else:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            insecure = not str(endpoint).startswith("https://")
            processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=5))
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"telemetry was asked for ({endpoint}) but the package {error.name!r} is missing; "
            f"pip install 'landbridge[telemetry]', or unset {ENDPOINT_VARIABLE}"
        ) from error
    shutdown()
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(processor)
    _tracing = _Tracing(provider, provider.get_tracer("landbridge"), trace, TraceContextTextMapPropagator())
    return True


def shutdown() -> None:
    """Export what is pending and turn telemetry off. Harmless when it is off."""
    global _tracing
    tracing, _tracing = _tracing, None
    if tracing is not None:
        tracing.provider.shutdown()


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    """A span around a ``with`` block, child of the current one. Yields an object with ``set_attribute(key, value)``."""
    if _tracing is None:
        return _NO_SPAN
    made: AbstractContextManager[Any] = _tracing.tracer.start_as_current_span(name, attributes=attributes)
    return made


def server_interceptors() -> Sequence[grpc.ServerInterceptor]:
    """Interceptors for ``grpc.server``; none while telemetry is off."""
    return [_ServerInterceptor(_tracing)] if _tracing is not None else []


def client_interceptors() -> Sequence[Any]:
    """Interceptors for ``grpc.intercept_channel``; none while telemetry is off."""
    return [_ClientInterceptor(_tracing)] if _tracing is not None else []


def _call_attributes(method: str) -> dict[str, str]:
    service, _, name = method.lstrip("/").partition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


class _ServerInterceptor(grpc.ServerInterceptor):
    """Runs every call in a server span whose parent is the caller's."""

    def __init__(self, tracing: _Tracing) -> None:
        self._tracing = tracing

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        metadata = {key: value for key, value in details.invocation_metadata if isinstance(value, str)}
        request, response = handler.request_streaming, handler.response_streaming
        kind = f"{'stream' if request else 'unary'}_{'stream' if response else 'unary'}"
        wrap = self._stream if response else self._unary
        build = getattr(grpc, f"{kind}_rpc_method_handler")
        wrapped = wrap(getattr(handler, kind), details.method, metadata)
        return build(wrapped, handler.request_deserializer, handler.response_serializer)

    @contextlib.contextmanager
    def _server_span(self, method: str, metadata: dict[str, str]) -> Iterator[Any]:
        tracing = self._tracing
        made = tracing.tracer.start_span(
            method.lstrip("/"),
            context=tracing.propagator.extract(metadata),
            kind=tracing.trace.SpanKind.SERVER,
            attributes=_call_attributes(method),
        )
        try:
            yield made
        except Exception as error:
            made.record_exception(error)
            made.set_status(tracing.trace.StatusCode.ERROR, str(error))
            raise
        finally:
            made.end()

    def _unary(self, behaviour: Callable[..., Any], method: str, metadata: dict[str, str]) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Any:
            with self._server_span(method, metadata) as made, self._tracing.trace.use_span(made):
                return behaviour(request, context)

        return call

    def _stream(self, behaviour: Callable[..., Any], method: str, metadata: dict[str, str]) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Iterator[Any]:
            with self._server_span(method, metadata) as made:
                answers = iter(behaviour(request, context))
                while True:
                    # Current only while the handler runs: gRPC may close this generator from another thread.
                    with self._tracing.trace.use_span(made):
                        try:
                            answer = next(answers)
                        except StopIteration:
                            return
                    yield answer

        return call


class _CallDetails(NamedTuple):
    """``grpc.ClientCallDetails`` with the fields gRPC reads."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Opens a client span for every call and sends its context along; the span ends with the call."""

    def __init__(self, tracing: _Tracing) -> None:
        self._tracing = tracing

    def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        tracing = self._tracing
        made = tracing.tracer.start_span(
            details.method.lstrip("/"), kind=tracing.trace.SpanKind.CLIENT, attributes=_call_attributes(details.method)
        )
        carrier: dict[str, str] = {}
        tracing.propagator.inject(carrier, context=tracing.trace.set_span_in_context(made))
        metadata = [*(details.metadata or ()), *carrier.items()]
        fields = (details.credentials, details.wait_for_ready, details.compression)
        answer = continuation(_CallDetails(details.method, details.timeout, metadata, *fields), request)

        def end(finished: Any) -> None:
            code = finished.code()
            if code is not grpc.StatusCode.OK:
                made.set_status(tracing.trace.StatusCode.ERROR, f"{code.name}: {finished.details()}")
            made.end()

        answer.add_done_callback(end)
        return answer

    intercept_unary_unary = _call  # type: ignore[assignment]
    intercept_unary_stream = _call  # type: ignore[assignment]
    intercept_stream_unary = _call  # type: ignore[assignment]
    intercept_stream_stream = _call  # type: ignore[assignment]
