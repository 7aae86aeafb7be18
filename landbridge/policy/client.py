"""Client of PolicyService: numpy in, numpy out. Needs grpcio, protobuf and numpy; no torch.

with PolicyClient("127.0.0.1:50051") as policy:
    answer = policy.infer({"state": state[None]})       # [rows, …]
    chunk = answer.actions[0]                            # [horizon, action], physical units
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Unpack

import numpy as np

from landbridge import rpc
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_proto
from landbridge.durations import to_duration
from landbridge.policy.messages import InferOptions, InferResult, build_request, parse_response
from landbridge.policy.stream import InferStream
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc
from landbridge.weights import State, iter_buckets, make_manifest

__all__ = ["InferOptions", "InferResult", "InferStream", "PolicyClient", "PolicyDescription"]


@dataclass(frozen=True)
class PolicyDescription:
    """What a server says of itself, with the contract decoded. See PolicyInfo in ``policy.proto``."""

    name: str
    server_version: str
    contract: Contract
    horizon: int
    current_version: int
    held_versions: tuple[int, ...]
    architecture_hash: str
    architecture_json: str
    reads: tuple[str, ...]
    max_rows: int
    paused: bool
    instance_id: str


class PolicyClient:
    """One connection to a policy server. Thread-safe; every call has a deadline.

    Failures are :mod:`landbridge.errors` classes.
    """

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        """``timeout`` is the deadline in seconds of calls that state none."""
        self.address = address
        self.timeout = timeout
        self._channel = rpc.channel(address)
        self._stub = policy_pb2_grpc.PolicyServiceStub(self._channel)
        self._ids = itertools.count(1)

    def info(self, *, wait: bool = False) -> PolicyDescription:
        """What is served; ``wait`` waits for a server that is still starting."""
        info: pb.PolicyInfo = rpc.call(self._stub.GetInfo, pb.GetInfoRequest(), self.timeout, wait=wait)
        return PolicyDescription(
            name=info.name,
            server_version=info.server_version,
            contract=contract_from_proto(info.contract),
            horizon=info.horizon,
            current_version=info.current_version,
            held_versions=tuple(info.held_versions),
            architecture_hash=info.architecture_hash,
            architecture_json=info.architecture_json,
            reads=tuple(info.reads),
            max_rows=info.max_rows,
            paused=info.paused,
            instance_id=info.instance_id,
        )

    def infer(
        self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Unpack[InferOptions]
    ) -> InferResult:
        """One answer for ``observation`` ({name: [rows, …]}). On a hot path use :meth:`stream`."""
        request = build_request(next(self._ids), observation, **options)
        limit = self.timeout if timeout is None else timeout
        return parse_response(request, rpc.call(self._stub.Infer, request, limit))

    def stream(self) -> InferStream:
        """The fast path: one stream for many requests."""
        return InferStream(self._stub, self.timeout)

    def reset_session(self, session_id: str) -> None:
        """Forget what the server remembers of a session; what it has waiting is ABORTED."""
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
        """Push ``state`` as ``version``; with ``base_version``, ``state`` holds the changed tensors only.

        Errors: see PushWeights in ``policy.proto``; on any of them the server serves what it served.
        """
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
        request = pb.ActivateWeightsRequest(version=version)
        reply: pb.ActivateWeightsResponse = rpc.call(self._stub.ActivateWeights, request, self.timeout)
        return reply.previous_version

    def list_weights(self) -> pb.ListWeightsResponse:
        """The versions held."""
        return rpc.call(self._stub.ListWeights, pb.ListWeightsRequest(), self.timeout)

    def pause(self, lease: float) -> str:
        """Hold inference back for up to ``lease`` seconds; returns the lease's id."""
        request = pb.PauseRequest(lease=to_duration(lease))
        reply: pb.PauseResponse = rpc.call(self._stub.Pause, request, self.timeout)
        return reply.lease_id

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
