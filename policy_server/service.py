"""PolicyService: what ``policy.proto`` promises, on top of batcher and weight store."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

from google.protobuf import timestamp_pb2

from landbridge import telemetry
from landbridge.contract_codec import contract_to_proto
from landbridge.durations import to_seconds
from landbridge.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc, weights_pb2
from policy_server.backends.protocol import Backend
from policy_server.batcher import Batcher, Request
from policy_server.codec import RequestDecoder, encode_result
from policy_server.stream import Lane, Lanes
from policy_server.weights import WeightStore

MAX_PAUSE = 60.0
MAX_PUSHES = 4
"""Pushes under way at once; each may hold a whole set of weights."""


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """The servicer. Calls other than inference never touch the backend, so they answer while it works."""

    def __init__(
        self, name: str, backend: Backend, store: WeightStore[Any], batcher: Batcher, max_rows: int, max_streams: int
    ) -> None:
        """``max_rows`` a request, ``max_streams`` open at once."""
        self._name = name
        self._backend = backend
        self._store = store
        self._batcher = batcher
        self._max_rows = max_rows
        self._max_streams = max_streams
        self._decoder = RequestDecoder(backend, max_rows)
        self._instance = uuid.uuid4().hex
        self._lanes = Lanes()
        self._pushes = threading.BoundedSemaphore(MAX_PUSHES)
        self._lease = ""
        self._draining = False

    def drain(self) -> None:
        """Open streams answer what they have read and end; new ones are refused."""
        self._draining = True
        self._lanes.finish()

    def GetInfo(self, request: pb.GetInfoRequest, context: Any) -> pb.PolicyInfo:
        """See ``policy.proto``."""
        backend = self._backend
        return pb.PolicyInfo(
            name=self._name,
            server_version=_server_version(),
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
        with telemetry.span("policy.infer", observation=request.observation_id, episode=request.episode_id):
            queued = self._submit(request, context)
            if not context.add_callback(queued.abandon):
                queued.abandon()
            return encode_result(request, queued, self._batcher.wait(queued))

    def InferStream(self, requests: Iterable[pb.InferRequest], context: Any) -> Iterator[pb.InferResponse]:
        """See ``policy.proto``."""
        if self._draining:
            raise Unavailable("the policy server is shutting down; try another replica or later", retry_after=1.0)
        if len(self._lanes) >= self._max_streams:
            raise ResourceExhausted(
                f"{self._max_streams} streams are open, no more are accepted; close one or use Infer", retry_after=1.0
            )
        lane = Lane(requests, self._batcher, lambda request: self._submit(request, context))
        self._lanes.open(lane, context)
        yield from lane.answers()

    def _submit(self, message: pb.InferRequest, context: Any) -> Request:
        request = self._decoder.decode(message, context.time_remaining())
        if message.HasField("version"):
            request.held = self._store.get(message.version)
        self._batcher.submit(request)
        return request

    def ResetSession(self, request: pb.ResetSessionRequest, context: Any) -> pb.ResetSessionResponse:
        """See ``policy.proto``."""
        if not request.session_id:
            raise InvalidArgument("session_id is empty; name the session to reset", field="session_id")
        self._batcher.forget(request.session_id)
        return pb.ResetSessionResponse()

    def PushWeights(self, requests: Iterable[pb.PushWeightsRequest], context: Any) -> pb.PushWeightsResponse:
        """See ``policy.proto``."""
        if not self._pushes.acquire(blocking=False):
            raise ResourceExhausted(f"{MAX_PUSHES} pushes are under way; try again when one is done", retry_after=1.0)
        try:
            stream = iter(requests)
            first = next(stream, None)
            if first is None or first.WhichOneof("part") != "manifest":
                raise InvalidArgument("the first message of a push is its manifest", field="manifest")
            held, verify, flip = self._store.push(first.manifest, _buckets(stream))
        finally:
            self._pushes.release()
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
        for held, pinned in self._store.list():
            received = timestamp_pb2.Timestamp()
            received.FromNanoseconds(int(held.received * 1e9))
            versions.append(
                pb.HeldVersion(
                    version=held.version,
                    training_step=held.training_step,
                    received=received,
                    pinned=pinned,
                    bytes=held.bytes,
                )
            )
        return pb.ListWeightsResponse(versions=versions, current_version=self._store.current.version)

    def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        """See ``policy.proto``."""
        seconds = to_seconds(request.lease)
        if not 0 < seconds <= MAX_PAUSE:
            raise InvalidArgument(
                f"a pause lasts more than 0 and at most {MAX_PAUSE:g} s, {seconds:g} s came", field="lease"
            )
        self._lease = lease = uuid.uuid4().hex
        self._batcher.pause(seconds)
        return pb.PauseResponse(lease_id=lease)

    def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeResponse:
        """See ``policy.proto``. Resuming after the lease has ended by itself is no error."""
        if not self._batcher.paused:
            return pb.ResumeResponse()
        if request.lease_id != self._lease:
            raise NotFound("no pause has that lease; a later Pause may have taken its place", field="lease_id")
        self._batcher.resume()
        return pb.ResumeResponse()


def _buckets(stream: Iterator[pb.PushWeightsRequest]) -> Iterator[weights_pb2.WeightsBucket]:
    for message in stream:
        if message.WhichOneof("part") != "bucket":
            raise InvalidArgument("one manifest a push; after it come buckets", field="bucket")
        yield message.bucket


@functools.cache
def _server_version() -> str:
    try:
        return metadata.version("landbridge")
    except metadata.PackageNotFoundError:
        return "(not installed)"
