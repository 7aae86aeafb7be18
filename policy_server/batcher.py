"""Dynamic batching: one compute thread; what has queued up while it computed is the next batch.

There is no artificial wait unless ``wait_seconds`` asks for one: a lone client is answered at once, many share batches.
A batch is computed by one version; requests that name another version, or want other outputs, wait for the next.
"""

from __future__ import annotations

import collections
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from landbridge.errors import Aborted, DeadlineExceeded, Internal, LandbridgeError, ResourceExhausted, Unavailable
from policy_server.backends.protocol import Answer, Backend
from policy_server.weights import Held, WeightStore


@dataclass
class Request:
    """One client's rows, decoded and validated, and where the answer goes."""

    obs: Mapping[str, np.ndarray]
    rows: int
    seeds: list[int]
    deterministic: bool
    version: int | None
    want_trace: bool
    want_value: bool
    session: str
    deadline: float
    """``time.monotonic()`` after which nobody waits for the answer."""
    future: Future[Result] = field(default_factory=Future)
    queued_at: float = field(default_factory=time.monotonic)

    def kind(self) -> tuple[object, ...]:
        """Requests of one kind can share a batch."""
        return (self.deterministic, self.version, self.want_value, tuple(self.obs))


@dataclass(frozen=True)
class Result:
    """The rows of one request, and which version computed them."""

    answer: Answer
    version: int
    seeds: list[int]
    queued: float
    computed: float
    batch_rows: int


class Batcher:
    """Bounded queue in front of the compute thread."""

    def __init__(
        self, backend: Backend, store: WeightStore[object], *, max_rows: int, max_queued: int, wait_seconds: float
    ) -> None:
        """``max_rows`` a batch, ``max_queued`` requests waiting before new ones are refused."""
        self._backend = backend
        self._store = store
        self._max_rows = max_rows
        self._max_queued = max_queued
        self._wait = wait_seconds
        self._queue: collections.deque[Request] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._paused_until = 0.0
        self._compute_seconds = 0.005
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Result]:
        """Queue a request. RESOURCE_EXHAUSTED when full; an older one of the same session is ABORTED."""
        with self._changed:
            if self._closed:
                raise Unavailable("the policy server is shutting down; try another replica or later", retry_after=1.0)
            if request.session:
                self._overtake(request.session)
            if len(self._queue) >= self._max_queued:
                raise ResourceExhausted(
                    f"{len(self._queue)} requests are waiting, no more are taken; try again later",
                    retry_after=max(0.01, self._compute_seconds * len(self._queue)),
                )
            self._queue.append(request)
            self._changed.notify()
        return request.future

    def _overtake(self, session: str) -> None:
        for other in [r for r in self._queue if r.session == session]:
            self._queue.remove(other)
            _fail(other, Aborted(f"a newer request of session {session!r} took this one's place"))

    def forget(self, session: str) -> None:
        """Drop what a session has waiting."""
        with self._changed:
            self._overtake(session)

    def pause(self, seconds: float) -> None:
        """Compute nothing for this long, or until :meth:`resume`; requests wait."""
        with self._changed:
            self._paused_until = time.monotonic() + seconds

    def resume(self) -> None:
        """End a pause."""
        with self._changed:
            self._paused_until = 0.0
            self._changed.notify()

    @property
    def paused(self) -> bool:
        """Whether a pause is in force."""
        return time.monotonic() < self._paused_until

    def close(self) -> None:
        """Refuse new requests, finish the batch under way, fail what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(5.0)
        for request in self._queue:
            _fail(request, Unavailable("the policy server shut down", retry_after=1.0))
        self._queue.clear()

    def _run(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                return
            if batch:
                self._compute(batch)

    def _next(self) -> list[Request] | None:
        """Wait for work; an empty list means: look again."""
        with self._changed:
            while not self._closed and (not self._queue or self.paused):
                self._changed.wait(self._paused_until - time.monotonic() if self.paused else None)
            if self._closed:
                return None
            if self._wait > 0 and sum(r.rows for r in self._queue) < self._max_rows:
                self._changed.wait_for(
                    lambda: self._closed or sum(r.rows for r in self._queue) >= self._max_rows, self._wait
                )
            return self._take()

    def _take(self) -> list[Request]:
        """The oldest request and all that can share its batch, in order; expired ones are answered and left out."""
        now = time.monotonic()
        batch: list[Request] = []
        rows = 0
        left: collections.deque[Request] = collections.deque()
        for request in self._queue:
            if request.deadline <= now:
                _fail(request, DeadlineExceeded("the deadline passed while the request waited; it was not computed"))
            elif request.future.cancelled():
                continue
            elif not batch or (request.kind() == batch[0].kind() and rows + request.rows <= self._max_rows):
                batch.append(request)
                rows += request.rows
            else:
                left.append(request)
        self._queue = left
        return batch

    def _compute(self, batch: list[Request]) -> None:
        begun = time.monotonic()
        try:
            held = self._store.get(batch[0].version)
            answer, seeds = self._answer(held, batch)
        except LandbridgeError as error:
            for request in batch:
                _fail(request, error)
            return
        except Exception as error:
            for request in batch:
                _fail(request, Internal(f"inference failed: {type(error).__name__}: {error}"))
            return
        seconds = time.monotonic() - begun
        self._compute_seconds = 0.9 * self._compute_seconds + 0.1 * seconds
        first = 0
        for request, own in zip(batch, seeds, strict=True):
            rows = slice(first, first + request.rows)
            first += request.rows
            part = Answer(
                answer.actions[rows],
                None if answer.log_prob is None else answer.log_prob[rows],
                None if answer.value is None else answer.value[rows],
                {name: array[rows] for name, array in answer.trace.items()} if request.want_trace else {},
            )
            result = Result(part, held.version, own, begun - request.queued_at, seconds, len(answer.actions))
            if request.future.set_running_or_notify_cancel():
                request.future.set_result(result)

    def _answer(self, held: Held[object], batch: list[Request]) -> tuple[Answer, list[list[int]]]:
        seeds = [r.seeds or [secrets.randbits(64) for _ in range(r.rows)] for r in batch]
        obs = batch[0].obs
        if len(batch) > 1:
            obs = {name: np.concatenate([r.obs[name] for r in batch]) for name in obs}
        flat = [seed for own in seeds for seed in own]
        first = batch[0]
        return self._backend.compute(held.module, obs, flat, first.deterministic, first.want_value), seeds


def _fail(request: Request, error: LandbridgeError) -> None:
    if request.future.set_running_or_notify_cancel():
        request.future.set_exception(error)
