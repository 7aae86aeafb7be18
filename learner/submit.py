"""Hands trajectories in without holding rollouts up, and sends again whatever was not acknowledged."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator

from landbridge.errors import LandbridgeError, Unavailable
from landbridge.learning.client import LearnerClient
from landbridge.v1 import learner_pb2 as pb

log = logging.getLogger(__name__)

_STREAM_SECONDS = 30.0
"""A stream is ended after this long and a new one begun: its deadline stays ahead of it."""
_STREAM_TIMEOUT = 120.0
_PAUSE = 0.5


class Submitter:
    """A thread and one stream at a time. Resending is safe: the learner knows a trajectory by its id."""

    def __init__(self, client: LearnerClient, *, max_unacknowledged: int, patience: float) -> None:
        """``patience``: seconds without any acknowledgement, while some are due, before it gives up."""
        self._client, self._limit, self._patience = client, max_unacknowledged, patience
        self._changed = threading.Condition()
        self._unacknowledged: collections.OrderedDict[str, pb.Trajectory] = collections.OrderedDict()
        self._to_send: collections.deque[pb.Trajectory] = collections.deque()
        self._stream = 0
        self._closing = False
        self._failure: LandbridgeError | None = None
        self.outcomes: Counter[str] = Counter()
        """Acknowledgements by outcome: ``stored``, ``duplicate``, ``rejected``."""
        self._thread = threading.Thread(target=self._run, name="submit", daemon=True)
        self._thread.start()

    def put(self, trajectory: pb.Trajectory) -> None:
        """Queue one; waits while too many are unacknowledged. UNAVAILABLE where the learner stayed away."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._unacknowledged) < self._limit or self._failure or self._closing)
            self._raise_failure()
            self._unacknowledged[trajectory.trajectory_id] = trajectory
            self._to_send.append(trajectory)
            self._changed.notify_all()

    def close(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for what is unacknowledged, then end; how many were given up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unacknowledged or self._failure, timeout)
            self._closing = True
            self._changed.notify_all()
            left = len(self._unacknowledged)
        self._thread.join(2.0)
        return left

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise Unavailable(f"the learner at {self._client.address} stayed away: {self._failure}")

    def _run(self) -> None:
        last_success = time.monotonic()
        while not self._closing:
            try:
                with self._changed:
                    if not self._unacknowledged:
                        self._changed.wait_for(lambda: self._unacknowledged or self._closing)
                        last_success = time.monotonic()
                    self._stream += 1
                    self._to_send = collections.deque(self._unacknowledged.values())
                for ack in self._client.submit(self._messages(self._stream), timeout=_STREAM_TIMEOUT):
                    self._acknowledged(ack)
                    last_success = time.monotonic()
                last_success = time.monotonic()
            except LandbridgeError as error:
                if time.monotonic() - last_success > self._patience:
                    with self._changed:
                        self._failure = error
                        self._changed.notify_all()
                    return
                log.info("handing in trajectories failed, trying again: %s", error)
                time.sleep(_PAUSE)

    def _messages(self, stream: int) -> Iterator[pb.Trajectory]:
        """What one stream sends; gRPC draws from it in a thread of its own, also after the stream has died."""
        until = time.monotonic() + _STREAM_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._to_send or self._closing or stream != self._stream, until - time.monotonic()
                )
                if stream != self._stream or self._closing or not self._to_send:
                    return
                message = self._to_send.popleft()
            yield message

    def _acknowledged(self, ack: pb.SubmitAcknowledgement) -> None:
        outcome = pb.SubmitAcknowledgement.Outcome.Name(ack.outcome).removeprefix("OUTCOME_").lower()
        if outcome == "rejected":
            log.warning("trajectory %s was rejected: %s", ack.trajectory_id, ack.message)
        with self._changed:
            self.outcomes[outcome] += 1
            self._unacknowledged.pop(ack.trajectory_id, None)
            self._changed.notify_all()
