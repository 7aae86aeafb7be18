"""One trace follows a call from client to server; switched off, telemetry is not even imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from landbridge import rpc, telemetry
from landbridge.errors import FailedPrecondition, NotFound
from landbridge.v1 import env_pb2, env_pb2_grpc

sdk = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


class Echo(env_pb2_grpc.EnvServiceServicer):
    """Enough of an environment to be called."""

    def GetInfo(self, request: Any, context: grpc.ServicerContext) -> env_pb2.EnvInfo:
        with telemetry.span("look up", answer=42):
            return env_pb2.EnvInfo(name="echo")

    def Open(self, request: Any, context: grpc.ServicerContext) -> env_pb2.OpenResponse:
        raise NotFound("no such session")

    def StepStream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[env_pb2.StepResponse]:
        for request in requests:
            with telemetry.span("step"):
                answer = env_pb2.StepResponse(request_id=request.request_id)
            yield answer


class Recorder:
    """The spans exported so far, awaited by name: a server's span ends after the client has its answer."""

    def __init__(self) -> None:
        self._memory = sdk.InMemorySpanExporter()
        self._more = threading.Condition()

    def export(self, spans: Any) -> Any:
        with self._more:
            self._more.notify_all()
            return self._memory.export(spans)

    def shutdown(self) -> None:
        self._memory.shutdown()

    def wait(self, count: int) -> list[Any]:
        with self._more:
            self._more.wait_for(lambda: len(self._memory.get_finished_spans()) >= count, timeout=10)
            return list(self._memory.get_finished_spans())


@pytest.fixture
def spans() -> Iterator[Recorder]:
    recorder = Recorder()
    assert telemetry.configure("test", exporter=recorder)
    yield recorder
    telemetry.shutdown()


@pytest.fixture
def stub(spans: Recorder) -> Iterator[env_pb2_grpc.EnvServiceStub]:
    descriptor = env_pb2.DESCRIPTOR.services_by_name["EnvService"]
    server = rpc.Server([rpc.Service(env_pb2_grpc.add_EnvServiceServicer_to_server, Echo(), descriptor)])
    with rpc.channel(server.start()) as link:
        yield env_pb2_grpc.EnvServiceStub(link)
    server.stop(0)


def chain(spans: list[Any], name: str, kind: str | None = None) -> list[str]:
    """Names from the span called ``name`` up to the root, by parent ids."""
    by_id = {span.context.span_id: span for span in spans}
    span = next(span for span in spans if span.name == name and (kind is None or span.kind.name == kind))
    found = [span.name]
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        found.append(span.name)
    return found


def test_one_trace_follows_a_call_from_client_to_server(spans: Recorder, stub: Any) -> None:
    with telemetry.span("episode"):
        rpc.call(stub.GetInfo, env_pb2.GetEnvInfoRequest())
    done = spans.wait(4)
    method = "landbridge.v1.EnvService/GetInfo"
    assert chain(done, "look up") == ["look up", method, method, "episode"]
    assert len({span.context.trace_id for span in done}) == 1
    assert sorted(span.kind.name for span in done) == ["CLIENT", "INTERNAL", "INTERNAL", "SERVER"]
    assert next(span for span in done if span.name == "look up").attributes["answer"] == 42


def test_the_work_of_a_stream_belongs_to_the_stream(spans: Recorder, stub: Any) -> None:
    requests = [env_pb2.StepChunkRequest(request_id=i) for i in range(3)]
    with telemetry.span("episode"):
        answers = list(stub.StepStream(iter(requests), timeout=10))
    assert [answer.request_id for answer in answers] == [0, 1, 2]
    done = spans.wait(6)
    method = "landbridge.v1.EnvService/StepStream"
    assert sum(span.name == "step" for span in done) == 3
    assert chain(done, "step") == ["step", method, method, "episode"]


def test_a_failure_is_seen_on_both_sides(spans: Recorder, stub: Any) -> None:
    with pytest.raises(NotFound):
        rpc.call(stub.Open, env_pb2.OpenRequest())
    done = spans.wait(2)
    assert [span.status.status_code.name for span in done] == ["ERROR", "ERROR"]
    client = next(span for span in done if span.kind.name == "CLIENT")
    assert client.status.description == "NOT_FOUND: no such session"


def test_off_means_no_interceptor_and_one_shared_span() -> None:
    assert not telemetry.enabled()
    assert not telemetry.configure("test")
    assert not telemetry.client_interceptors() and not telemetry.server_interceptors()
    assert telemetry.span("a", b=1) is telemetry.span("c")
    with telemetry.span("a") as span:
        span.set_attribute("x", 1)


def test_shutdown_turns_it_off() -> None:
    telemetry.configure("test", exporter=Recorder())
    assert telemetry.enabled()
    telemetry.shutdown()
    telemetry.shutdown()
    assert not telemetry.enabled()


def in_process(code: str, **env: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={"PATH": "", **env}, capture_output=True, text=True, timeout=60).stdout.strip()


IMPORTED = "print([m for m in sys.modules if m.partition('.')[0] == 'opentelemetry'])"


def test_off_means_opentelemetry_is_not_imported() -> None:
    code = f"""
import sys
from landbridge import rpc, telemetry
telemetry.configure("test")
server = rpc.Server([])
with rpc.channel(server.start()), telemetry.span("x"):
    rpc.wait_serving(server.address, 10)
server.stop(0)
{IMPORTED}
"""
    assert in_process(code) == "[]"


def test_the_endpoint_variable_turns_it_on() -> None:
    code = "from landbridge import telemetry; print(telemetry.configure('x')); telemetry.shutdown()"
    assert in_process(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") == "True"


def test_asked_for_but_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'landbridge\[telemetry\]'"):
        telemetry.configure("x", "http://127.0.0.1:9")
