"""The client against servers that misbehave: no wait without end, no late answer taken for the next one's."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from landbridge import rpc
from landbridge.errors import DeadlineExceeded, FailedPrecondition, Internal, NotFound, ResourceExhausted, Unavailable
from landbridge.policy.client import PolicyClient
from landbridge.tensors import encode
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc

OBS = {"state": np.zeros((1, 2), np.float32)}
Behaviour = Callable[[Iterator[pb.InferRequest]], Iterator[pb.InferResponse]]


def answer(request: pb.InferRequest, **changes: Any) -> pb.InferResponse:
    fields = {
        "request_id": request.request_id,
        "observation_id": request.observation_id,
        "actions": encode(np.full((1, 1, 1), request.observation_id, np.float32)),
        "version": 4,
    }
    return pb.InferResponse(**(fields | changes))


class Scripted(policy_pb2_grpc.PolicyServiceServicer):
    """Answers streams as the test says."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda requests: map(answer, requests)
        self.over = threading.Event()

    def InferStream(self, requests: Any, context: Any) -> Iterator[pb.InferResponse]:
        context.add_callback(self.over.set)
        yield from self.behaviour(requests)

    def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        return answer(request, request_id=request.request_id + 1)


@pytest.fixture
def server() -> Iterator[tuple[Scripted, PolicyClient]]:
    servicer = Scripted()
    descriptor = pb.DESCRIPTOR.services_by_name["PolicyService"]
    made = rpc.Server([rpc.Service(policy_pb2_grpc.add_PolicyServiceServicer_to_server, servicer, descriptor)])
    with PolicyClient(made.start(), timeout=10.0) as client:
        yield servicer, client
        servicer.over.set()
        made.stop(0)


def silent(servicer: Scripted) -> Behaviour:
    def behave(requests: Iterator[pb.InferRequest]) -> Iterator[pb.InferResponse]:
        yield answer(next(requests))
        servicer.over.wait(20)

    return behave


def test_requests_may_be_sent_ahead_and_answers_come_in_their_order(server: tuple[Scripted, PolicyClient]) -> None:
    with server[1].stream() as stream:
        for index in range(5):
            stream.send(OBS, observation_id=index)
        assert stream.under_way == 5
        assert [stream.receive().actions.item() for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(FailedPrecondition, match="unanswered"):
            stream.receive()


def test_a_request_on_its_own_refuses_to_take_the_answer_of_one_sent_ahead(
    server: tuple[Scripted, PolicyClient],
) -> None:
    with server[1].stream() as stream:
        stream.send(OBS, observation_id=1)
        with pytest.raises(FailedPrecondition, match="under way"):
            stream.infer(OBS, observation_id=2)
        assert stream.receive().observation_id == 1


def test_a_silent_server_costs_no_more_than_the_deadline_and_the_stream_is_closed(
    server: tuple[Scripted, PolicyClient],
) -> None:
    servicer, client = server
    servicer.behaviour = silent(servicer)
    with client.stream() as stream:
        stream.infer(OBS)
        with pytest.raises(DeadlineExceeded, match="reopen"):
            stream.infer(OBS, timeout=0.05)
        assert servicer.over.wait(10), "the server is told that nobody waits any more"
        with pytest.raises(FailedPrecondition, match="reopen"):
            stream.infer(OBS)


def test_a_deadline_shorter_than_the_one_before_is_kept_too(server: tuple[Scripted, PolicyClient]) -> None:
    servicer, client = server
    servicer.behaviour = silent(servicer)
    with client.stream() as stream:
        stream.infer(OBS, timeout=3600.0)
        with pytest.raises(DeadlineExceeded):
            stream.infer(OBS, timeout=0.01)


def test_a_late_answer_is_not_taken_for_the_next_ones(server: tuple[Scripted, PolicyClient]) -> None:
    servicer, client = server
    late = threading.Event()

    def slow_once(requests: Iterator[pb.InferRequest]) -> Iterator[pb.InferResponse]:
        for request in requests:
            if request.observation_id == 1:
                late.wait(20)
            yield answer(request)

    servicer.behaviour = slow_once
    with client.stream() as stream:
        with pytest.raises(DeadlineExceeded):
            stream.infer(OBS, timeout=0.01, observation_id=1)
        late.set()
        stream.reopen()
        assert stream.infer(OBS, observation_id=2).actions.item() == 2


def test_an_answer_to_another_request_is_refused_and_the_stream_is_closed(
    server: tuple[Scripted, PolicyClient],
) -> None:
    servicer, client = server
    servicer.behaviour = lambda requests: (answer(r, request_id=r.request_id - 1) for r in requests)
    with client.stream() as stream:
        with pytest.raises(Internal, match="answer to request 0 came for request 1"):
            stream.infer(OBS)
        with pytest.raises(FailedPrecondition):
            stream.infer(OBS)
    with pytest.raises(Internal, match="answer to request 2 came for request 1"):
        client.infer(OBS)


def test_ids_go_on_counting_over_a_reopened_stream(server: tuple[Scripted, PolicyClient]) -> None:
    servicer, client = server
    seen: list[int] = []
    servicer.behaviour = lambda requests: (seen.append(r.request_id) or answer(r) for r in requests)
    with client.stream() as stream:
        stream.infer(OBS)
        stream.reopen()
        stream.infer(OBS)
    assert seen == [1, 2]


def test_an_error_inside_the_stream_is_raised_as_its_class_and_the_stream_goes_on(
    server: tuple[Scripted, PolicyClient],
) -> None:
    servicer, client = server
    error = pb.RequestError(code=8, message="full")
    error.retry_after.FromNanoseconds(250_000_000)

    def fails_once(requests: Iterator[pb.InferRequest]) -> Iterator[pb.InferResponse]:
        yield pb.InferResponse(request_id=next(requests).request_id, error=error)
        yield from map(answer, requests)

    servicer.behaviour = fails_once
    with client.stream() as stream:
        with pytest.raises(ResourceExhausted, match="full") as raised:
            stream.infer(OBS)
        assert raised.value.retry_after == 0.25
        assert stream.infer(OBS).version == 4


def test_a_stream_the_server_ends_says_so_and_can_be_reopened(server: tuple[Scripted, PolicyClient]) -> None:
    servicer, client = server
    servicer.behaviour = lambda requests: map(answer, [next(requests)])
    with client.stream() as stream:
        stream.infer(OBS)
        with pytest.raises(Unavailable, match="reopen"):
            stream.infer(OBS)
        stream.reopen()
        assert stream.infer(OBS).version == 4


def test_an_error_that_ends_the_stream_keeps_its_class(server: tuple[Scripted, PolicyClient]) -> None:
    def refuse(requests: Iterator[pb.InferRequest]) -> Iterator[pb.InferResponse]:
        raise NotFound("nothing here")

    server[0].behaviour = refuse
    with server[1].stream() as stream, pytest.raises(NotFound, match="nothing here"):
        stream.infer(OBS)


def test_no_server_at_all_is_unavailable() -> None:
    with PolicyClient("127.0.0.1:1", timeout=5.0) as client, client.stream() as stream:
        with pytest.raises(Unavailable):
            stream.infer(OBS)
        with pytest.raises(Unavailable):
            client.infer(OBS)


def test_a_closed_stream_leaves_no_thread_behind(server: tuple[Scripted, PolicyClient]) -> None:
    before = threading.active_count()
    for _ in range(5):
        with server[1].stream() as stream:
            stream.infer(OBS)
    deadline = threading.Event()
    for _ in range(200):
        if not [t for t in threading.enumerate() if t.name == "infer-watchdog"]:
            break
        deadline.wait(0.05)
    assert not [t for t in threading.enumerate() if t.name == "infer-watchdog"], f"{threading.active_count()}, {before}"


def test_the_client_needs_no_torch() -> None:
    imports = "import sys, landbridge.policy.client, landbridge.policy.compliance, policy_server.cli"
    code = f"{imports}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
