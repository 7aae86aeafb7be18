"""EnvService and its client, over gRPC, on environments of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from env_parts import LocalBackend, served

from landbridge import rpc
from landbridge.env.client import EnvClient, EnvSession
from landbridge.env.protocol import ChunkResult
from landbridge.env.service import EnvServicer
from landbridge.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from landbridge.tensors import encode
from landbridge.v1 import env_pb2 as pb


@pytest.fixture
def backend() -> LocalBackend:
    return LocalBackend(num_envs=3, max_episode_steps=10)


@pytest.fixture
def client(backend: LocalBackend) -> Iterator[EnvClient]:
    with served(EnvServicer(backend, max_chunk=32)) as made:
        yield made


def push(count: int, length: int = 2, value: float = 0.5) -> np.ndarray:
    return np.full((count, length, 1), value, np.float32)


def test_info_tells_what_is_offered(client: EnvClient, backend: LocalBackend) -> None:
    info = client.info()
    assert (info.name, info.kind, info.num_envs, info.free_envs) == ("gymnasium:Pendulum-v1", "simulator", 3, 3)
    assert info.contract == backend.contract
    assert (info.max_episode_steps, info.max_chunk) == (10, 32)


def test_results_over_grpc_are_those_in_process_exactly(client: EnvClient) -> None:
    direct = LocalBackend(num_envs=2, max_episode_steps=10)
    for stream in (False, True):
        with client.open(2, stream=stream) as session:
            first = session.reset(seeds=[4, 5])
            wanted = direct.reset([0, 1], [4, 5], {})
            assert np.array_equal(first.observation["state"], [w.observation["state"] for w in wanted])
            for _ in range(4):
                got = session.step_chunk(push(2, 3))
                results = direct.step_chunk([0, 1], push(2, 3), True, 1.0)
                assert np.array_equal(got.observation["state"], [r.observation["state"] for r in results])
                assert np.array_equal(got.rewards, [r.rewards for r in results])
                assert got.executed.tolist() == [r.executed for r in results]
                assert got.truncated.tolist() == [r.truncated for r in results]
            assert got.executed.tolist() == [1, 1] and got.done.all(), "ten steps: the last chunk ends early"


def test_what_a_client_gets_may_be_written_to(client: EnvClient) -> None:
    with client.open(1) as session:
        session.reset(seeds=[1]).observation["state"][:] = 0
        step = session.step_chunk(push(1))
        step.observation["state"][:] = step.rewards[:] = 0


def test_life_of_an_environment(client: EnvClient) -> None:
    with client.open(2) as session:
        with pytest.raises(FailedPrecondition, match=r"0 \(not reset yet\), 1 \(not reset yet\)"):
            session.step_chunk(push(2))
        session.reset([0], [1])
        with pytest.raises(FailedPrecondition, match=r"1 \(not reset yet\).*nothing was stepped"):
            session.step_chunk(push(2))
        assert session.step_chunk(push(1, 10), [0]).truncated.all()
        session.reset([1], [1])
        with pytest.raises(FailedPrecondition, match=r"0 \(ended\)"):
            session.step_chunk(push(2))
        assert session.step_chunk(push(1), [1]).episode_steps.tolist() == [2], "the refused call moved nobody"
        session.reset([0], [2])
        assert session.step_chunk(push(1), [0]).episode_steps.tolist() == [2]


@pytest.mark.parametrize(
    ("actions", "field"),
    [
        (push(1), "actions.shape"),
        (push(2)[..., [0, 0]], "actions.shape"),
        (push(2)[:, 0], "actions.shape"),
        (push(2).astype(np.float64), "actions.dtype"),
        (push(2)[:, :0], "actions.shape"),
        (push(2, 33), "actions.shape"),
        (np.where(np.arange(4).reshape(2, 2, 1) == 3, np.nan, push(2)).astype(np.float32), "actions[1, 1, 0]"),
        (np.where(np.arange(4).reshape(2, 2, 1) == 1, -np.inf, push(2)).astype(np.float32), "actions[0, 1, 0]"),
    ],
)
def test_wrong_actions_name_the_field_and_move_nothing(client: EnvClient, actions: np.ndarray, field: str) -> None:
    with client.open(2) as session:
        session.reset(seeds=[1, 2])
        with pytest.raises(InvalidArgument) as caught:
            session.step_chunk(actions)
        assert caught.value.field == field
        assert session.step_chunk(push(2)).episode_steps.tolist() == [2, 2]


def test_environment_ids_and_seeds_are_checked(client: EnvClient) -> None:
    with client.open(2) as session:
        for ids, seeds, field in [([2], [1], "env_ids"), ([-1], [1], "env_ids"), ([1, 1], [1, 1], "env_ids")]:
            with pytest.raises(InvalidArgument) as caught:
                session.reset(ids, seeds)
            assert caught.value.field == field
        with pytest.raises(InvalidArgument, match="1 for 2 environments"):
            session.reset(seeds=[1])


def test_sessions_number_their_own_environments_from_0(client: EnvClient) -> None:
    with client.open(2) as first, client.open(1) as second:
        first.reset(seeds=[1, 2])
        second.reset([0], [3])
        second.step_chunk(push(1), [0])
        assert first.step_chunk(push(2)).episode_steps.tolist() == [2, 2], "their environment 0 is not ours"
        with pytest.raises(ResourceExhausted) as caught:
            client.open(1)
        assert caught.value.retry_after
    assert client.info().free_envs == 3


def test_a_robot_is_taken_as_a_whole(backend: LocalBackend) -> None:
    backend.kind = "robot"
    with served(EnvServicer(backend)) as client, client.open(1) as session:
        assert session.num_envs == 3
        with pytest.raises(ResourceExhausted):
            client.open(1)


def test_episode_ids_are_unique_and_observation_ids_ascend(client: EnvClient) -> None:
    with client.open(2) as session:
        ids = [name for _ in range(3) for name in session.reset(seeds=[1, 1]).episode_ids]
        assert len(set(ids)) == 6
        assert [session.step_chunk(push(2)).observation_ids for _ in range(2)] == [(1, 1), (2, 2)]


def test_a_chunk_for_an_observation_never_given_is_refused(client: EnvClient) -> None:
    with client.open(1) as session:
        session.reset(seeds=[1])
        request = pb.StepChunkRequest(session_id=session.id, actions=encode(push(1)), observation_ids=[5])
        with pytest.raises(InvalidArgument, match="newest is 0"):
            rpc.call(client.stub.StepChunk, request)
        request.observation_ids[:] = [0]
        rpc.call(client.stub.StepChunk, request)


def test_after_close_the_session_is_unknown(client: EnvClient) -> None:
    session = client.open(1)
    session.close()
    session.close()
    with pytest.raises(NotFound):
        session.reset(seeds=[1])


def test_a_stream_answers_in_order_and_survives_a_refusal(client: EnvClient) -> None:
    with client.open(1) as session:
        session.reset(seeds=[1])
        stream = session.stream()
        for actions in (push(1), push(2), push(1), push(1, 10), push(1)):
            stream.send(actions)
        assert stream.receive().episode_steps[0] == 2
        with pytest.raises(InvalidArgument):
            stream.receive()
        assert stream.receive().episode_steps[0] == 4
        assert stream.receive().executed[0] == 6
        with pytest.raises(FailedPrecondition, match="ended"):
            stream.receive()
        with pytest.raises(FailedPrecondition, match="nothing was sent"):
            stream.receive()
        stream.close()
        with pytest.raises(FailedPrecondition, match="open another"):
            stream.send(push(1))


def test_states_and_pictures(client: EnvClient, backend: LocalBackend) -> None:
    with client.open(1) as session:
        with pytest.raises(FailedPrecondition):
            session.save_state(0)
        session.reset(seeds=[1])
        at = session.step_chunk(push(1)).observation["state"]
        state = session.save_state(0)
        wanted = session.step_chunk(push(1)).observation["state"]
        assert np.array_equal(session.restore_state(0, state)["state"], at)
        assert np.array_equal(session.step_chunk(push(1)).observation["state"], wanted)
        with pytest.raises(Unimplemented):
            session.render(0)
    with served(EnvServicer(backend, can_save_state=False)) as other, other.open(1) as session:
        session.reset(seeds=[1])
        with pytest.raises(Unimplemented):
            session.save_state(0)


class SlowBackend(LocalBackend):
    """Chunks take until ``release`` is set; counts who is inside."""

    def __init__(self, num_envs: int = 2) -> None:
        super().__init__(num_envs=num_envs)
        self.release = threading.Event()
        self.inside: list[int] = []
        self.entered = threading.Semaphore(0)

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        assert not set(env_ids) & set(self.inside), "two calls in one environment"
        self.inside += env_ids
        self.entered.release()
        self.release.wait(5.0)
        for i in env_ids:
            self.inside.remove(i)
        return super().step_chunk(env_ids, actions, evaluate_every_step, deadline_s)


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(call())
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, got


def test_two_clients_step_side_by_side_and_one_environment_does_one_thing_at_a_time() -> None:
    backend = SlowBackend()
    with served(EnvServicer(backend)) as client, client.open(1) as first, client.open(1) as second:
        for session in (first, second):
            session.reset(seeds=[1])
        threads = [in_thread(lambda s=s: s.step_chunk(push(1))) for s in (first, second, first)]
        assert backend.entered.acquire(timeout=5.0) and backend.entered.acquire(timeout=5.0)
        assert len(backend.inside) == 2, "both are inside at once; the third call waits for its environment"
        backend.release.set()
        for thread, got in threads:
            thread.join(5.0)
            assert not isinstance(got[0], Exception)


def test_environments_closed_in_mid_call_come_back_after_the_call() -> None:
    backend = SlowBackend(num_envs=1)
    with served(EnvServicer(backend)) as client:
        session = client.open(1)
        session.reset(seeds=[1])
        thread, _ = in_thread(lambda: session.step_chunk(push(1)))
        assert backend.entered.acquire(timeout=5.0)
        session.close()
        assert client.info().free_envs == 0, "somebody still moves it"
        backend.release.set()
        thread.join(5.0)
        deadline = time.monotonic() + 5.0
        while client.info().free_envs == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.info().free_envs == 1


@pytest.mark.parametrize("stream", [False, True])
def test_after_a_deadline_an_environment_must_be_reset(stream: bool) -> None:
    backend = SlowBackend(num_envs=1)
    with served(EnvServicer(backend)) as client, client.open(1, stream=stream) as session:
        session.reset(seeds=[1])
        threading.Timer(0.3, backend.release.set).start()
        with pytest.raises(DeadlineExceeded):
            session.step_chunk(push(1), timeout=0.1)
        with pytest.raises(FailedPrecondition, match="Reset"):
            session.step_chunk(push(1))
        assert backend.limits[0] < 0.2, "the backend was told how long it has"
        session.reset(seeds=[1])
        assert session.step_chunk(push(1)).episode_steps[0] == 2


def test_a_stream_to_a_server_that_stopped_answering_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("landbridge.env.client.ANSWER_MARGIN", 0.0)
    backend = SlowBackend(num_envs=1)
    with served(EnvServicer(backend)) as client, client.open(1, stream=True) as session:
        session.reset(seeds=[1])
        with pytest.raises(DeadlineExceeded):
            session.step_chunk(push(1), timeout=0.2)
        backend.release.set()
        session.reset(seeds=[1])
        assert session.step_chunk(push(1)).episode_steps[0] == 2, "the session opens another stream by itself"


class RefusingBackend(LocalBackend):
    """Raises what it is told to."""

    error: Exception | None = None

    def step_chunk(self, *args: Any) -> list[ChunkResult]:
        if self.error is not None:
            raise self.error
        return super().step_chunk(*args)


def test_a_backend_that_refuses_has_moved_nothing_and_one_that_fails_may_have() -> None:
    backend = RefusingBackend(num_envs=1)
    with served(EnvServicer(backend)) as client, client.open(1) as session:
        session.reset(seeds=[1])
        backend.error = FailedPrecondition("the robot is not armed")
        with pytest.raises(FailedPrecondition, match="not armed"):
            session.step_chunk(push(1))
        backend.error = None
        session.step_chunk(push(1))
        backend.error = RuntimeError("a bug")
        with pytest.raises(Internal, match="a bug"):
            session.step_chunk(push(1))
        backend.error = None
        with pytest.raises(FailedPrecondition, match="Reset"):
            session.step_chunk(push(1))


def test_a_stream_reports_bugs_in_its_answers_too() -> None:
    backend = RefusingBackend(num_envs=1)
    with served(EnvServicer(backend)) as client, client.open(1, stream=True) as session:
        session.reset(seeds=[1])
        backend.error = RuntimeError("a bug")
        with pytest.raises(Internal, match="a bug"):
            session.step_chunk(push(1))
        backend.error = None
        session.reset(seeds=[1])
        session.step_chunk(push(1))


def test_a_client_learns_that_its_server_has_gone() -> None:
    servicer = EnvServicer(LocalBackend(num_envs=1))
    server = rpc.Server([servicer.service()])
    with EnvClient(server.start(), timeout=5.0) as client:
        sessions = [client.open(1, stream=True)]
        sessions[0].reset(seeds=[1])
        sessions[0].step_chunk(push(1))
        server.stop(0.0)
        servicer.close()
        with pytest.raises(Unavailable):
            sessions[0].step_chunk(push(1))
        with pytest.raises(Unavailable):
            sessions[0].reset(seeds=[1])
        sessions[0].close()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_session_outliving_its_connection_ends_quietly(backend: LocalBackend) -> None:
    with served(EnvServicer(backend)) as client:
        other = EnvClient(client.address)
        session = EnvSession(other, client.open(1).id, 1, lease=0.3)
        other.close()
        session._keeper.join(5.0)
        assert not session._keeper.is_alive(), "there is no lease left to keep"
        session.close()
