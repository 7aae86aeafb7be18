"""Client of PolicyService: numpy in, numpy out. Needs grpcio, protobuf and numpy; no torch.

with PolicyClient("127.0.0.1:50051") as policy:
    answer = policy.infer({"state": state[None]})       # [rows, …]
    chunk = answer.actions[0]                            # [horizon, action], physical units
"""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from google.protobuf import duration_pb2

from landbridge import rpc
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_proto
from landbridge.errors import FailedPrecondition, Internal, Unavailable, from_code, from_rpc_error
from landbridge.tensors import decode, decode_map, encode_map
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc
from landbridge.weights import State, iter_buckets, make_manifest


@dataclass(frozen=True)
class InferResult:
    """One answer. ``version`` is the weights' that computed every row of it."""

    actions: np.ndarray
    """[rows, horizon, …action], physical units."""
    version: int
    seeds: tuple[int, ...]
    log_prob: np.ndarray | None
    """[rows, horizon] float32; None when deterministic."""
    value: np.ndarray | None
    trace: dict[str, np.ndarray]
    episode_id: str
    observation_id: int
    queued: float
    computed: float
    batch_rows: int


@dataclass(frozen=True)
class PolicyDescription:
    """What a server says of itself, with the contract decoded."""

    contract: Contract
    horizon: int
    current_version: int
    held_versions: tuple[int, ...]
    architecture_hash: str
    architecture_json: str
    reads: tuple[str, ...]
    max_rows: int
    instance_id: str


class PolicyClient:
    """One connection to a policy server. Thread-safe; every call has a deadline."""

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        """``timeout`` is the deadline in seconds of calls that state none."""
        self.address = address
        self.timeout = timeout
        self._channel = rpc.channel(address)
        self._stub = policy_pb2_grpc.PolicyServiceStub(self._channel)
        self._ids = itertools.count(1)

    def info(self, *, wait: bool = False) -> PolicyDescription:
        """What is served; ``wait`` waits for a server that is still starting."""
        info = rpc.call(self._stub.GetInfo, pb.GetInfoRequest(), self.timeout, wait=wait)
        return PolicyDescription(
            contract=contract_from_proto(info.contract),
            horizon=info.horizon,
            current_version=info.current_version,
            held_versions=tuple(info.held_versions),
            architecture_hash=info.architecture_hash,
            architecture_json=info.architecture_json,
            reads=tuple(info.reads),
            max_rows=info.max_rows,
            instance_id=info.instance_id,
        )

    def infer(
        self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Any
    ) -> InferResult:
        """One answer for ``observation`` ({name: [rows, …]}). ``options``: see :func:`build_request`."""
        request = build_request(next(self._ids), observation, **options)
        return parse_response(request, rpc.call(self._stub.Infer, request, timeout or self.timeout))

    def stream(self) -> InferStream:
        """The fast path: one stream for many requests."""
        return InferStream(self._stub, self.timeout)

    def reset_session(self, session_id: str) -> None:
        """Forget what the server remembers of a session."""
        rpc.call(self._stub.ResetSession, pb.ResetSessionRequest(session_id=session_id), self.timeout)

    def push_weights(
        self,
        state: State,
        *,
        version: int,
        architecture_hash: str,
        base_version: int | None = None,
        activate: bool = True,
        training_step: int = 0,
        timeout: float = 60.0,
    ) -> pb.PushWeightsResponse:
        """Push ``state`` as ``version``; with ``base_version``, ``state`` holds the changed tensors only."""
        manifest = make_manifest(
            state,
            version=version,
            architecture_hash=architecture_hash,
            base_version=base_version,
            activate=activate,
            training_step=training_step,
        )

        def messages() -> Iterator[pb.PushWeightsRequest]:
            yield pb.PushWeightsRequest(manifest=manifest)
            for bucket in iter_buckets(state):
                yield pb.PushWeightsRequest(bucket=bucket)

        return rpc.call(self._stub.PushWeights, messages(), timeout)

    def activate(self, version: int) -> int:
        """Make a held version current (rollback); returns the one before."""
        return rpc.call(
            self._stub.ActivateWeights, pb.ActivateWeightsRequest(version=version), self.timeout
        ).previous_version

    def list_weights(self) -> pb.ListWeightsResponse:
        """The versions held."""
        return rpc.call(self._stub.ListWeights, pb.ListWeightsRequest(), self.timeout)

    def pause(self, lease: float) -> str:
        """Hold inference back for up to ``lease`` seconds; returns the lease's id."""
        return rpc.call(self._stub.Pause, pb.PauseRequest(lease=_duration(lease)), self.timeout).lease_id

    def resume(self, lease_id: str) -> None:
        """End a pause."""
        rpc.call(self._stub.Resume, pb.ResumeRequest(lease_id=lease_id), self.timeout)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class InferStream:
    """One InferStream call. Requests may be sent ahead; answers come in order. For one thread.

    After a transport error or a missed deadline the stream is closed: open a new one, so that a late answer can never
    be taken for the next one's.
    """

    def __init__(self, stub: policy_pb2_grpc.PolicyServiceStub, timeout: float) -> None:
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._outgoing: queue.SimpleQueue[pb.InferRequest | None] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[pb.InferRequest] = queue.SimpleQueue()
        self._open = True
        self._answers: Any = stub.InferStream(iter(self._outgoing.get, None))

    def infer(
        self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Any
    ) -> InferResult:
        """Send one request and wait for its answer."""
        self.send(observation, timeout=timeout, **options)
        return self.receive()

    def send(self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Any) -> None:
        """Send a request; its answer is a later :meth:`receive`'s. ``timeout`` is this request's own."""
        if not self._open:
            raise FailedPrecondition("this stream was closed by an earlier error; open another one")
        request = build_request(next(self._ids), observation, timeout=timeout or self._timeout, **options)
        self._waiting.put(request)
        self._outgoing.put(request)

    def receive(self) -> InferResult:
        """The answer to the oldest request not yet answered; its error is raised and the stream goes on."""
        try:
            request = self._waiting.get_nowait()
        except queue.Empty:
            raise FailedPrecondition("nothing was sent that is still unanswered") from None
        try:
            response = next(self._answers)
        except StopIteration:
            self.close()
            raise Unavailable("the server ended the stream; open another one", retry_after=0.5) from None
        except grpc.RpcError as error:
            self.close()
            raise from_rpc_error(error) from error
        return parse_response(request, response)

    def close(self) -> None:
        """End the stream."""
        if self._open:
            self._open = False
            self._outgoing.put(None)
            with contextlib.suppress(Exception):
                self._answers.cancel()

    def __enter__(self) -> InferStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def build_request(
    request_id: int,
    observation: Mapping[str, np.ndarray],
    *,
    deterministic: bool = True,
    seeds: Sequence[int] = (),
    version: int | None = None,
    want_trace: bool = False,
    want_value: bool = False,
    session_id: str = "",
    episode_id: str = "",
    observation_id: int = 0,
    timeout: float | None = None,
) -> pb.InferRequest:
    """A request for {name: [rows, …]}.

    ``seeds``: one a row, makes the answer reproducible; ``version``: exactly this one; ``session_id``: latest wins.
    """
    return pb.InferRequest(
        request_id=request_id,
        session_id=session_id,
        episode_id=episode_id,
        observation_id=observation_id,
        observation=encode_map(observation),
        seeds=seeds,
        mode=pb.SAMPLE_MODE_DETERMINISTIC if deterministic else pb.SAMPLE_MODE_STOCHASTIC,
        version=version,
        want_trace=want_trace,
        want_value=want_value,
        timeout=None if timeout is None else _duration(timeout),
    )


def parse_response(request: pb.InferRequest, response: pb.InferResponse) -> InferResult:
    """The answer decoded; an answer to another request, or an error inside it, is raised."""
    if response.request_id != request.request_id:
        raise Internal(f"the answer to request {response.request_id} came for request {request.request_id}; dropped")
    if response.HasField("error"):
        retry = response.error.retry_after.ToNanoseconds() / 1e9 if response.error.HasField("retry_after") else None
        raise from_code(response.error.code, response.error.message, retry)
    return InferResult(
        actions=decode(response.actions, "actions"),
        version=response.version,
        seeds=tuple(response.seeds),
        log_prob=decode(response.log_prob, "log_prob") if response.HasField("log_prob") else None,
        value=decode(response.value, "value") if response.HasField("value") else None,
        trace=decode_map(response.trace, "trace"),
        episode_id=response.episode_id,
        observation_id=response.observation_id,
        queued=response.timings.queued,
        computed=response.timings.computed,
        batch_rows=response.timings.batch_rows,
    )


def _duration(seconds: float) -> duration_pb2.Duration:
    made = duration_pb2.Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made
