"""A pool of worker processes behind :class:`landbridge.env.protocol.VectorBackend`: one environment a process.

A worker that dies, hangs past its deadline or answers nonsense costs its own environment's episode (reported as
abandoned, with the last good observation) and is replaced in the background; the others never notice. Workers are
forked from a server process that has imported the simulator but made no environment (starting 16 costs one import);
requests are sent to all before any answer is awaited.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import multiprocessing.context
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_json
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import DeadlineExceeded, FailedPrecondition, LandbridgeError, Unavailable
from sim_server import frames, worker_process

log = logging.getLogger(__name__)

START_TIMEOUT = 120.0
RESET_TIMEOUT = 60.0
MAX_RESTARTS = 5
"""Restarts in a row, without an episode reset in between, before an environment is given up."""


class Worker:
    """One process and the pipe to it."""

    def __init__(self, context: Any, spec: str, options: dict[str, Any]) -> None:
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=worker_process.main, args=(theirs, spec, options), daemon=True)
        self._process.start()
        theirs.close()

    def hello(self, timeout: float) -> dict[str, Any]:
        """The worker's first message: contract, time limit, pid."""
        made: dict[str, Any] = json.loads(frames.payload_of(self.receive(timeout)))
        return made

    def send(self, message: bytes) -> None:
        """Send a request; UNAVAILABLE when the process is gone."""
        try:
            self._pipe.send_bytes(message)
        except OSError as error:
            raise Unavailable(f"the worker process is gone ({self.describe()})") from error

    def receive(self, timeout: float) -> bytes:
        """Its answer, waited for at most ``timeout`` seconds."""
        try:
            if not self._pipe.poll(max(0.0, timeout)):
                raise DeadlineExceeded(f"the worker process did not answer within {timeout:.3g} s")
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise Unavailable(f"the worker process is gone ({self.describe()})") from error

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def describe(self) -> str:
        """How it ended."""
        self._process.join(0.2)
        code = self._process.exitcode
        if code is None:
            return "running"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(OSError):
            self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.join(1.0)


class _Seat:
    """One environment's place: its worker, or the replacement on its way."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.ready = threading.Event()
        self.observation: Observation | None = None
        self.steps = 0
        self.succeeded = False
        self.restarts = 0
        self.failure = ""


class WorkerPool:
    """See the module's docstring; the interface is :class:`landbridge.env.protocol.VectorBackend`."""

    kind = "simulator"

    def __init__(
        self,
        spec: str,
        num_envs: int,
        options: dict[str, Any],
        *,
        preload: Sequence[str] = (),
        step_timeout: float = 30.0,
    ) -> None:
        """Start ``num_envs`` workers of ``spec`` and wait until the first has told its contract.

        ``preload``: modules the workers' parent imports once. ``step_timeout``: seconds a chunk may take before its
        worker counts as hung.
        """
        self.name = spec
        self.num_envs = num_envs
        self._spec, self._options, self._step_timeout = spec, options, step_timeout
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([worker_process.__name__, *preload])
        self._closed = False
        self._seats = [_Seat() for _ in range(num_envs)]
        for seat in self._seats:
            seat.worker = Worker(self._context, spec, options)
        hellos = [self._greet(seat) for seat in self._seats]
        self.contract: Contract = contract_from_json(hellos[0]["contract"])
        self.max_episode_steps = int(hellos[0]["max_episode_steps"])
        self._layout = frames.Layout(self.contract)

    def _greet(self, seat: _Seat) -> dict[str, Any]:
        assert seat.worker is not None
        try:
            hello = seat.worker.hello(START_TIMEOUT)
        except LandbridgeError:
            self.close()
            raise
        seat.ready.set()
        return hello

    def pids(self) -> list[int]:
        """Process ids of the workers, by environment; 0 while one is being replaced."""
        return [seat.worker.pid if seat.worker is not None else 0 for seat in self._seats]

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        """See the protocol. A worker lost at this moment is replaced and asked again, once."""
        requests = [frames.RESET + json.dumps({"seed": int(seed), "options": options}).encode() for seed in seeds]
        deadline = time.monotonic() + RESET_TIMEOUT
        sent = [self._try_send(i, request, deadline) for i, request in zip(env_ids, requests, strict=True)]
        results = []
        for i, request, ok in zip(env_ids, requests, sent, strict=True):
            try:
                if not ok:
                    raise Unavailable("the worker was lost before the request was sent")
                payload = self._receive(i, deadline - time.monotonic())
            except (Unavailable, DeadlineExceeded):
                self._lose(i)
                self._wait_ready(i, deadline)
                self._send(i, request)
                payload = self._receive(i, deadline - time.monotonic())
            observation, _ = self._layout.unpack_observation(payload, 0)
            seat = self._seats[i]
            seat.observation, seat.steps, seat.succeeded, seat.restarts = observation, 0, False, 0
            results.append(ResetResult(observation))
        return results

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        """See the protocol; one lost worker gives one abandoned result."""
        deadline = time.monotonic() + min(deadline_s, self._step_timeout)
        errors: dict[int, LandbridgeError] = {}
        for i, own in zip(env_ids, actions, strict=True):
            try:
                self._send(i, self._layout.pack_step(own, evaluate_every_step))
            except LandbridgeError as error:
                errors[i] = error
        return [self._result(i, len(actions[0]), deadline, errors.get(i)) for i in env_ids]

    def _result(self, i: int, length: int, deadline: float, error: LandbridgeError | None) -> ChunkResult:
        seat = self._seats[i]
        if error is None:
            try:
                result = self._layout.unpack_result(self._receive(i, deadline - time.monotonic()))
                finite = all(np.isfinite(o).all() for o in result.observation.values() if o.dtype.kind == "f")
                if finite and np.isfinite(result.rewards).all():
                    seat.observation, seat.steps, seat.succeeded = (
                        result.observation,
                        result.episode_step,
                        result.success_once,
                    )
                    return result
                error = Unavailable("the simulator produced a number that is not finite")
            except LandbridgeError as caught:
                error = caught
        log.warning("%s: environment %d lost its episode: %s", self.name, i, error)
        self._lose(i)
        assert seat.observation is not None
        return ChunkResult(
            observation=seat.observation,
            rewards=np.zeros(length, np.float32),
            evaluated=np.zeros(length, bool),
            executed=0,
            abandoned=True,
            success=np.zeros(length, bool),
            success_once=seat.succeeded,
            episode_step=seat.steps,
            message=str(error),
        )

    def render(self, env_id: int) -> np.ndarray:
        """See the protocol."""
        shape, _, data = self._ask(env_id, frames.RENDER).partition(b"\n")
        return np.frombuffer(data, np.uint8).reshape(json.loads(shape))

    def save_state(self, env_id: int) -> bytes:
        """See the protocol."""
        return self._ask(env_id, frames.SAVE)

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        """See the protocol."""
        observation, _ = self._layout.unpack_observation(self._ask(env_id, frames.RESTORE + state), 0)
        self._seats[env_id].observation = observation
        return observation

    def close(self) -> None:
        """End every worker now."""
        self._closed = True
        for seat in self._seats:
            if seat.worker is not None:
                seat.worker.kill()

    def _ask(self, i: int, request: bytes) -> bytes:
        self._send(i, request)
        return self._receive(i, RESET_TIMEOUT)

    def _send(self, i: int, request: bytes) -> None:
        seat = self._seats[i]
        if seat.worker is None or not seat.ready.is_set():
            raise FailedPrecondition(f"environment {i} is being restarted; Reset it first")
        seat.worker.send(request)

    def _try_send(self, i: int, request: bytes, deadline: float) -> bool:
        self._wait_ready(i, deadline)
        try:
            self._send(i, request)
        except Unavailable:
            return False
        return True

    def _receive(self, i: int, timeout: float) -> bytes:
        worker = self._seats[i].worker
        if worker is None:
            raise Unavailable(f"environment {i} has no worker")
        return frames.payload_of(worker.receive(timeout))

    def _wait_ready(self, i: int, deadline: float) -> None:
        seat = self._seats[i]
        if not seat.ready.wait(max(0.0, deadline - time.monotonic())) or seat.failure:
            raise Unavailable(
                f"environment {i} could not be restarted: {seat.failure or 'it takes too long'}", retry_after=5.0
            )

    def _lose(self, i: int) -> None:
        """Kill a worker and start its replacement in the background."""
        seat = self._seats[i]
        worker, seat.worker = seat.worker, None
        if worker is None or self._closed:
            return
        seat.ready.clear()
        worker.kill()
        seat.restarts += 1
        threading.Thread(target=self._replace, args=(i,), name=f"restart-{i}", daemon=True).start()

    def _replace(self, i: int) -> None:
        seat = self._seats[i]
        if seat.restarts > MAX_RESTARTS:
            seat.failure = f"lost {seat.restarts} workers in a row"
        else:
            time.sleep(0.1 * 2 ** (seat.restarts - 1))
            try:
                worker = Worker(self._context, self._spec, self._options)
                worker.hello(START_TIMEOUT)
                seat.worker = worker
                if self._closed:
                    worker.kill()
            except (LandbridgeError, OSError) as error:
                seat.failure = str(error)
        seat.ready.set()
