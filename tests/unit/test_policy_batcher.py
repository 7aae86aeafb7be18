"""Batches: who shares one, who waits, who is turned away, and that nobody is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_parts import TIMEOUT, HeldUp, observation, state_of, write_checkpoint

from landbridge.errors import Aborted, DeadlineExceeded, Internal, LandbridgeError, ResourceExhausted, Unavailable
from policy_server.backends.protocol import Answer
from policy_server.batcher import Batcher, Request, Result
from policy_server.sessions import Stamp
from policy_server.weights import Held, Retention, WeightStore


class Rig:
    """A batcher on the real backend behind a gate."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.backend = HeldUp(write_checkpoint(folder))
        self.store: WeightStore[Any] = WeightStore(
            self.backend.build, self._held(0), self.backend.architecture_hash, Retention()
        )
        settings = {"max_rows": 8, "max_queued": 16, "wait_seconds": 0.0} | options
        self.batcher = Batcher(self.backend, self.store, **settings)
        self.pool = ThreadPoolExecutor(32)

    def _held(self, version: int) -> Held[Any]:
        return Held(version, state_of(version), self.backend.build(state_of(version)))

    def request(self, rows: int = 1, timeout: float = TIMEOUT, session: str = "", **fields: Any) -> Request:
        return Request(
            obs=observation(rows),
            seeds=list(range(rows)),
            deadline=time.monotonic() + timeout,
            stamp=Stamp(session),
            **({"deterministic": True, "want_trace": False, "want_value": False} | fields),
        )

    def ask(self, request: Request) -> Any:
        """Submit now; the answer is the future's."""
        self.batcher.submit(request)
        return self.pool.submit(self.batcher.wait, request)

    def busy(self) -> Any:
        """Someone's batch is being computed until the gate opens."""
        self.backend.close_gate()
        future = self.ask(self.request())
        self.backend.wait_entered()
        self.backend.batches.clear()
        return future


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.backend.gate.set()
    made.batcher.close()
    made.pool.shutdown()


def outcome(future: Any) -> LandbridgeError | Result:
    error = future.exception(TIMEOUT)
    return error if error is not None else future.result()


def test_a_lone_request_is_computed_by_the_thread_that_waits_for_it(rig: Rig) -> None:
    threads: list[str] = []
    compute = rig.backend.compute
    rig.backend.compute = lambda *a: (threads.append(threading.current_thread().name), compute(*a))[1]  # type: ignore
    request = rig.request()
    rig.batcher.submit(request)
    assert rig.batcher.wait(request).batch_rows == 1
    assert threads == [threading.current_thread().name]


def test_what_queued_up_during_a_batch_is_the_next_one_whole(rig: Rig) -> None:
    first = rig.busy()
    rest = [rig.ask(rig.request(rows)) for rows in (1, 2, 3)]
    rig.backend.gate.set()
    assert [future.result(TIMEOUT).batch_rows for future in [first, *rest]] == [1, 6, 6, 6]
    assert rig.backend.batches == [6]


def test_no_batch_has_more_rows_than_allowed_and_smaller_requests_fill_it(rig: Rig) -> None:
    rig.busy()
    rest = [rig.ask(rig.request(rows)) for rows in (5, 4, 3, 8)]
    rig.backend.gate.set()
    assert [future.result(TIMEOUT).batch_rows for future in rest] == [8, 4, 8, 8]


def test_requests_that_want_different_things_do_not_share_a_batch(rig: Rig) -> None:
    rig.store._held[1] = rig._held(1)
    rig.busy()
    privileged = {**observation(1), "privileged": np.zeros((1, 2), np.float32)}
    rest = [
        rig.ask(rig.request()),
        rig.ask(rig.request(deterministic=False)),
        rig.ask(rig.request(held=rig.store.get(1))),
        rig.ask(Request(privileged, [0], True, False, True, time.monotonic() + TIMEOUT)),
        rig.ask(rig.request(held=rig.store.get(0))),
    ]
    rig.backend.gate.set()
    results = [future.result(TIMEOUT) for future in rest]
    assert [r.version for r in results] == [0, 0, 1, 0, 0]
    assert [r.batch_rows for r in results] == [2, 1, 1, 1, 2], "the current version by number is the current one"
    assert results[3].answer.value is not None and results[0].answer.value is None


def test_the_trace_goes_only_to_who_asked_for_it_in_one_batch(rig: Rig) -> None:
    rig.busy()
    rest = [rig.ask(rig.request(deterministic=False, want_trace=wanted)) for wanted in (True, False)]
    rig.backend.gate.set()
    results = [future.result(TIMEOUT) for future in rest]
    assert [r.batch_rows for r in results] == [2, 2]
    assert [sorted(r.answer.trace) for r in results] == [["step", "x_after", "x_before"], []]


def test_the_version_is_the_one_current_when_the_batch_begins(rig: Rig) -> None:
    first = rig.busy()
    waiting = rig.ask(rig.request())
    rig.store._current = rig._held(1)
    rig.backend.gate.set()
    assert (first.result(TIMEOUT).version, waiting.result(TIMEOUT).version) == (0, 1)


def test_a_request_whose_deadline_passed_in_the_queue_is_answered_and_never_computed(rig: Rig) -> None:
    rig.busy()
    late = rig.request(rows=7, timeout=0.0)
    rig.batcher.submit(late)
    fine = rig.ask(rig.request(rows=2))
    rig.backend.gate.set()
    fine.result(TIMEOUT)
    assert rig.backend.batches == [2]
    with pytest.raises(DeadlineExceeded, match="not computed"):
        rig.batcher.wait(late)


def test_who_waits_is_told_at_the_deadline_though_the_batch_before_goes_on(rig: Rig) -> None:
    rig.busy()
    late = rig.ask(rig.request(timeout=0.05))
    assert isinstance(outcome(late), DeadlineExceeded)
    assert not rig.backend.gate.is_set(), "the batch before is still being computed"


def test_an_answer_computed_too_late_is_not_handed_out(rig: Rig) -> None:
    rig.backend.close_gate()
    request = rig.request(timeout=0.05)
    late = rig.ask(request)
    rig.backend.wait_entered()
    while time.monotonic() < request.deadline:
        time.sleep(0.01)
    rig.backend.gate.set()
    assert isinstance(outcome(late), DeadlineExceeded)


def test_what_a_client_gave_up_is_never_computed(rig: Rig) -> None:
    rig.busy()
    gone = rig.request(rows=7)
    rig.batcher.submit(gone)
    gone.abandon()
    fine = rig.ask(rig.request(rows=2))
    rig.backend.gate.set()
    fine.result(TIMEOUT)
    assert rig.backend.batches == [2]


def test_a_full_queue_refuses_with_a_hint_and_takes_again_once_there_is_room(rig: Rig) -> None:
    first = rig.busy()
    waiting = [rig.ask(rig.request()) for _ in range(15)]
    with pytest.raises(ResourceExhausted, match="16 requests") as refused:
        rig.batcher.submit(rig.request())
    assert refused.value.retry_after is not None and refused.value.retry_after > 0
    rig.backend.gate.set()
    for future in [first, *waiting]:
        future.result(TIMEOUT)
    rig.ask(rig.request()).result(TIMEOUT)


def test_expired_and_abandoned_requests_do_not_keep_others_out(rig: Rig) -> None:
    rig.busy()
    for index in range(15):
        request = rig.request(timeout=0.0 if index % 2 else TIMEOUT)
        rig.batcher.submit(request)
        if not index % 2:
            request.abandon()
    waiting = rig.ask(rig.request())
    rig.backend.gate.set()
    assert isinstance(outcome(waiting), Result)


def test_the_newer_request_of_a_session_takes_the_older_ones_place(rig: Rig) -> None:
    rig.busy()
    older, other, newer = (rig.ask(rig.request(session=s)) for s in ("robot", "other", "robot"))
    assert isinstance(outcome(older), Aborted)
    rig.backend.gate.set()
    assert isinstance(outcome(other), Result) and isinstance(outcome(newer), Result)
    assert rig.backend.batches == [2]


def test_a_session_is_served_even_when_the_queue_is_full_of_its_own_past(rig: Rig) -> None:
    rig.busy()
    for _ in range(40):
        last = rig.ask(rig.request(session="robot"))
    rig.backend.gate.set()
    assert isinstance(outcome(last), Result)


def test_a_reset_drops_what_the_session_has_waiting(rig: Rig) -> None:
    rig.busy()
    waiting, other = rig.ask(rig.request(session="robot")), rig.ask(rig.request(session="other"))
    rig.batcher.forget("robot")
    assert isinstance(outcome(waiting), Aborted)
    rig.backend.gate.set()
    assert isinstance(outcome(other), Result)


def test_a_pause_holds_requests_back_until_it_is_ended(rig: Rig) -> None:
    rig.batcher.pause(TIMEOUT)
    waiting = [rig.ask(rig.request()) for _ in range(3)]
    assert rig.batcher.paused and isinstance(outcome(rig.ask(rig.request(timeout=0.05))), DeadlineExceeded)
    assert rig.backend.batches == []
    rig.batcher.resume()
    assert all(isinstance(outcome(future), Result) for future in waiting)


def test_a_pause_ends_by_itself(rig: Rig) -> None:
    rig.batcher.pause(0.1)
    assert isinstance(outcome(rig.ask(rig.request())), Result)
    assert not rig.batcher.paused


def test_closing_answers_whoever_waits_and_refuses_whoever_comes(rig: Rig) -> None:
    rig.batcher.pause(TIMEOUT)
    waiting = rig.ask(rig.request())
    rig.batcher.close()
    assert isinstance(outcome(waiting), Unavailable)
    with pytest.raises(Unavailable, match="shutting down"):
        rig.batcher.submit(rig.request())


class Picky(HeldUp):
    """Stumbles over rows whose first number is negative."""

    def compute(
        self, module: Any, obs: Mapping[str, np.ndarray], seeds: Sequence[int], deterministic: bool, with_value: bool
    ) -> Answer:
        answer = super().compute(module, obs, seeds, deterministic, with_value)
        if (obs["state"][:, 0] < -100).any():
            raise ZeroDivisionError("a negative number")
        actions = np.where(obs["state"][:, :1, None] > 100, np.nan, answer.actions)
        return Answer(actions, answer.log_prob, answer.value, answer.trace)


def poisoned(rig: Rig, value: float) -> Request:
    request = rig.request()
    request.obs = {"state": np.full((1, 6), value, np.float32)}
    return request


@pytest.mark.parametrize(("value", "says"), [(-1000.0, "ZeroDivisionError"), (1000.0, "not finite")])
def test_one_requests_trouble_is_not_its_batch_mates(tmp_path: Path, value: float, says: str) -> None:
    rig = Rig(tmp_path)
    rig.backend.__class__ = Picky
    rig.busy()
    one, bad, two = rig.ask(rig.request()), rig.ask(poisoned(rig, value)), rig.ask(rig.request())
    rig.backend.gate.set()
    assert isinstance(outcome(one), Result) and isinstance(outcome(two), Result)
    error = outcome(bad)
    assert isinstance(error, Internal) and says in error.message and "version 0" in error.message
    rig.batcher.close()
    rig.pool.shutdown()


def test_a_batch_may_be_told_to_wait_until_it_is_full(tmp_path: Path) -> None:
    rig = Rig(tmp_path, wait_seconds=TIMEOUT, max_rows=4)
    futures = [rig.ask(rig.request()) for _ in range(4)]
    assert [future.result(TIMEOUT / 2).batch_rows for future in futures] == [4] * 4
    rig.batcher.close()
    rig.pool.shutdown()


def test_under_many_threads_everybody_is_answered(rig: Rig) -> None:
    def client(index: int) -> int:
        for turn in range(60):
            request = rig.request(rows=1 + (index + turn) % 3, deterministic=bool(index % 2))
            rig.batcher.submit(request)
            assert len(rig.batcher.wait(request).answer.actions) == request.rows
        return index

    assert list(rig.pool.map(client, range(8), timeout=60)) == list(range(8))
