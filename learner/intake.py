"""Where tickets, trajectories and training meet: one lock around the staleness rule and the log.

A ticket is given, its trajectory is stored (then acknowledged), taken as part of a batch, consumed, and forgotten.
``produced = trained + buffered + dropped`` holds at every moment.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from landbridge.errors import DeadlineExceeded, InvalidArgument, NotFound, ResourceExhausted
from landbridge.v1 import learner_pb2 as pb
from learner.buffer import Cursor, Record, TrajectoryLog
from learner.staleness import StalenessManager, Ticket
from learner.trajectories import Meta, Trajectory, ticket_index

_LOOK_AGAIN = 0.5
"""Seconds between looks at whether a waiting caller is still there."""


@dataclass(frozen=True)
class Counters:
    """Of trajectories and environment steps since the run began."""

    trained: int = 0
    env_steps: int = 0
    """In trajectories consumed, for whatever reason."""
    dropped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Status:
    """The moment's numbers."""

    version: int
    running: int
    produced: int
    buffered: int
    trained: int
    env_steps: int
    dropped: dict[str, int]
    returned: dict[str, int]
    paused: bool
    finished: bool


@dataclass(frozen=True)
class Drop:
    """A stored trajectory that will not be trained on."""

    record: Record[Meta]
    reason: str


class Intake:
    """Thread-safe. Waits are bounded by what callers say."""

    def __init__(
        self,
        manager: StalenessManager,
        log: TrajectoryLog[Meta],
        check: Callable[[pb.Trajectory, int], Trajectory],
        *,
        max_buffered: int,
        counters: Counters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``check(message, newest_version)`` raises INVALID_ARGUMENT for what must not be stored.

        ``max_buffered`` trajectories wait in the log at most, those of the batch in training included; more are not
        acknowledged until there is room.
        """
        if max_buffered < manager.batch:
            raise ValueError(f"max_buffered {max_buffered}: a batch is {manager.batch}, it would never fill")
        counters = counters or Counters()
        self._manager, self._log, self._check, self._clock = manager, log, check, clock
        self._max_buffered = max_buffered
        self._changed = threading.Condition()
        self._trained, self._env_steps = counters.trained, counters.env_steps
        manager.dropped.update(dict(counters.dropped))
        self._produced = counters.trained + manager.dropped.total() + len(log)
        self._drops: list[Drop] = []
        self._pauses: dict[str, float] = {}
        self._finished = False

    # Workers' side

    def acquire(
        self, count: int, wait: float, alive: Callable[[], bool] = lambda: True
    ) -> tuple[list[Ticket], bool, int]:
        """Up to ``count`` tickets, waiting up to ``wait`` seconds for the first; whether training is over; version."""
        deadline = self._clock() + wait
        with self._changed:
            while True:
                here = alive()
                tickets = self._grant(count) if here else []
                left = deadline - self._clock()
                if tickets or self._finished or left <= 0 or not here:
                    return tickets, self._finished, self._manager.version
                self._changed.wait(min(left, _LOOK_AGAIN))

    def _grant(self, count: int) -> list[Ticket]:
        tickets: list[Ticket] = []
        if not self._finished and not self._paused():
            while len(tickets) < count and (ticket := self._manager.acquire()) is not None:
                tickets.append(ticket)
        return tickets

    def release(self, ticket: str, reason: str) -> None:
        """A ticket comes back; one that is not out is none of our business any more."""
        with self._changed:
            if self._manager.release(ticket, reason):
                self._changed.notify_all()

    def submit(
        self, message: pb.Trajectory, limit: float, alive: Callable[[], bool] = lambda: True
    ) -> pb.SubmitAcknowledgement:
        """Store one trajectory; the answer may be sent once this returns.

        While the buffer is full it waits up to ``limit`` seconds, then DEADLINE_EXCEEDED: not stored, send it again.
        """
        ack = pb.SubmitAcknowledgement(trajectory_id=message.trajectory_id)
        deadline = self._clock() + limit
        with self._changed:
            newest = self._manager.version + 1  # policy servers have it a moment before it counts here
        try:
            trajectory = self._check(message, newest)
        except InvalidArgument as error:
            self.release(message.ticket, "rejected")
            ack.outcome, ack.message = pb.SubmitAcknowledgement.OUTCOME_REJECTED, str(error)
            return ack
        data = message.SerializeToString()
        with self._changed:
            while True:
                if self._log.knows(trajectory.id):
                    ack.outcome = pb.SubmitAcknowledgement.OUTCOME_DUPLICATE
                    return ack
                if not self._manager.renew(trajectory.ticket):
                    ack.outcome = pb.SubmitAcknowledgement.OUTCOME_REJECTED
                    ack.message = f"ticket {trajectory.ticket!r} is not out: its lease ended, or the learner restarted"
                    return ack
                if len(self._log) < self._max_buffered:
                    break
                self._wait_for_room(deadline, alive)
            self._store(trajectory, data)
        ack.outcome = pb.SubmitAcknowledgement.OUTCOME_STORED
        return ack

    def _wait_for_room(self, deadline: float, alive: Callable[[], bool]) -> None:
        left = deadline - self._clock()
        if left <= 0 or not alive():
            raise DeadlineExceeded(
                f"the buffer holds {len(self._log)} trajectories, its limit; this one is not stored, send it again"
            )
        self._changed.wait(min(left, _LOOK_AGAIN))

    def _store(self, trajectory: Trajectory, data: bytes) -> None:
        index = ticket_index(trajectory.ticket)
        steps = int(trajectory.executed.sum())
        meta = Meta(index, int(trajectory.versions.min()), steps, len(trajectory))
        try:
            self._log.append(trajectory.id, meta, data)
        except OSError as error:
            raise ResourceExhausted(f"cannot store trajectories: {error}", retry_after=5.0) from error
        self._manager.accept(trajectory.ticket)
        self._produced += 1
        self._changed.notify_all()

    # Trainer's side

    def take(self, decisions: int, timeout: float) -> list[Record[Meta]] | None:
        """The oldest trajectories of one update, by ticket; None when there are not enough within ``timeout`` s.

        A batch is B trajectories, or fewer that make ``decisions`` decisions (0: always B). What is too old is
        dropped on the way. The records stay in the log until :meth:`consume`.
        """
        deadline = self._clock() + timeout
        with self._changed:
            while True:
                batch = None if self._paused() else self._batch(decisions)
                left = deadline - self._clock()
                if batch is not None or left <= 0 or self._finished:
                    return batch
                self._changed.wait(left)

    def _batch(self, decisions: int) -> list[Record[Meta]] | None:
        self._drop_stale()
        if not decisions and len(self._log) < self._manager.batch:
            return None
        chosen: list[Record[Meta]] = []
        total = 0
        for record in self._log.pending():
            chosen.append(record)
            total += record.meta.decisions
            if len(chosen) == self._manager.batch or 0 < decisions <= total:
                return sorted(chosen, key=lambda r: (r.meta.index, r.sequence))
        return None

    def _drop_stale(self) -> None:
        stale = [record for record in self._log.pending() if self._manager.too_old(record.meta.oldest)]
        for record in stale:
            self._log.consume([record.sequence])
            self._manager.drop("too_old")
            self._env_steps += record.meta.env_steps
            self._drops.append(Drop(record, "too_old"))
        if stale:
            self._changed.notify_all()

    def drops(self) -> list[Drop]:
        """What was dropped since the last call."""
        with self._changed:
            drops, self._drops = self._drops, []
            return drops

    def consume(self, records: list[Record[Meta]]) -> None:
        """These have been trained on. Their places are free with :meth:`advance`, once the version is published."""
        with self._changed:
            self._log.consume([record.sequence for record in records])
            self._trained += len(records)
            self._env_steps += sum(record.meta.env_steps for record in records)
            self._changed.notify_all()

    def advance(self, count: int) -> None:
        """The version trained on ``count`` trajectories is published: it is the one that counts from now on."""
        with self._changed:
            self._manager.trained(count)
            self._changed.notify_all()

    def checkpoint_state(self) -> tuple[Counters, Cursor, int]:
        """Counters, the log's cursor and the next ticket's index, of one moment."""
        with self._changed:
            counters = Counters(self._trained, self._env_steps, tuple(sorted(self._manager.dropped.items())))
            return counters, self._log.cursor(), self._manager.next_index

    def compact(self) -> None:
        """After a durable checkpoint: free what it has consumed."""
        with self._changed:
            self._log.compact()

    # Everybody's

    def status(self) -> Status:
        """The moment's numbers."""
        with self._changed:
            self._manager.expire()
            return Status(
                version=self._manager.version,
                running=self._manager.running,
                produced=self._produced,
                buffered=len(self._log),
                trained=self._trained,
                env_steps=self._env_steps + sum(r.meta.env_steps for r in self._log.pending()),
                dropped=dict(self._manager.dropped),
                returned=dict(self._manager.returned),
                paused=self._paused(),
                finished=self._finished,
            )

    def pause(self, lease: float) -> str:
        """No tickets and no batches for up to ``lease`` seconds; returns the lease's id."""
        with self._changed:
            lease_id = uuid.uuid4().hex
            self._pauses[lease_id] = self._clock() + lease
            return lease_id

    def resume(self, lease_id: str) -> None:
        """End a pause; others go on. One that has ended by itself is no error."""
        with self._changed:
            known = self._pauses.pop(lease_id, None)
            if known is None and self._paused():
                raise NotFound("no pause has that lease; it may have ended by itself", field="lease_id")
            self._changed.notify_all()

    def _paused(self) -> bool:
        now = self._clock()
        self._pauses = {lease: until for lease, until in self._pauses.items() if until > now}
        return bool(self._pauses)

    def finish(self) -> None:
        """Training is over: workers are told, nobody waits any longer."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()
