"""PolicyService over real gRPC: the compliance suite, and what it cannot ask of a stranger's server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import duration_pb2
from policy_parts import (
    HASH,
    TIMEOUT,
    HeldUp,
    assert_is_of_its_version,
    computed_here,
    make_policy,
    observation,
    serving,
    state_of,
)

from landbridge import rpc
from landbridge.errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    LandbridgeError,
    NotFound,
    ResourceExhausted,
)
from landbridge.policy import compliance
from landbridge.policy.client import PolicyClient
from landbridge.policy.messages import build_request
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc, weights_pb2
from landbridge.weights import changed, iter_buckets, make_manifest
from policy_server.serve import PolicyServer

Served = tuple[PolicyServer, HeldUp, PolicyClient]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, keep=3) as (server, backend), PolicyClient(server.address, TIMEOUT) as client:
        yield server, backend, client


def push(client: PolicyClient, version: int, **options: Any) -> pb.PushWeightsResponse:
    state = options.pop("state", None) or state_of(version)
    return client.push_weights(state, version=version, **({"architecture_hash": HASH} | options))


def test_the_server_passes_the_compliance_suite(served: Served) -> None:
    verdicts = compliance.run(served[0].address)
    assert len(verdicts) > 20
    assert [(v.name, v.message) for v in verdicts if not v.passed] == []


@pytest.mark.parametrize("rows", [1, 2, 7, 32])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_row_is_the_same_alone_and_in_any_batch(served: Served, rows: int, deterministic: bool) -> None:
    obs, seeds = observation(32), list(range(100, 132))
    alone = computed_here(make_policy(0), obs, seeds, deterministic)
    for first in range(0, 32 - rows + 1, rows):
        part = slice(first, first + rows)
        answer = served[2].infer({"state": obs["state"][part]}, seeds=seeds[part], deterministic=deterministic)
        np.testing.assert_allclose(answer.actions, alone[part], rtol=0, atol=1e-6)


def test_rows_of_different_clients_in_one_batch_do_not_touch_each_other(served: Served) -> None:
    _, backend, client = served
    backend.close_gate()
    with ThreadPoolExecutor(8) as pool:
        blocker = pool.submit(client.infer, observation(1))
        backend.wait_entered()
        answers = [pool.submit(client.infer, observation(rows, seed=rows)) for rows in (1, 2, 3, 4)]
        while len(served[0].batcher._queue) < 4:
            pass
        backend.gate.set()
        blocker.result(TIMEOUT)
        for rows, future in zip((1, 2, 3, 4), answers, strict=True):
            answer = future.result(TIMEOUT)
            assert answer.batch_rows == 10
            assert_is_of_its_version(answer, observation(rows, seed=rows))


def test_the_value_is_the_critics_and_needs_the_critics_observations(served: Served) -> None:
    obs = {**observation(3), "privileged": np.ones((3, 2), np.float32)}
    answer = served[2].infer(obs, want_value=True)
    expected = make_policy(0).value({name: torch.from_numpy(a) for name, a in obs.items()}).detach().numpy()
    assert answer.value is not None
    np.testing.assert_allclose(answer.value, expected, atol=1e-6)
    with pytest.raises(InvalidArgument, match="privileged"):
        served[2].infer(observation(3), want_value=True)


def test_the_learner_recomputes_the_served_log_probability_from_the_trace(served: Served) -> None:
    obs = observation(5)
    answer = served[2].infer(obs, deterministic=False, want_trace=True)
    trace = {name: torch.from_numpy(np.array(array)) for name, array in answer.trace.items()}
    evaluation = make_policy(0).evaluate({"state": torch.from_numpy(obs["state"])}, trace, with_value=False)
    np.testing.assert_allclose(answer.log_prob, evaluation.log_prob.detach().numpy(), atol=1e-4)


def test_info_health_and_weights_answer_while_an_inference_runs(served: Served) -> None:
    server, backend, client = served
    backend.close_gate()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.infer, observation(1))
        backend.wait_entered()
        assert client.info().current_version == 0
        rpc.wait_serving(server.address, TIMEOUT)
        assert push(client, 1).activated and client.info().current_version == 1
        assert not running.done()
        backend.gate.set()
        assert running.result(TIMEOUT).version == 0, "what was being computed was computed with the old weights"


def test_info_answers_though_every_stream_and_every_place_in_the_queue_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path, max_streams=2, max_queued=4) as (server, backend), PolicyClient(server.address) as client:
        backend.close_gate()
        with client.stream() as one, client.stream() as two, ThreadPoolExecutor(8) as pool:
            one.send(observation(1))
            backend.wait_entered()
            two.send(observation(1))
            futures = [pool.submit(client.infer, observation(1)) for _ in range(6)]
            refused = [f for f in futures if isinstance(_settled(f, 0.5), ResourceExhausted)]
            assert len(refused) == 4, "four places: one in work, three waiting"
            third = client.stream()
            with pytest.raises(ResourceExhausted, match="2 streams"):
                third.infer(observation(1))
            assert client.info().horizon == 4
            backend.gate.set()
            one.receive(), two.receive()
            assert sum(f.exception(TIMEOUT) is None for f in futures) == 2


def _settled(future: Any, seconds: float) -> BaseException | None:
    try:
        return future.exception(seconds)  # type: ignore[no-any-return]
    except TimeoutError:
        return None


def test_a_version_named_is_the_one_that_answers_and_stays_held(served: Served) -> None:
    client = served[2]
    push(client, 1)
    for version in range(2, 8):
        answer = client.infer(observation(2), version=1)
        assert answer.version == 1
        assert_is_of_its_version(answer, observation(2))
        push(client, version)
    listed = client.list_weights()
    assert [(v.version, v.pinned) for v in listed.versions] == [(1, True), (5, False), (6, False), (7, False)]
    assert listed.current_version == 7 and listed.versions[0].bytes == sum(a.nbytes for a in state_of(1).values())


def test_rolling_back(served: Served) -> None:
    client = served[2]
    push(client, 1, training_step=50)
    assert client.infer(observation(1)).version == 1
    assert client.activate(0) == 1
    answer = client.infer(observation(1))
    assert answer.version == 0
    assert_is_of_its_version(answer, observation(1))
    assert [v.training_step for v in client.list_weights().versions] == [0, 50]


def test_a_staged_version_waits_for_its_activation(served: Served) -> None:
    client = served[2]
    reply = push(client, 1, activate=False)
    assert not reply.activated and list(reply.held_versions) == [0, 1]
    assert client.infer(observation(1)).version == 0
    client.activate(1)
    assert client.infer(observation(1)).version == 1


def test_a_push_of_changes_gives_the_whole_new_version(served: Served) -> None:
    client = served[2]
    part = changed(state_of(1), state_of(0))
    assert 0 < len(part) < len(state_of(1))
    push(client, 1, state=part, base_version=0)
    answer = client.infer(observation(3))
    assert answer.version == 1
    assert_is_of_its_version(answer, observation(3))


NAME = next(iter(state_of(0)))


def parts(state: dict[str, Any], **manifest: Any) -> list[pb.PushWeightsRequest]:
    made = make_manifest(state, **({"version": 5, "architecture_hash": HASH} | manifest))
    buckets = [pb.PushWeightsRequest(bucket=bucket) for bucket in iter_buckets(state)]
    return [pb.PushWeightsRequest(manifest=made), *buckets]


def corrupted() -> list[pb.PushWeightsRequest]:
    made = parts(state_of(5))
    made[-1].bucket.data = bytes([made[-1].bucket.data[0] ^ 1]) + made[-1].bucket.data[1:]
    return made


BROKEN_PUSHES: dict[str, tuple[type[LandbridgeError], str, Any]] = {
    "architecture": (FailedPrecondition, "architecture 0000", lambda: parts(state_of(5), architecture_hash="0" * 64)),
    "base version": (FailedPrecondition, "version 77, which is not held", lambda: parts(state_of(5), base_version=77)),
    "checksum": (DataLoss, "checksum", corrupted),
    "a bucket short": (DataLoss, "never came", lambda: parts(state_of(5))[:-1]),
    "a tensor short": (DataLoss, NAME, lambda: parts({n: a for n, a in state_of(5).items() if n != NAME})),
    "unknown name": (InvalidArgument, "extra", lambda: parts(state_of(5) | {"extra": np.zeros(3, np.float32)})),
    "shape": (InvalidArgument, "expected", lambda: parts(state_of(5) | {NAME: np.zeros(99, np.float32)})),
    "dtype": (InvalidArgument, "float64", lambda: parts({n: a.astype(np.float64) for n, a in state_of(5).items()})),
    "other contents": (AlreadyExists, "version 1", lambda: parts(state_of(5), version=1)),
    "no manifest": (InvalidArgument, "manifest", lambda: parts(state_of(5))[1:]),
    "two manifests": (InvalidArgument, "one manifest", lambda: parts(state_of(5)) + parts(state_of(5))),
    "nothing at all": (InvalidArgument, "manifest", list),
    "overlap": (InvalidArgument, "overlap", lambda: [*parts(state_of(5)), parts(state_of(5))[-1]]),
}


@pytest.mark.parametrize("kind", BROKEN_PUSHES)
def test_a_broken_push_says_why_and_leaves_everything_as_it_was(served: Served, kind: str) -> None:
    server, _, client = served
    push(client, 1)
    error, says, make = BROKEN_PUSHES[kind]
    before = client.list_weights()
    with rpc.channel(server.address) as link:
        stub = policy_pb2_grpc.PolicyServiceStub(link)
        with pytest.raises(error, match=says):
            rpc.call(stub.PushWeights, iter(make()), TIMEOUT)
    assert client.list_weights() == before
    answer = client.infer(observation(2))
    assert answer.version == 1
    assert_is_of_its_version(answer, observation(2))


def test_the_same_push_again_is_accepted(served: Served) -> None:
    push(served[2], 1)
    assert push(served[2], 1).activated


def test_a_client_that_dies_in_mid_push_leaves_everything_as_it_was(served: Served) -> None:
    server, _, client = served
    with rpc.channel(server.address) as link:
        stub = policy_pb2_grpc.PolicyServiceStub(link)

        def half() -> Iterator[pb.PushWeightsRequest]:
            yield from parts(state_of(5))[:2]
            raise RuntimeError("the learner died")

        with pytest.raises(LandbridgeError):
            rpc.call(stub.PushWeights, half(), TIMEOUT)
    assert client.info().held_versions == (0,)
    push(client, 1)


def test_a_pause_holds_answers_back_and_only_its_lease_ends_it(served: Served) -> None:
    client = served[2]
    lease = client.pause(30.0)
    assert client.info().paused
    with pytest.raises(DeadlineExceeded):
        client.infer(observation(1), timeout=0.2)
    with pytest.raises(NotFound, match="lease"):
        client.resume("someone else's")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.infer, observation(1))
        client.resume(lease)
        assert waiting.result(TIMEOUT).version == 0
    assert not client.info().paused


def test_a_pause_ends_by_itself_whatever_becomes_of_who_asked(served: Served) -> None:
    server, _, client = served
    with PolicyClient(server.address) as other:
        lease = other.pause(0.2)
    assert client.infer(observation(1)).version == 0
    client.resume(lease)


def test_on_a_stream_a_newer_observation_of_a_session_takes_the_older_ones_place(served: Served) -> None:
    _, backend, client = served
    backend.close_gate()
    with client.stream() as stream:
        stream.send(observation(1), session_id="robot", episode_id="e", observation_id=1)
        backend.wait_entered()
        for index in (2, 3, 4):
            stream.send(observation(1), session_id="robot", episode_id="e", observation_id=index)
        while not (waiting := served[0].batcher._waiting.get("robot")) or waiting.stamp.observation < 4:
            pass
        backend.gate.set()
        assert stream.receive().observation_id == 1
        for _ in (2, 3):
            with pytest.raises(Aborted):
                stream.receive()
        assert stream.receive().observation_id == 4


def test_after_a_reset_an_answer_under_way_carries_the_old_episode(served: Served) -> None:
    _, backend, client = served
    backend.close_gate()
    with client.stream() as stream:
        stream.send(observation(1), session_id="robot", episode_id="old", observation_id=9)
        backend.wait_entered()
        client.reset_session("robot")
        stream.send(observation(1), session_id="robot", episode_id="new", observation_id=1)
        backend.gate.set()
        assert [stream.receive().episode_id for _ in range(2)] == ["old", "new"]


def test_an_expired_request_is_never_computed(served: Served) -> None:
    _, backend, client = served
    backend.close_gate()
    with client.stream() as stream:
        stream.send(observation(1))
        backend.wait_entered()
        backend.batches.clear()
        stream.send(observation(7), timeout=0.01)
        late = _eventually(lambda: list(served[0].batcher._queue))[0]
        while not late.settled and late.deadline > time.monotonic():
            pass
        backend.gate.set()
        stream.receive()
        with pytest.raises(DeadlineExceeded):
            stream.receive()
        assert stream.infer(observation(2)).batch_rows == 2
    assert backend.batches == [2]


def _eventually(look: Any) -> Any:
    while not (found := look()):
        pass
    return found


def test_a_request_without_any_deadline_is_answered_too(served: Served) -> None:
    with rpc.channel(served[0].address) as link:
        reply = policy_pb2_grpc.PolicyServiceStub(link).Infer(build_request(3, observation(1)))
    assert reply.request_id == 3 and reply.timings.batch_rows == 1


def test_a_negative_timeout_has_passed(served: Served) -> None:
    request = build_request(3, observation(1))
    request.timeout.CopyFrom(duration_pb2.Duration(seconds=-5))
    with rpc.channel(served[0].address) as link, pytest.raises(DeadlineExceeded):
        rpc.call(policy_pb2_grpc.PolicyServiceStub(link).Infer, request, TIMEOUT)


def test_the_manifest_alone_is_enough_for_a_push_without_changes(served: Served) -> None:
    manifest = weights_pb2.WeightsManifest(version=9, architecture_hash=HASH, base_version=0, activate=True)
    with rpc.channel(served[0].address) as link:
        stub = policy_pb2_grpc.PolicyServiceStub(link)
        rpc.call(stub.PushWeights, iter([pb.PushWeightsRequest(manifest=manifest)]), TIMEOUT)
    assert served[2].info().current_version == 9
