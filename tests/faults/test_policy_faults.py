"""Clients that die, more load than there is room for, a server that is killed: what the others see of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_parts import (
    HASH,
    TIMEOUT,
    assert_is_of_its_version,
    computed_here,
    make_policy,
    observation,
    serving,
    state_of,
    write_checkpoint,
)

from landbridge import rpc
from landbridge.errors import LandbridgeError, NotFound, ResourceExhausted, Unavailable
from landbridge.policy.client import PolicyClient
from landbridge.policy.messages import build_request
from landbridge.process import Child, ProcessGroup
from landbridge.v1 import learner_pb2, learner_pb2_grpc, policy_pb2_grpc
from landbridge.weights import iter_buckets, make_manifest

START = 60.0


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError("it never came about")


def test_a_client_that_dies_in_mid_stream_frees_its_place_and_is_computed_for_no_more(tmp_path: Path) -> None:
    with serving(tmp_path, max_streams=1) as (server, backend), ProcessGroup() as group:
        backend.close_gate()
        code = f"""
            import time
            from landbridge.policy.client import PolicyClient
            from policy_parts import observation
            stream = PolicyClient({server.address!r}).stream()
            for _ in range(10):
                stream.send(observation(7))
            time.sleep(60)
        """
        paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
        child = group.start("client", [sys.executable, "-c", textwrap.dedent(code)], env={"PYTHONPATH": paths})
        backend.wait_entered()
        eventually(lambda: len(server.batcher._queue) == 9)
        backend.batches.clear()
        child.kill()
        eventually(lambda: len(server.servicer._lanes) == 0)
        backend.gate.set()
        with PolicyClient(server.address, TIMEOUT) as client, client.stream() as stream:
            answer = stream.infer(observation(2))
        assert_is_of_its_version(answer, observation(2))
        assert backend.batches == [2], "what the dead client had queued was not computed"


def test_a_call_that_is_cancelled_is_not_computed(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server, backend = stack.enter_context(serving(tmp_path))
        client = stack.enter_context(PolicyClient(server.address, TIMEOUT))
        stub = policy_pb2_grpc.PolicyServiceStub(stack.enter_context(rpc.channel(server.address)))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        backend.close_gate()
        running = pool.submit(client.infer, observation(1))
        backend.wait_entered()
        backend.batches.clear()
        call = stub.Infer.future(build_request(1, observation(7)), timeout=TIMEOUT)
        (queued,) = eventually(lambda: list(server.batcher._queue))
        call.cancel()
        eventually(lambda: queued.settled)
        backend.gate.set()
        running.result(TIMEOUT)
        client.infer(observation(2))
        assert backend.batches == [2]


def test_more_load_than_room_is_refused_with_a_hint_and_whoever_heeds_it_gets_through(tmp_path: Path) -> None:
    refusals: list[float] = []

    def persistent(client: PolicyClient, index: int) -> int:
        for _ in range(3000):
            try:
                return client.infer(observation(1), observation_id=index).observation_id
            except ResourceExhausted as error:
                assert error.retry_after is not None
                refusals.append(error.retry_after)
                time.sleep(min(error.retry_after, 0.05))
        raise AssertionError("never let in")

    with serving(tmp_path, max_queued=4) as (server, backend), PolicyClient(server.address, TIMEOUT) as client:
        backend.close_gate()
        with ThreadPoolExecutor(24) as pool:
            futures = [pool.submit(persistent, client, index) for index in range(24)]
            eventually(lambda: len(refusals) >= 20)
            backend.gate.set()
            assert sorted(future.result(TIMEOUT) for future in futures) == list(range(24))
    assert min(refusals) > 0


def test_a_stream_that_floods_is_told_so_request_by_request_and_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, max_queued=4) as (server, backend), PolicyClient(server.address, TIMEOUT) as client:
        backend.close_gate()
        with client.stream() as stream:
            for index in range(200):
                stream.send(observation(1), observation_id=index)
            backend.wait_entered()
            eventually(lambda: len(server.batcher._queue) == 3)
            backend.gate.set()
            outcomes = []
            for _ in range(200):
                try:
                    outcomes.append(stream.receive().version)
                except ResourceExhausted:
                    outcomes.append(None)
            assert outcomes[:4] == [0] * 4 and None in outcomes
            assert stream.infer(observation(1)).version == 0


def test_draining_answers_what_was_asked_ends_the_streams_and_is_quick(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, backend), PolicyClient(server.address, TIMEOUT) as client:
        backend.close_gate()
        stream = client.stream()
        stream.send(observation(2))
        backend.wait_entered()
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(server.stop, 10.0)
            eventually(lambda: server.servicer._draining)
            backend.gate.set()
            assert_is_of_its_version(stream.receive(), observation(2))
            with pytest.raises(Unavailable):
                stream.infer(observation(1))
            stopping.result(8.0)  # the open stream did not use the grace up


class Learner(learner_pb2_grpc.LearnerServiceServicer):
    """A learner that hands its newest weights out, and nothing else."""

    def __init__(self, version: int, architecture_hash: str = HASH) -> None:
        self.version, self.hash = version, architecture_hash

    def GetWeights(self, request: Any, context: Any) -> Iterator[learner_pb2.GetWeightsResponse]:
        state = state_of(self.version)
        manifest = make_manifest(state, version=self.version, architecture_hash=self.hash, training_step=7)
        yield learner_pb2.GetWeightsResponse(manifest=manifest)
        for bucket in iter_buckets(state, 1000):
            yield learner_pb2.GetWeightsResponse(bucket=bucket)


@contextlib.contextmanager
def learning(servicer: learner_pb2_grpc.LearnerServiceServicer) -> Iterator[str]:
    descriptor = learner_pb2.DESCRIPTOR.services_by_name["LearnerService"]
    server = rpc.Server([rpc.Service(learner_pb2_grpc.add_LearnerServiceServicer_to_server, servicer, descriptor)])
    try:
        yield server.start()
    finally:
        server.stop(0)


def start(group: ProcessGroup, checkpoint: Path, *options: str) -> Child:
    command = [sys.executable, "-m", "landbridge.cli", "policy", "serve", "--checkpoint", checkpoint, *options]
    child = group.start("policy", command, env={"OMP_NUM_THREADS": "1"})
    child.wait_serving(START)
    return child


def test_a_killed_server_comes_back_with_the_learners_newest_version_on_the_same_port(tmp_path: Path) -> None:
    checkpoint, learner = write_checkpoint(tmp_path / "checkpoint"), Learner(0)
    with learning(learner) as address, ProcessGroup() as group:
        first = start(group, checkpoint, "--port", "0", "--learner", address)
        with PolicyClient(first.address, TIMEOUT) as client, client.stream() as stream:
            before = client.info()
            assert stream.infer(observation(2)).version == 0
            learner.version = 5  # published; the push to this server had not come yet when it died
            os.kill(first.pid, signal.SIGKILL)
            with pytest.raises(Unavailable):
                stream.infer(observation(2))
            assert first.wait(TIMEOUT) == -signal.SIGKILL

            port = first.address.rpartition(":")[2]
            second = start(group, checkpoint, "--port", port, "--learner", address)
            assert second.ready_line is not None and second.ready_line["version"] == 5
            stream.reopen()
            answer = eventually(lambda: _tried(lambda: stream.infer(observation(2)), stream.reopen))
            assert answer.version == 5
            assert_is_of_its_version(answer, observation(2))
            after = client.info()
            assert after.instance_id != before.instance_id
            assert [v.training_step for v in client.list_weights().versions] == [7]
        assert "serving version 5 from the learner" in second.tail()
        second.terminate()
        assert second.wait(5.0) == 0


def _tried(call: Callable[[], Any], otherwise: Callable[[], None]) -> Any:
    try:
        return call()
    except Unavailable:  # the channel is still waiting to reconnect
        otherwise()
        return None


class Dying(Learner):
    """Breaks off in the middle of the weights."""

    def GetWeights(self, request: Any, context: Any) -> Iterator[learner_pb2.GetWeightsResponse]:
        yield from list(super().GetWeights(request, context))[:3]


@pytest.mark.parametrize(
    ("servicer", "says"),
    [
        (Dying(5), "never came"),
        (Learner(5, "0" * 64), "architecture"),
        (learner_pb2_grpc.LearnerServiceServicer(), "not implemented"),
        (None, "no weights from the learner"),
    ],
    ids=["breaks off", "other architecture", "has none", "is not there"],
)
def test_without_good_weights_from_the_learner_the_checkpoint_is_served_and_said_so(
    tmp_path: Path, servicer: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(learning(servicer)) if servicer else "127.0.0.1:1"
        server, _ = stack.enter_context(serving(tmp_path, learner=address))
        with PolicyClient(server.address, TIMEOUT) as client:
            answer = client.infer(observation(2))
        assert answer.version == 0
        assert_is_of_its_version(answer, observation(2))
    said = capsys.readouterr().err
    assert "serving the checkpoint's version 0" in said and says in said


def test_the_learners_version_0_is_served_and_not_the_checkpoints(tmp_path: Path) -> None:
    class Other(Learner):
        def GetWeights(self, request: Any, context: Any) -> Iterator[learner_pb2.GetWeightsResponse]:
            for message in super().GetWeights(request, context):
                if message.HasField("manifest"):
                    message.manifest.version = 0
                yield message

    with (
        learning(Other(3)) as address,
        serving(tmp_path, learner=address) as (server, _),
        PolicyClient(server.address, TIMEOUT) as client,
    ):
        answer = client.infer(observation(2), seeds=[1, 2])
    assert answer.version == 0
    np.testing.assert_allclose(answer.actions, computed_here(make_policy(3), observation(2), [1, 2]), atol=1e-6)


def test_a_server_ends_when_its_parent_dies(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    code = f"""
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-m", "landbridge.cli", "policy", "serve",
                          "--checkpoint", {str(checkpoint)!r}, "--port", "0"])
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        address = json.loads(parent.stdout.readline())["address"]
    finally:
        parent.kill()
        parent.wait(TIMEOUT)

    def gone() -> bool:
        with PolicyClient(address, 1.0) as client:
            try:
                client.info()
            except LandbridgeError:
                return True
        return False

    eventually(gone)
    parent.stdout.close()


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    with serving(tmp_path / "other") as (server, _):
        port = server.address.rpartition(":")[2]
        command = [sys.executable, "-m", "landbridge.cli", "policy", "serve"]
        done = subprocess.run(
            [*command, "--checkpoint", checkpoint, "--port", port], capture_output=True, text=True, timeout=START
        )
    assert done.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_versions_that_are_gone_are_not_found_and_those_held_are_listed(tmp_path: Path) -> None:
    with serving(tmp_path, keep=2) as (server, _), PolicyClient(server.address, TIMEOUT) as client:
        for version in range(1, 6):
            client.push_weights(state_of(version), version=version, architecture_hash=HASH)
        with pytest.raises(NotFound, match=r"version 1 is not held; held are \[4, 5\]"):
            client.infer(observation(1), version=1)
