"""Dynamic batching: one batch is computed at a time; what has queued up meanwhile is the next one.

There is no artificial wait unless ``wait_seconds`` asks for one: a lone client is answered at once, many share batches.
The thread that waits for an answer computes it itself when nobody else is computing, which saves a lone client two
thread switches; what it leaves in the queue is the compute thread's. A batch is computed by one version; requests that
name another version, or want other outputs, wait for the next.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from landbridge.errors import Aborted, DeadlineExceeded, Internal, LandbridgeError, ResourceExhausted, Unavailable
from policy_server.backends.protocol import Answer, Backend
from policy_server.sessions import Sessions, Stamp
from policy_server.weights import Held, WeightStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """The rows of one request, and which version computed them."""

    answer: Answer
    version: int
    queued: float
    computed: float
    batch_rows: int


@dataclass(eq=False)
class Request:
    """One client's rows, decoded and validated, and where the answer goes."""

    obs: Mapping[str, np.ndarray]
    """{name: [rows, …]}; may be read-only."""
    seeds: list[int]
    """One a row."""
    deterministic: bool
    want_trace: bool
    want_value: bool
    deadline: float
    """``time.monotonic()`` after which nobody waits for the answer."""
    held: Held[Any] | None = None
    """Compute with this version; None: with the one that is current then."""
    stamp: Stamp = field(default_factory=lambda: Stamp(""))
    outcome: Result | LandbridgeError | None = None
    queued_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rows = len(self.seeds)
        # Requests of one kind can share a batch; the shapes matter where the contract leaves an extent open.
        self.kind = (self.deterministic, self.want_value, [(name, array.shape[1:]) for name, array in self.obs.items()])
        # Two plain locks are a one-shot event and its once-only guard at a tenth of a Future's cost.
        self._settling = threading.Lock()
        self._ready = threading.Lock()
        self._ready.acquire()

    def settle(self, outcome: Result | LandbridgeError) -> None:
        """Answer; only the first time counts."""
        if self._settling.acquire(blocking=False):
            self.outcome = outcome
            self._ready.release()

    @property
    def settled(self) -> bool:
        """Whether it has been answered, or given up."""
        return self._settling.locked()

    def abandon(self) -> None:
        """The client has gone: nothing needs computing."""
        self.settle(Aborted("the client gave up before the answer was computed"))

    def result(self) -> Result:
        """Wait for the answer, up to the deadline; raises the error it was answered with."""
        if self._ready.acquire(timeout=max(0.0, self.deadline - time.monotonic())):
            self._ready.release()
        else:
            self.settle(DeadlineExceeded("the deadline passed before the answer was computed"))
        if isinstance(self.outcome, LandbridgeError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


class Batcher:
    """Bounded queue in front of the backend. :meth:`submit` a request, then :meth:`wait` for it."""

    def __init__(
        self, backend: Backend, store: WeightStore[Any], *, max_rows: int, max_queued: int, wait_seconds: float
    ) -> None:
        """``max_rows`` a batch, ``max_queued`` requests waiting or in work before new ones are refused."""
        self.sessions = Sessions()
        self._backend = backend
        self._store = store
        self._max_rows = max_rows
        self._max_queued = max_queued
        self._wait = wait_seconds
        self._queue: collections.deque[Request] = collections.deque()
        self._waiting: dict[str, Request] = {}
        """The newest request of each session that has one queued."""
        self._changed = threading.Condition()
        self._computing = threading.Lock()
        self._in_work = 0
        self._needed = False
        """Whether there is work that no waiting thread will do."""
        self._closed = False
        self._paused_until = 0.0
        self._compute_seconds = 0.005
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request. RESOURCE_EXHAUSTED when full; an older one of the same session is ABORTED."""
        with self._changed:
            if self._closed:
                raise Unavailable("the policy server is shutting down; try another replica or later", retry_after=1.0)
            if request.stamp.session:
                self.sessions.arrive(request.stamp)
                self._overtake(request.stamp.session)
            if len(self._queue) + self._in_work >= self._max_queued:
                self._prune()
            waiting = len(self._queue) + self._in_work
            if waiting >= self._max_queued:
                raise ResourceExhausted(
                    f"{waiting} requests are waiting or in work, no more are taken; try again later",
                    retry_after=max(0.01, self._compute_seconds * waiting),
                )
            self._queue.append(request)
            if request.stamp.session:
                self._waiting[request.stamp.session] = request
            if self._wait > 0:
                self._changed.notify_all()

    def wait(self, request: Request) -> Result:
        """The answer to a submitted request; computes it here and now when nobody is computing."""
        if not request.settled:
            self._help()
        return request.result()

    def forget(self, session: str) -> None:
        """Drop what a session has waiting, and its ordering."""
        with self._changed:
            self.sessions.forget(session)
            self._overtake(session)

    def pause(self, seconds: float) -> None:
        """Begin no batch for this long, or until :meth:`resume`; requests wait."""
        with self._changed:
            self._paused_until = time.monotonic() + seconds

    def resume(self) -> None:
        """End a pause."""
        with self._changed:
            self._paused_until = 0.0
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        """Whether a pause is in force."""
        return time.monotonic() < self._paused_until

    def close(self) -> None:
        """Refuse new requests, finish the batch under way, fail what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(5.0)
        for request in self._queue:
            request.settle(Unavailable("the policy server shut down", retry_after=1.0))
        self._queue.clear()

    def _overtake(self, session: str) -> None:
        older = self._waiting.pop(session, None)
        if older is not None:
            older.settle(Aborted(f"a newer request, or a reset, of session {session!r} took this one's place"))

    def _prune(self) -> None:
        """Leave out of the queue what is settled or expired."""
        now = time.monotonic()
        for request in self._queue:
            if request.deadline <= now:
                request.settle(DeadlineExceeded("the deadline passed while the request waited; it was not computed"))
            if request.settled:
                self._unlist(request)
        self._queue = collections.deque(request for request in self._queue if not request.settled)

    def _unlist(self, request: Request) -> None:
        if request.stamp.session and self._waiting.get(request.stamp.session) is request:
            del self._waiting[request.stamp.session]

    def _help(self) -> None:
        """Compute one batch in this thread, if nobody computes; call the compute thread for the rest."""
        alone = self._wait == 0 and not self.paused and self._computing.acquire(blocking=False)
        if alone:
            try:
                self._compute_next()
            finally:
                self._computing.release()
        # Whoever holds the lock looks at the queue after releasing it, so no request is left behind.
        if self._queue and (alone or not self._computing.locked()):
            self._call_thread()

    def _call_thread(self) -> None:
        with self._changed:
            self._needed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._needed or self.paused):
                    self._changed.wait(self._paused_until - time.monotonic() if self.paused else None)
                if self._closed:
                    return
                self._needed = False
                if self._wait > 0:
                    self._changed.wait_for(self._full_or_closed, self._wait)
            while self._queue and not self._closed and not self.paused:
                with self._computing:
                    self._compute_next()
            if self._queue:
                self._needed = True

    def _full_or_closed(self) -> bool:
        return self._closed or sum(request.rows for request in self._queue) >= self._max_rows

    def _compute_next(self) -> None:
        with self._changed:
            held, batch = self._take()
            self._in_work = len(batch)
        if batch:
            try:
                self._compute(held, batch)
            finally:
                self._in_work = 0

    def _take(self) -> tuple[Held[Any], list[Request]]:
        """The oldest request and all that can share its batch, in order."""
        self._prune()
        current = self._store.current
        held, batch, rows = current, list[Request](), 0
        left: collections.deque[Request] = collections.deque()
        for request in self._queue:
            wanted = request.held or current
            if not batch:
                held = wanted
            elif wanted is not held or request.kind != batch[0].kind or rows + request.rows > self._max_rows:
                left.append(request)
                continue
            batch.append(request)
            rows += request.rows
            self._unlist(request)
        self._queue = left
        return held, batch

    def _compute(self, held: Held[Any], batch: list[Request]) -> None:
        begun = time.monotonic()
        try:
            answer = self._answer(held, batch)
        except Exception as error:
            if len(batch) > 1:  # one request's trouble is not its batch-mates'
                for request in batch:
                    self._compute(held, [request])
                return
            if not isinstance(error, LandbridgeError):
                log.exception("inference with version %d failed", held.version)
                error = Internal(f"inference with version {held.version} failed: {type(error).__name__}: {error}")
            batch[0].settle(error)
            return
        seconds = time.monotonic() - begun
        self._compute_seconds = 0.9 * self._compute_seconds + 0.1 * seconds
        first = 0
        for request in batch:
            part = _rows(answer, slice(first, first + request.rows), request.want_trace)
            first += request.rows
            request.settle(_outcome(request, part, held.version, begun, seconds, len(answer.actions)))

    def _answer(self, held: Held[Any], batch: list[Request]) -> Answer:
        obs = {name: np.concatenate([request.obs[name] for request in batch]) for name in batch[0].obs}
        seeds = [seed for request in batch for seed in request.seeds]
        return self._backend.compute(held.module, obs, seeds, batch[0].deterministic, batch[0].want_value)


def _outcome(
    request: Request, part: Answer, version: int, begun: float, seconds: float, batch_rows: int
) -> Result | LandbridgeError:
    if begun + seconds > request.deadline:
        return DeadlineExceeded("the deadline passed while the answer was computed")
    if not np.isfinite(part.actions).all():
        return Internal(f"version {version} computed an action that is not finite; activate another version")
    return Result(part, version, begun - request.queued_at, seconds, batch_rows)


def _rows(answer: Answer, rows: slice, with_trace: bool) -> Answer:
    return Answer(
        answer.actions[rows],
        None if answer.log_prob is None else answer.log_prob[rows],
        None if answer.value is None else answer.value[rows],
        {name: array[rows] for name, array in answer.trace.items()} if with_trace else {},
    )
