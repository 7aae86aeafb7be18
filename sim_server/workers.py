"""A pool of worker processes behind :class:`landbridge.env.protocol.VectorBackend`: one environment a process.

A worker that dies, hangs past its deadline or produces NaN costs its own environment's episode (reported as abandoned,
with the last good observation) and is replaced in the background; the others never notice. Requests are sent to all
before any answer is awaited, so 16 workers on two cores stay busy.
"""

from __future__ import annotations

import collections
import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np

from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_json
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import FailedPrecondition, Internal, InvalidArgument, LandbridgeError, Unavailable, Unimplemented
from sim_server import frames
from sim_server.worker import Worker, WorkerError

log = logging.getLogger(__name__)

START_TIMEOUT = 120.0
"""Seconds a worker has from its start to its hello; importing a simulator takes 5 s of a free core."""
RESET_TIMEOUT = 60.0
MAX_RESTARTS, RESTART_WINDOW = 5, 120.0
"""An environment that loses more workers than this within so many seconds is given up."""
MIN_PATIENCE = 1.0
"""Seconds a worker always has: a caller's short deadline is no proof that the worker hangs."""
CLOSE_GRACE = 1.0


class _Seat:
    """One environment's place: its worker, or the replacement on its way."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.worker: Worker | None = None
        self.ready = threading.Event()
        self.failure = ""
        self.restarts: collections.deque[float] = collections.deque(maxlen=MAX_RESTARTS + 1)
        self.observation: Observation | None = None
        self.steps = 0
        self.succeeded = False

    def begin(self, observation: Observation) -> None:
        self.observation, self.steps, self.succeeded = observation, 0, False

    def abandoned(self, length: int, why: str) -> ChunkResult:
        """What is reported of an episode that was lost: the last good observation."""
        assert self.observation is not None, "only running environments are stepped"
        return ChunkResult(
            observation=self.observation,
            rewards=np.zeros(length, np.float32),
            evaluated=np.zeros(length, bool),
            executed=0,
            abandoned=True,
            success=np.zeros(length, bool),
            success_once=self.succeeded,
            episode_step=self.steps,
            message=why,
        )


class WorkerPool:
    """See the module's docstring. Safe for several threads, as long as each environment is one thread's at a time."""

    kind = "simulator"

    def __init__(
        self,
        spec: str,
        num_envs: int,
        options: dict[str, Any],
        *,
        step_timeout: float = 30.0,
        start_at_once: int = 0,
    ) -> None:
        """Start ``num_envs`` workers of ``spec`` and wait until all have said hello.

        ``step_timeout``: seconds a chunk may take before its worker counts as hung. ``start_at_once``: how many start
        side by side; 0: one a core, more would only compete. Raises the adapter's error where it cannot start.
        """
        self.name = spec
        self.num_envs = num_envs
        self._spec, self._options, self._step_timeout = spec, options, step_timeout
        self._closed = False
        self._lock = threading.Lock()
        self._alive: set[Worker] = set()
        self._starting = threading.Semaphore(start_at_once or os.cpu_count() or 1)
        self._seats = [_Seat(i) for i in range(num_envs)]
        hello = self._start_all()
        self.contract: Contract = contract_from_json(hello["contract"])
        self.max_episode_steps = int(hello["max_episode_steps"])
        self.can_render, self.can_save_state = bool(hello["can_render"]), bool(hello["can_save_state"])
        self._layout = frames.Layout(self.contract)

    def _start_all(self) -> dict[str, Any]:
        with futures.ThreadPoolExecutor(self.num_envs, thread_name_prefix="worker-start") as threads:
            started = [threads.submit(self._start, seat) for seat in self._seats]
            try:
                for future in futures.as_completed(started):
                    future.result()
            except BaseException:  # Ctrl-C too: the threads above end with their workers
                self.close()
                raise
        return started[0].result()

    def _start(self, seat: _Seat) -> dict[str, Any]:
        """Give ``seat`` a worker that has said hello; returns the hello."""
        with self._starting:
            with self._lock:  # so that close() sees every worker there is
                if self._closed:
                    raise Unavailable("the pool is closed")
                worker = Worker(self._spec, self._options)
                self._alive.add(worker)
            try:
                hello = worker.hello(time.monotonic() + START_TIMEOUT)
            except Exception as error:
                self._end(worker)
                raise error.error if isinstance(error, WorkerError) else error from None
        seat.worker = worker
        seat.ready.set()
        return hello

    def _end(self, worker: Worker) -> None:
        worker.hang_up()
        worker.kill()
        with self._lock:
            self._alive.discard(worker)

    def pids(self) -> list[int]:
        """Process ids of the workers, by environment; 0 while one is being replaced."""
        return [worker.pid if (worker := seat.worker) is not None else 0 for seat in self._seats]

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        """See the protocol. A worker lost by this very request is replaced and asked again, once.

        Where one environment fails all of them have moved, and the first error is raised.
        """
        deadline = time.monotonic() + RESET_TIMEOUT
        seats = [self._seats[i] for i in env_ids]
        requests = [json.dumps({"seed": int(seed), "options": options}).encode() for seed in seeds]
        idle = [seat.ready.is_set() for seat in seats]  # those being replaced are waited for after the others
        sent = [
            self._try_send(seat, request, deadline) if ready else None
            for seat, request, ready in zip(seats, requests, idle, strict=True)
        ]
        results, errors = [], []
        for seat, request, number in zip(seats, requests, sent, strict=True):
            try:
                results.append(self._finish_reset(seat, request, number, deadline))
            except LandbridgeError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def _try_send(self, seat: _Seat, request: bytes, deadline: float) -> int | None:
        try:
            return self._worker(seat).send(frames.RESET, request, deadline)
        except (LandbridgeError, OSError) as error:
            self._lose(seat, error)
            return None

    def _finish_reset(self, seat: _Seat, request: bytes, number: int | None, deadline: float) -> ResetResult:
        if number is not None:
            try:
                return self._reset_answer(seat, number, deadline)
            except Unavailable as error:
                self._lose(seat, error)
        if not seat.ready.wait(max(0.0, deadline - time.monotonic())) or seat.failure:
            why = seat.failure or "its new worker takes too long"
            raise Unavailable(f"environment {seat.index} could not be restarted: {why}", retry_after=5.0)
        try:
            return self._reset_answer(seat, self._worker(seat).send(frames.RESET, request, deadline), deadline)
        except Unavailable as error:
            self._lose(seat, error)
            raise Unavailable(f"environment {seat.index} lost its worker twice in Reset: {error}") from error

    def _reset_answer(self, seat: _Seat, number: int, deadline: float) -> ResetResult:
        try:
            payload = self._worker(seat).receive(number, deadline)
        except WorkerError as told:
            if not isinstance(told.error, InvalidArgument):
                self._lose(seat, told.error)
            raise told.error from None
        except LandbridgeError as error:
            if not isinstance(error, Unavailable):  # hung, or out of step: nothing more can be asked of it
                self._lose(seat, error)
            raise
        observation, finite = self._layout.unpack_observation(payload)
        if not finite:
            broken = Internal(f"environment {seat.index}: the first observation is not finite; choose another seed")
            self._lose(seat, broken)
            raise broken
        seat.begin(observation)
        return ResetResult(observation)

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        """See the protocol; one lost worker gives one abandoned result."""
        deadline = time.monotonic() + max(MIN_PATIENCE, min(deadline_s, self._step_timeout))
        sent: list[int | Exception] = []
        for i, own in zip(env_ids, actions, strict=True):
            try:
                request = self._layout.pack_step(own, evaluate_every_step)
                sent.append(self._worker(self._seats[i]).send(frames.STEP, request, deadline))
            except (LandbridgeError, OSError) as error:
                sent.append(error)
        length = actions.shape[1]
        # The last one asked is likely the last to answer: wait for it first, and the others need no waking up.
        pairs = reversed(list(zip(env_ids, sent, strict=True)))
        return [self._result(self._seats[i], number, length, deadline) for i, number in pairs][::-1]

    def _result(self, seat: _Seat, number: int | Exception, length: int, deadline: float) -> ChunkResult:
        try:
            if isinstance(number, Exception):
                raise number
            result, finite = self._layout.unpack_result(self._worker(seat).receive(number, deadline))
            if not finite:
                raise Unavailable(result.message or "the simulator produced a number that is not finite")
        except (LandbridgeError, WorkerError, OSError) as error:
            why = f"{error}; the worker is replaced"
            log.warning("%s: environment %d lost its episode: %s", self.name, seat.index, why)
            self._lose(seat, error)
            return seat.abandoned(length, why)
        seat.observation, seat.steps, seat.succeeded = result.observation, result.episode_step, result.success_once
        return result

    def render(self, env_id: int) -> np.ndarray:
        """See the protocol."""
        return frames.unpack_image(self._ask(env_id, frames.RENDER, b""))

    def save_state(self, env_id: int) -> bytes:
        """See the protocol."""
        return self._ask(env_id, frames.SAVE, b"")

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        """See the protocol."""
        observation, _ = self._layout.unpack_observation(self._ask(env_id, frames.RESTORE, state))
        self._seats[env_id].begin(observation)
        return observation

    def _ask(self, i: int, kind: bytes, payload: bytes) -> bytes:
        """One request outside an episode's steps; a worker that does not answer is replaced."""
        seat, deadline = self._seats[i], time.monotonic() + RESET_TIMEOUT
        try:
            worker = self._worker(seat)
            return worker.receive(worker.send(kind, payload, deadline), deadline)
        except WorkerError as told:
            if not isinstance(told.error, InvalidArgument | Unimplemented):
                self._lose(seat, told.error)
            raise told.error from None
        except FailedPrecondition:
            raise
        except (LandbridgeError, OSError) as error:
            self._lose(seat, error)
            raise Unavailable(f"environment {i}: {error}; Reset it") from error

    def _worker(self, seat: _Seat) -> Worker:
        worker = seat.worker
        if worker is None:
            raise FailedPrecondition(f"environment {seat.index} is being restarted; Reset it first")
        return worker

    def _lose(self, seat: _Seat, why: Exception) -> None:
        """Give up a worker and start its replacement in the background."""
        worker, seat.worker = seat.worker, None
        if worker is None or self._closed:
            return
        seat.ready.clear()
        threading.Thread(
            target=self._replace, args=(seat, worker, str(why)), name=f"restart-{seat.index}", daemon=True
        ).start()

    def _replace(self, seat: _Seat, lost: Worker, why: str) -> None:
        self._end(lost)
        while not self._closed:
            seat.restarts.append(time.monotonic())
            recent = sum(at > seat.restarts[-1] - RESTART_WINDOW for at in seat.restarts)
            if recent > MAX_RESTARTS:
                seat.failure = f"it lost {recent} workers within {RESTART_WINDOW:g} s, at last because: {why}"
                log.error("%s: environment %d is given up: %s", self.name, seat.index, seat.failure)
                break
            time.sleep(0.1 * 2 ** (recent - 1))
            try:
                self._start(seat)
                return
            except (LandbridgeError, OSError) as error:
                why = str(error)
        seat.ready.set()

    def close(self) -> None:
        """End every worker, after a second at the latest."""
        with self._lock:
            self._closed = True
            workers = list(self._alive)
            self._alive.clear()
        for worker in workers:
            worker.hang_up()
        deadline = time.monotonic() + CLOSE_GRACE
        for worker in workers:
            worker.kill(max(0.0, deadline - time.monotonic()))
