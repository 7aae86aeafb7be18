"""Inference messages: requests checked against the contract, answers and errors encoded."""

from __future__ import annotations

import os
import time

import numpy as np

from landbridge.durations import to_duration, to_seconds
from landbridge.errors import DeadlineExceeded, InvalidArgument, LandbridgeError, Path
from landbridge.tensors import decode, encode, encode_map, expect
from landbridge.v1 import policy_pb2 as pb
from policy_server.backends.protocol import Backend
from policy_server.batcher import Request, Result
from policy_server.sessions import Stamp

MAX_WAIT = 3600.0
"""Seconds a request may wait, also one without a deadline (gRPC then gives a number no clock can take)."""


class RequestDecoder:
    """Decodes requests for one backend."""

    def __init__(self, backend: Backend, max_rows: int) -> None:
        """``max_rows`` a request."""
        self._max_rows = max_rows
        self._actor = self._wanted(backend, backend.reads)
        self._both = self._wanted(backend, tuple(dict.fromkeys(backend.reads + backend.value_reads)))

    @staticmethod
    def _wanted(backend: Backend, names: tuple[str, ...]) -> list[tuple[str, Path, str, tuple[int | None, ...]]]:
        specs = [backend.contract.spec(name) for name in names]
        return [
            (s.name, Path("observation")[s.name], s.dtype, tuple(None if e < 0 else e for e in s.shape)) for s in specs
        ]

    def decode(self, message: pb.InferRequest, remaining: float | None) -> Request:
        """The request, its version not looked up yet. ``remaining`` seconds of the call's deadline; None: no deadline.

        DEADLINE_EXCEEDED when none is left, INVALID_ARGUMENT with the field's path for everything else.
        """
        limit = MAX_WAIT if remaining is None else min(MAX_WAIT, remaining)
        if message.HasField("timeout"):
            limit = min(limit, to_seconds(message.timeout))
        if limit <= 0:
            raise DeadlineExceeded("the deadline passed before the request was read; it was not computed")
        deadline = time.monotonic() + limit
        obs = self._observation(message)
        rows = len(next(iter(obs.values())))
        seeds = list(message.seeds) or np.frombuffer(os.urandom(8 * rows), np.uint64).tolist()
        if len(seeds) != rows:
            raise InvalidArgument(f"{len(seeds)} seeds for {rows} rows; give one a row or none", field="seeds")
        return Request(
            obs=obs,
            seeds=seeds,
            deterministic=_deterministic(message.mode),
            want_trace=message.want_trace,
            want_value=message.want_value,
            deadline=deadline,
            stamp=Stamp(message.session_id, message.episode_id, message.observation_id),
        )

    def _observation(self, message: pb.InferRequest) -> dict[str, np.ndarray]:
        """The tensors the policy reads, all with the same number of rows; others that came are ignored."""
        wanted = self._both if message.want_value else self._actor
        obs: dict[str, np.ndarray] = {}
        rows: int | None = None
        for name, where, dtype, shape in wanted:
            if name not in message.observation:
                raise InvalidArgument(
                    f"{where} is missing; this policy reads {[w[0] for w in wanted]}, "
                    f"{sorted(message.observation)} came",
                    field=str(where),
                )
            array = decode(message.observation[name], where)
            expect(array, where, dtype=dtype, shape=(rows, *shape))
            if rows is None:
                rows = len(array)
                if not 1 <= rows <= self._max_rows:
                    raise InvalidArgument(
                        f"{where}: {rows} rows came, 1 to {self._max_rows} are accepted; split the request",
                        field=str(where),
                    )
            _finite(array, where)
            obs[name] = array
        return obs


def _finite(array: np.ndarray, where: Path) -> None:
    if array.dtype.kind in "biu" or np.isfinite(array).all():
        return
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
    raise InvalidArgument(f"{where}{list(first)} is {array[first]}; a policy needs finite numbers", field=str(where))


def _deterministic(mode: int) -> bool:
    if mode == pb.SAMPLE_MODE_DETERMINISTIC:
        return True
    if mode == pb.SAMPLE_MODE_STOCHASTIC:
        return False
    raise InvalidArgument("mode is not set; say SAMPLE_MODE_DETERMINISTIC or SAMPLE_MODE_STOCHASTIC", field="mode")


def encode_result(message: pb.InferRequest, request: Request, result: Result) -> pb.InferResponse:
    """The answer to ``message``."""
    answer = result.answer
    return pb.InferResponse(
        request_id=message.request_id,
        episode_id=message.episode_id,
        observation_id=message.observation_id,
        version=result.version,
        actions=encode(answer.actions),
        log_prob=None if answer.log_prob is None else encode(answer.log_prob),
        value=None if answer.value is None else encode(answer.value),
        trace=encode_map(answer.trace),
        seeds=request.seeds,
        timings=pb.Timings(queued=result.queued, computed=result.computed, batch_rows=result.batch_rows),
    )


def encode_error(message: pb.InferRequest, error: LandbridgeError) -> pb.InferResponse:
    """The answer, inside a stream, to a request that failed."""
    retry = None if error.retry_after is None else to_duration(error.retry_after)
    return pb.InferResponse(
        request_id=message.request_id,
        episode_id=message.episode_id,
        observation_id=message.observation_id,
        error=pb.RequestError(code=error.code.value[0], message=error.message, retry_after=retry),
    )
