"""Client of LearnerService; no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType

from landbridge import rpc
from landbridge.durations import to_duration
from landbridge.errors import DataLoss
from landbridge.v1 import learner_pb2 as pb
from landbridge.v1 import learner_pb2_grpc, weights_pb2


class LearnerClient:
    """One connection to a learner. Every call has a deadline; errors are :mod:`landbridge.errors` classes."""

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        """``timeout`` is the deadline in seconds of calls that state none."""
        self.address = address
        self._timeout = timeout
        self._channel = rpc.channel(address)
        self._stub = learner_pb2_grpc.LearnerServiceStub(self._channel)

    def status(self, timeout: float | None = None) -> pb.LearnerStatus:
        """Counters, versions, staleness histogram."""
        return rpc.call(self._stub.GetStatus, pb.GetLearnerStatusRequest(), timeout or self._timeout)

    def acquire(self, worker_id: str, count: int, wait: float) -> pb.AcquireRolloutResponse:
        """Ask for up to ``count`` tickets, waiting up to ``wait`` seconds for the first."""
        request = pb.AcquireRolloutRequest(worker_id=worker_id, count=count, wait=to_duration(wait))
        return rpc.call(self._stub.AcquireRollout, request, wait + self._timeout)

    def release(self, ticket: str, reason: str) -> None:
        """Give a ticket back."""
        rpc.call(self._stub.ReleaseRollout, pb.ReleaseRolloutRequest(ticket=ticket, reason=reason), self._timeout)

    def submit(self, trajectories: Iterable[pb.Trajectory], timeout: float) -> Iterator[pb.SubmitAcknowledgement]:
        """Stream trajectories in; yields one acknowledgement each. ``timeout`` bounds the whole stream."""
        with rpc.translated():
            yield from self._stub.SubmitTrajectories(iter(trajectories), timeout=timeout)

    def get_weights(
        self, version: int | None = None, timeout: float = 60.0
    ) -> tuple[weights_pb2.WeightsManifest, Iterator[weights_pb2.WeightsBucket]]:
        """The manifest and the buckets of the newest version, or of the one named."""
        stream = self._stub.GetWeights(pb.GetWeightsRequest(version=version), timeout=timeout)
        with rpc.translated():
            first = next(stream, None)
        if first is None or first.WhichOneof("part") != "manifest":
            raise DataLoss(f"the learner at {self.address} sent no manifest")

        def buckets() -> Iterator[weights_pb2.WeightsBucket]:
            with rpc.translated():
                for message in stream:
                    yield message.bucket

        return first.manifest, buckets()

    def watch_weights(self, timeout: float) -> Iterator[pb.WeightsAnnouncement]:
        """Versions as they are published, the current one at once."""
        with rpc.translated():
            yield from self._stub.WatchWeights(pb.WatchWeightsRequest(), timeout=timeout)

    def metrics(self, from_update: int, timeout: float) -> Iterator[pb.UpdateReport]:
        """Reports of updates from ``from_update`` on, as they happen."""
        with rpc.translated():
            yield from self._stub.StreamMetrics(pb.StreamMetricsRequest(from_update=from_update), timeout=timeout)

    def checkpoint(self, timeout: float = 60.0) -> str:
        """Write a checkpoint now; returns its path on the learner's machine."""
        return rpc.call(self._stub.Checkpoint, pb.CheckpointRequest(), timeout).path

    def pause(self, lease: float) -> str:
        """Stop giving tickets and updating for up to ``lease`` seconds; returns the lease's id."""
        return rpc.call(self._stub.Pause, pb.PauseLearnerRequest(lease=to_duration(lease)), self._timeout).lease_id

    def resume(self, lease_id: str) -> None:
        """End a pause."""
        rpc.call(self._stub.Resume, pb.ResumeLearnerRequest(lease_id=lease_id), self._timeout)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._channel.close()

    def __enter__(self) -> LearnerClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
