"""PolicyService: what ``policy.proto`` promises, on top of batcher and weight store."""

from __future__ import annotations

import collections
import queue
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import numpy as np
from google.protobuf import duration_pb2, timestamp_pb2

from landbridge import telemetry
from landbridge.contract_codec import contract_to_proto
from landbridge.errors import (
    DeadlineExceeded,
    InvalidArgument,
    LandbridgeError,
    NotFound,
    Path,
)
from landbridge.tensors import decode, encode, encode_map, expect
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc, weights_pb2
from policy_server.backends.protocol import Backend
from policy_server.batcher import Batcher, Request, Result
from policy_server.weights import WeightStore

MAX_PAUSE = 60.0
UNBOUNDED = 3600.0
"""Seconds a request without any deadline may wait."""


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """The servicer. Calls other than inference never touch the compute thread, so they answer while it works."""

    def __init__(self, name: str, backend: Backend, store: WeightStore[Any], batcher: Batcher, max_rows: int) -> None:
        self._name = name
        self._backend = backend
        self._store = store
        self._batcher = batcher
        self._max_rows = max_rows
        self._instance = uuid.uuid4().hex
        self._push_lock = threading.Lock()
        self._lease = ""

    def GetInfo(self, request: pb.GetInfoRequest, context: Any) -> pb.PolicyInfo:
        """See ``policy.proto``."""
        backend = self._backend
        return pb.PolicyInfo(
            name=self._name,
            server_version=_version(),
            contract=contract_to_proto(backend.contract),
            horizon=backend.horizon,
            max_rows=self._max_rows,
            architecture_hash=backend.architecture_hash,
            architecture_json=backend.architecture_json,
            current_version=self._store.current.version,
            held_versions=self._store.versions(),
            reads=backend.reads,
            paused=self._batcher.paused,
            instance_id=self._instance,
        )

    def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        """See ``policy.proto``."""
        with telemetry.span("policy.infer", rows=len(request.seeds)):
            remaining = context.time_remaining()
            future, deadline = self._submit(request, remaining)
            context.add_callback(future.cancel)
            return _response(request, _wait(future, deadline))

    def InferStream(self, requests: Iterable[pb.InferRequest], context: Any) -> Iterator[pb.InferResponse]:
        """See ``policy.proto``: a reader thread submits, this one answers in order."""
        pending: queue.SimpleQueue[tuple[pb.InferRequest, Future[Result] | LandbridgeError, float] | None]
        pending = queue.SimpleQueue()
        futures: collections.deque[Future[Result]] = collections.deque(maxlen=256)

        def read() -> None:
            try:
                for request in requests:
                    try:
                        future, deadline = self._submit(request, context.time_remaining())
                        futures.append(future)
                        pending.put((request, future, deadline))
                    except LandbridgeError as error:
                        pending.put((request, error, 0.0))
            except Exception:  # the client or the transport ended the stream in mid-message
                pass
            finally:
                pending.put(None)

        def abandon() -> None:
            for future in futures:
                future.cancel()

        context.add_callback(abandon)
        threading.Thread(target=read, name="infer-stream", daemon=True).start()
        while (item := pending.get()) is not None:
            request, outcome, deadline = item
            try:
                if isinstance(outcome, LandbridgeError):
                    raise outcome
                yield _response(request, _wait(outcome, deadline))
            except LandbridgeError as error:
                yield _failure(request, error)

    def _submit(self, request: pb.InferRequest, remaining: float | None) -> tuple[Future[Result], float]:
        limit = UNBOUNDED if remaining is None else remaining
        if request.HasField("timeout"):
            limit = min(limit, request.timeout.ToNanoseconds() / 1e9)
        deadline = time.monotonic() + limit
        if limit <= 0:
            raise DeadlineExceeded("the deadline passed before the request was read; it was not computed")
        obs, rows = self._decode(request)
        if request.HasField("version"):
            self._store.get(request.version)  # NOT_FOUND now rather than after a wait
        return (
            self._batcher.submit(
                Request(
                    obs=obs,
                    rows=rows,
                    seeds=list(request.seeds),
                    deterministic=_deterministic(request.mode),
                    version=request.version if request.HasField("version") else None,
                    want_trace=request.want_trace,
                    want_value=request.want_value,
                    session=request.session_id,
                    deadline=deadline,
                )
            ),
            deadline,
        )

    def _decode(self, request: pb.InferRequest) -> tuple[Mapping[str, np.ndarray], int]:
        """The tensors the policy reads, checked against the contract, and their number of rows."""
        names = dict.fromkeys(self._backend.reads + (self._backend.value_reads if request.want_value else ()))
        obs: dict[str, np.ndarray] = {}
        rows: int | None = None
        for name in names:
            where = Path("observation")[name]
            if name not in request.observation:
                raise InvalidArgument(
                    f"{where} is missing; this policy reads {list(names)}, {sorted(request.observation)} came",
                    field=str(where),
                )
            spec = self._backend.contract.spec(name)
            shape = tuple(None if extent < 0 else extent for extent in spec.shape)
            # Writable, because torch warns about, and may one day write to, read-only memory.
            array = decode(request.observation[name], where, writable=True)
            expect(array, where, dtype=spec.dtype, shape=(rows, *shape))
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                first = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
                raise InvalidArgument(
                    f"{where}{first} is {array[tuple(first)]}; a policy needs finite numbers", field=str(where)
                )
            rows = len(array)
            obs[name] = array
        assert rows is not None
        if not 1 <= rows <= self._max_rows:
            raise InvalidArgument(
                f"{rows} rows came, 1 to {self._max_rows} are accepted; split the request", field="observation"
            )
        if request.seeds and len(request.seeds) != rows:
            raise InvalidArgument(f"{len(request.seeds)} seeds for {rows} rows; give one a row or none", field="seeds")
        return obs, rows

    def ResetSession(self, request: pb.ResetSessionRequest, context: Any) -> pb.ResetSessionResponse:
        """See ``policy.proto``."""
        if not request.session_id:
            raise InvalidArgument("session_id is empty; name the session to reset", field="session_id")
        self._batcher.forget(request.session_id)
        return pb.ResetSessionResponse()

    def PushWeights(self, requests: Iterable[pb.PushWeightsRequest], context: Any) -> pb.PushWeightsResponse:
        """See ``policy.proto``."""
        stream = iter(requests)
        first = next(stream, None)
        if first is None or first.WhichOneof("part") != "manifest":
            raise InvalidArgument("the first message of a push is its manifest", field="manifest")

        def buckets() -> Iterator[weights_pb2.WeightsBucket]:
            for message in stream:
                if message.WhichOneof("part") != "bucket":
                    raise InvalidArgument("one manifest a push; after it come buckets", field="bucket")
                yield message.bucket

        with self._push_lock:  # two pushes at once would race for what is current
            held, verify, flip = self._store.push(first.manifest, buckets())
        return pb.PushWeightsResponse(
            version=held.version,
            activated=self._store.current is held,
            verify_seconds=verify,
            flip_seconds=flip,
            held_versions=self._store.versions(),
        )

    def ActivateWeights(self, request: pb.ActivateWeightsRequest, context: Any) -> pb.ActivateWeightsResponse:
        """See ``policy.proto``."""
        previous = self._store.activate(request.version)
        return pb.ActivateWeightsResponse(previous_version=previous, version=request.version)

    def ListWeights(self, request: pb.ListWeightsRequest, context: Any) -> pb.ListWeightsResponse:
        """See ``policy.proto``."""
        versions = []
        for held in self._store.list():
            received = timestamp_pb2.Timestamp()
            received.FromNanoseconds(int(held.received * 1e9))
            versions.append(
                pb.HeldVersion(
                    version=held.version,
                    training_step=held.training_step,
                    received=received,
                    pinned=held.pinned,
                    bytes=held.bytes,
                )
            )
        return pb.ListWeightsResponse(versions=versions, current_version=self._store.current.version)

    def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        """See ``policy.proto``."""
        seconds = request.lease.ToNanoseconds() / 1e9
        if not 0 < seconds <= MAX_PAUSE:
            raise InvalidArgument(
                f"a pause lasts more than 0 and at most {MAX_PAUSE:g} s, {seconds:g} s came", field="lease"
            )
        self._lease = uuid.uuid4().hex
        self._batcher.pause(seconds)
        return pb.PauseResponse(lease_id=self._lease)

    def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeResponse:
        """See ``policy.proto``."""
        if not self._batcher.paused:
            return pb.ResumeResponse()
        if request.lease_id != self._lease:
            raise NotFound("no pause has that lease; a later Pause may have taken its place", field="lease_id")
        self._batcher.resume()
        return pb.ResumeResponse()


def _deterministic(mode: int) -> bool:
    if mode == pb.SAMPLE_MODE_DETERMINISTIC:
        return True
    if mode == pb.SAMPLE_MODE_STOCHASTIC:
        return False
    raise InvalidArgument("mode is not set; say SAMPLE_MODE_DETERMINISTIC or SAMPLE_MODE_STOCHASTIC", field="mode")


def _wait(future: Future[Result], deadline: float) -> Result:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except FutureTimeout:
        future.cancel()
        raise DeadlineExceeded("the deadline passed before the answer was computed") from None


def _response(request: pb.InferRequest, result: Result) -> pb.InferResponse:
    answer = result.answer
    return pb.InferResponse(
        request_id=request.request_id,
        episode_id=request.episode_id,
        observation_id=request.observation_id,
        version=result.version,
        actions=encode(answer.actions),
        log_prob=None if answer.log_prob is None else encode(answer.log_prob),
        value=None if answer.value is None else encode(answer.value),
        trace=encode_map(answer.trace),
        seeds=result.seeds,
        timings=pb.Timings(queued=result.queued, computed=result.computed, batch_rows=result.batch_rows),
    )


def _failure(request: pb.InferRequest, error: LandbridgeError) -> pb.InferResponse:
    retry = None
    if error.retry_after is not None:
        retry = duration_pb2.Duration()
        retry.FromNanoseconds(int(error.retry_after * 1e9))
    return pb.InferResponse(
        request_id=request.request_id,
        episode_id=request.episode_id,
        observation_id=request.observation_id,
        error=pb.RequestError(code=error.code.value[0], message=error.message, retry_after=retry),
    )


def _version() -> str:
    from importlib import metadata

    return metadata.version("landbridge")
