"""LearnerService: the wire face of intake, announcements, metrics and trainer. What it promises: ``learner.proto``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from landbridge import rpc
from landbridge.durations import to_duration, to_seconds
from landbridge.errors import InvalidArgument
from landbridge.v1 import learner_pb2 as pb
from landbridge.v1 import learner_pb2_grpc
from landbridge.weights import iter_buckets, make_manifest
from learner.intake import Intake
from learner.metrics import Metrics
from learner.publish import Announcements
from learner.seeds import episode_seed
from learner.train import Trainer

MAX_WAIT = 60.0
"""Seconds one AcquireRollout may wait, and a late acknowledgement may take."""
MAX_PAUSE = 3600.0
MAX_TICKETS = 4096
_POLL = 0.5
"""Seconds between looks at whether a streaming client is still there."""
_CHECKPOINT_SECONDS = 600.0


class LearnerServicer(learner_pb2_grpc.LearnerServiceServicer):
    """The servicer; everything it holds is thread-safe."""

    def __init__(
        self,
        intake: Intake,
        trainer: Trainer,
        metrics: Metrics,
        announcements: Announcements,
        *,
        run_seed: int,
        lease: float,
        architecture_hash: str,
        instance_id: str,
    ) -> None:
        self._intake, self._trainer, self._metrics, self._announcements = intake, trainer, metrics, announcements
        self._run_seed, self._lease = run_seed, to_duration(lease)
        self._hash, self._instance = architecture_hash, instance_id

    def service(self) -> rpc.Service:
        """To mount on an :class:`landbridge.rpc.Server`."""
        descriptor = pb.DESCRIPTOR.services_by_name["LearnerService"]
        return rpc.Service(learner_pb2_grpc.add_LearnerServiceServicer_to_server, self, descriptor)

    def AcquireRollout(self, request: pb.AcquireRolloutRequest, context: Any) -> pb.AcquireRolloutResponse:
        """See ``learner.proto``."""
        if not 0 <= request.count <= MAX_TICKETS:
            raise InvalidArgument(f"count {request.count}: 0 (for 1) to {MAX_TICKETS}", field="count")
        wait = to_seconds(request.wait)
        if wait < 0:
            raise InvalidArgument(f"wait {wait:g} s: 0 or more", field="wait")
        tickets, finished, version = self._intake.acquire(
            max(1, request.count), min(wait, MAX_WAIT), lambda: bool(context.is_active())
        )
        if not context.is_active():  # nobody would ever roll these out
            for ticket in tickets:
                self._intake.release(ticket.id, "caller_gone")
        return pb.AcquireRolloutResponse(
            tickets=[
                pb.RolloutTicket(id=t.id, seed=episode_seed(self._run_seed, t.index), lease=self._lease)
                for t in tickets
            ],
            finished=finished,
            trained_version=version,
        )

    def SubmitTrajectories(self, requests: Iterable[pb.Trajectory], context: Any) -> Iterator[pb.SubmitAcknowledgement]:
        """See ``learner.proto``."""
        for message in requests:
            remaining = context.time_remaining()
            limit = MAX_WAIT if remaining is None else min(MAX_WAIT, remaining)
            yield self._intake.submit(message, limit, lambda: bool(context.is_active()))

    def ReleaseRollout(self, request: pb.ReleaseRolloutRequest, context: Any) -> pb.ReleaseRolloutResponse:
        """See ``learner.proto``. A ticket that is not out any more is no error."""
        self._intake.release(request.ticket, request.reason or "released")
        return pb.ReleaseRolloutResponse()

    def WatchWeights(self, request: pb.WatchWeightsRequest, context: Any) -> Iterator[pb.WeightsAnnouncement]:
        """See ``learner.proto``."""
        seen = -1
        while context.is_active():
            new = self._announcements.after(seen, _POLL)
            if seen < 0:
                new = new[-1:]
            for published in new:
                yield pb.WeightsAnnouncement(version=published.version, update=published.update)
                seen = published.version
            if not new and self._announcements.closed:
                return

    def GetWeights(self, request: pb.GetWeightsRequest, context: Any) -> Iterator[pb.GetWeightsResponse]:
        """See ``learner.proto``."""
        published = self._announcements.get(request.version if request.HasField("version") else None)
        manifest = make_manifest(
            published.state,
            version=published.version,
            architecture_hash=self._hash,
            training_step=published.update,
        )
        yield pb.GetWeightsResponse(manifest=manifest)
        for bucket in iter_buckets(published.state):
            yield pb.GetWeightsResponse(bucket=bucket)

    def GetStatus(self, request: pb.GetLearnerStatusRequest, context: Any) -> pb.LearnerStatus:
        """See ``learner.proto``."""
        status, last = self._intake.status(), self._metrics.last
        return pb.LearnerStatus(
            updates=self._trainer.updates,
            version=status.version,
            running_tickets=status.running,
            accepted=status.trained + status.buffered,
            buffered=status.buffered,
            trained=status.trained,
            dropped=status.dropped,
            env_steps=status.env_steps,
            paused=status.paused,
            finished=status.finished,
            staleness_histogram=self._trainer.staleness,
            instance_id=self._instance,
            last=last.as_message() if last else None,
        )

    def StreamMetrics(self, request: pb.StreamMetricsRequest, context: Any) -> Iterator[pb.UpdateReport]:
        """See ``learner.proto``."""
        following = request.from_update
        while context.is_active():
            reports, closed = self._metrics.from_update(following, _POLL)
            for report in reports:
                yield report.as_message()
                following = report.update + 1
            if closed and not reports:
                return

    def Pause(self, request: pb.PauseLearnerRequest, context: Any) -> pb.PauseLearnerResponse:
        """See ``learner.proto``."""
        lease = to_seconds(request.lease)
        if not 0 < lease <= MAX_PAUSE:
            raise InvalidArgument(
                f"lease: a pause lasts more than 0 and at most {MAX_PAUSE:g} s, {lease:g} s came", field="lease"
            )
        return pb.PauseLearnerResponse(lease_id=self._intake.pause(lease))

    def Resume(self, request: pb.ResumeLearnerRequest, context: Any) -> pb.ResumeLearnerResponse:
        """See ``learner.proto``."""
        self._intake.resume(request.lease_id)
        return pb.ResumeLearnerResponse()

    def Checkpoint(self, request: pb.CheckpointRequest, context: Any) -> pb.CheckpointResponse:
        """See ``learner.proto``."""
        remaining = context.time_remaining()
        limit = _CHECKPOINT_SECONDS if remaining is None else min(_CHECKPOINT_SECONDS, remaining)
        return pb.CheckpointResponse(path=str(self._trainer.checkpoint(limit).absolute()))
