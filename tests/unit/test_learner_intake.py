"""Tickets, acknowledgements and batches: what a worker and a trainer can rely on, from several threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from learner_parts import DUPLICATE, REJECTED, STORED, message, new_intake

from landbridge.errors import DeadlineExceeded, NotFound
from learner.intake import Intake

LONG = 20.0


def tickets(intake: Intake, count: int) -> list[str]:
    granted, _, _ = intake.acquire(count, 0.0)
    return [ticket.id for ticket in granted]


def in_thread(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_a_trajectory_is_stored_once_however_often_it_is_sent(tmp_path: Path) -> None:
    intake, _, log = new_intake(tmp_path)
    (ticket,) = tickets(intake, 1)
    assert [intake.submit(message(ticket), 0).outcome for _ in range(3)] == [STORED, DUPLICATE, DUPLICATE]
    assert len(log) == 1 and intake.status().produced == 1


def test_a_broken_trajectory_is_rejected_with_the_reason_and_its_ticket_is_free(tmp_path: Path) -> None:
    intake, manager, log = new_intake(tmp_path)
    (ticket,) = tickets(intake, 1)
    answer = intake.submit(message(ticket, version=5), 0)
    assert answer.outcome == REJECTED and "versions" in answer.message
    assert (len(log), manager.running, manager.returned) == (0, 0, {"rejected": 1})


def test_a_trajectory_without_a_ticket_is_rejected(tmp_path: Path) -> None:
    intake, _, log = new_intake(tmp_path)
    answer = intake.submit(message("t-77"), 0)
    assert answer.outcome == REJECTED and "not out" in answer.message and len(log) == 0


def test_a_trajectory_whose_lease_ended_is_rejected_because_its_place_may_be_taken(tmp_path: Path) -> None:
    intake, _, _ = new_intake(tmp_path, lease=0.0)
    (ticket,) = tickets(intake, 1)
    assert intake.status().running == 0
    assert intake.submit(message(ticket), 0).outcome == REJECTED


def test_acquire_waits_for_capacity_and_a_release_gives_it(tmp_path: Path) -> None:
    intake, _, _ = new_intake(tmp_path, eta=0)
    held = tickets(intake, 5)
    assert len(held) == 2 and tickets(intake, 1) == []
    got: list[str] = []
    waiting = in_thread(lambda: got.extend(t.id for t in intake.acquire(1, LONG)[0]))
    intake.release(held[0], "crashed")
    waiting.join(LONG)
    assert len(got) == 1 and got[0] not in held


def test_acquire_ends_when_its_caller_is_gone_or_training_is_over(tmp_path: Path) -> None:
    intake, _, _ = new_intake(tmp_path, eta=0)
    assert intake.acquire(1, LONG, alive=lambda: False)[0] == [], "there is room, and nobody to take it"
    tickets(intake, 2)
    assert intake.acquire(1, LONG, alive=lambda: False)[0] == []
    waiting = in_thread(lambda: intake.acquire(1, LONG))
    intake.finish()
    waiting.join(LONG)
    assert not waiting.is_alive() and intake.acquire(1, LONG)[1]


def test_a_full_buffer_delays_the_acknowledgement_until_there_is_room(tmp_path: Path) -> None:
    intake, _, log = new_intake(tmp_path, eta=2, max_buffered=2)
    first, second, third = tickets(intake, 3)
    for ticket in (first, second):
        intake.submit(message(ticket), 0)
    with pytest.raises(DeadlineExceeded, match="send it again"):
        intake.submit(message(third), 0.01)
    assert len(log) == 2
    outcomes: list[int] = []
    waiting = in_thread(lambda: outcomes.append(intake.submit(message(third), LONG).outcome))
    batch = intake.take(0, 0)
    assert batch is not None and not outcomes
    intake.consume(batch)
    waiting.join(LONG)
    assert outcomes == [STORED]


def test_a_buffer_smaller_than_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="never fill"):
        new_intake(tmp_path, batch=3, max_buffered=2)


def test_a_batch_is_the_oldest_trajectories_in_the_order_of_their_tickets(tmp_path: Path) -> None:
    intake, _, _ = new_intake(tmp_path)
    granted = tickets(intake, 4)
    for index in (2, 0, 3, 1):
        intake.submit(message(granted[index]), 0)
    batch = intake.take(0, 0)
    assert batch is not None
    assert [record.meta.index for record in batch] == [0, 2], "the first two that came, sorted"


def test_enough_decisions_make_a_smaller_batch(tmp_path: Path) -> None:
    intake, manager, _ = new_intake(tmp_path, eta=0, batch=3)
    granted = tickets(intake, 3)
    intake.submit(message(granted[0], decisions=3), 0)
    assert intake.take(7, 0) is None
    intake.submit(message(granted[1], decisions=4), 0)
    batch = intake.take(7, 0)
    assert batch is not None and len(batch) == 2
    intake.consume(batch)
    intake.advance(2)
    assert manager.running == 1 and len(tickets(intake, 5)) == 2, "a third of the next batch is under way already"


def test_what_is_too_old_is_dropped_counted_once_and_its_place_is_free(tmp_path: Path) -> None:
    intake, _, log = new_intake(tmp_path, eta=0, batch=1)
    (first,) = tickets(intake, 1)
    intake.advance(0)  # a version went by while the episode ran
    intake.submit(message(first, version=0), 0)
    assert intake.take(0, 0) is None
    (drop,) = intake.drops()
    assert (drop.reason, drop.record.meta.oldest) == ("too_old", 0) and intake.drops() == []
    status = intake.status()
    assert (status.dropped, status.produced, status.env_steps, len(log)) == ({"too_old": 1}, 1, 6, 0)
    (second,) = tickets(intake, 1)
    intake.submit(message(second, version=1), 0)
    assert intake.take(0, 0) is not None


def test_an_episode_across_a_swap_counts_by_its_oldest_decision(tmp_path: Path) -> None:
    import numpy as np

    intake, _, _ = new_intake(tmp_path, eta=1, batch=1)
    (first,) = tickets(intake, 1)
    intake.advance(1), intake.advance(1)
    intake.submit(message(first, versions=np.array([0, 2, 2])), 0)
    assert intake.take(0, 0) is None and len(intake.drops()) == 1


def test_while_paused_no_tickets_and_no_batches_and_a_pause_ends_by_itself(tmp_path: Path) -> None:
    intake, _, _ = new_intake(tmp_path)
    granted = tickets(intake, 2)
    for ticket in granted:
        intake.submit(message(ticket), 0)
    lease, other = intake.pause(LONG), intake.pause(LONG)
    assert tickets(intake, 1) == [] and intake.take(0, 0) is None and intake.status().paused
    intake.resume(lease)
    assert intake.status().paused, "the other pause goes on"
    with pytest.raises(NotFound):
        intake.resume(lease)
    intake.resume(other)
    assert intake.take(0, 0) is not None and len(tickets(intake, 1)) == 1
    intake.pause(0.0)
    assert not intake.status().paused
    intake.resume("any")


def test_from_many_threads_everything_produced_is_trained_buffered_or_dropped(tmp_path: Path) -> None:
    """Workers that crash, dawdle and send twice beside a trainer: nothing is lost, twice or too old."""
    intake, _, log = new_intake(tmp_path, eta=1, batch=4, max_buffered=9, lease=0.05, concurrent=12)
    stored: list[str] = []
    lock = threading.Lock()

    def worker(seed: int) -> None:
        rng = random.Random(seed)
        while True:
            granted, finished, version = intake.acquire(2, 0.05)
            if finished:
                return
            for ticket in granted:
                fate = rng.random()
                if fate < 0.1:
                    intake.release(ticket.id, "crashed")
                elif fate < 0.9:  # the rest dies in silence
                    sent = message(ticket.id, decisions=2, version=version)
                    for _ in range(rng.choice((1, 1, 2))):
                        if intake.submit(sent, LONG).outcome == STORED:
                            with lock:
                                stored.append(sent.trajectory_id)

    threads = [in_thread(lambda seed=seed: worker(seed)) for seed in range(4)]  # type: ignore[misc]
    trained, dropped = [], []
    for version in range(12):
        batch = intake.take(0, LONG)
        assert batch is not None and len(batch) == 4
        assert all(version - record.meta.oldest <= 1 for record in batch)
        trained += [record.trajectory_id for record in batch]
        intake.consume(batch)
        intake.advance(4)
    intake.finish()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    dropped = [drop.record.trajectory_id for drop in intake.drops()]
    left = [record.trajectory_id for record in log.pending()]
    assert sorted(trained + dropped + left) == sorted(stored) and len(set(stored)) == len(stored)
    status = intake.status()
    assert status.produced == status.trained + status.buffered + sum(status.dropped.values()) == len(stored)
