"""The client's side of PolicyService.InferStream."""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Unpack

import grpc
import numpy as np

from landbridge.errors import DeadlineExceeded, FailedPrecondition, Internal, Unavailable, from_rpc_error
from landbridge.policy.messages import InferOptions, InferResult, build_request, parse_response
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc

GRACE = 0.25
"""Seconds after a request's own deadline in which the server's DEADLINE_EXCEEDED may still arrive."""


class InferStream:
    """Many requests on one call. They may be sent ahead; answers come in order. For one thread.

    A request that fails raises its error from :meth:`receive` and the stream goes on. When the server is silent past a
    deadline, ends the stream, or cannot be reached, the stream is closed and says so; :meth:`reopen` starts another,
    on which no late answer of the old one can arrive.
    """

    def __init__(self, stub: policy_pb2_grpc.PolicyServiceStub, timeout: float) -> None:
        """``timeout`` is the deadline in seconds of requests that state none."""
        self._stub = stub
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._call: _Call | None = None
        self.reopen()

    def infer(
        self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Unpack[InferOptions]
    ) -> InferResult:
        """Send one request and wait for its answer; for a stream on which no other is under way."""
        if self.under_way:
            raise FailedPrecondition(f"{self.under_way} requests are under way; receive their answers first")
        self.send(observation, timeout=timeout, **options)
        return self.receive()

    def send(
        self, observation: Mapping[str, np.ndarray], *, timeout: float | None = None, **options: Unpack[InferOptions]
    ) -> None:
        """Send a request ({name: [rows, …]}); its answer is a later :meth:`receive`'s.

        ``timeout`` in seconds runs from now.
        """
        call = self._opened()
        limit = self._timeout if timeout is None else timeout
        request = build_request(next(self._ids), observation, timeout=limit, **options)
        call.send(request, time.monotonic() + limit + GRACE)

    def receive(self) -> InferResult:
        """The answer to the oldest request not answered yet. Errors: see the class and :mod:`landbridge.errors`."""
        call = self._opened()
        if not call.under_way:
            raise FailedPrecondition("nothing was sent that is still unanswered")
        request, deadline = call.under_way.popleft()
        try:
            response = call.next_answer(deadline)
            if response.request_id != request.request_id:
                raise Internal(
                    f"the answer to request {response.request_id} came for request {request.request_id}; "
                    "the stream is closed, reopen it"
                )
        except BaseException:
            self.close()
            raise
        return parse_response(request, response)

    @property
    def under_way(self) -> int:
        """Requests sent and not answered yet."""
        return len(self._call.under_way) if self._call is not None else 0

    def reopen(self) -> None:
        """Start afresh on a new call; what was under way is given up."""
        self.close()
        self._call = _Call(self._stub)

    def close(self) -> None:
        """End the stream and give up what is under way."""
        call, self._call = self._call, None
        if call is not None:
            call.close()

    def _opened(self) -> _Call:
        if self._call is None:
            raise FailedPrecondition("this stream is closed, by an error or by close(); reopen it")
        return self._call

    def __enter__(self) -> InferStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Call:
    """One gRPC call. gRPC's iterator waits without limit: a watchdog cancels the call when a deadline passes."""

    def __init__(self, stub: policy_pb2_grpc.PolicyServiceStub) -> None:
        self.under_way: collections.deque[tuple[pb.InferRequest, float]] = collections.deque()
        self._outgoing: queue.SimpleQueue[pb.InferRequest | None] = queue.SimpleQueue()
        self._answers: Any = stub.InferStream(iter(self._outgoing.get, None))
        self._deadline: float | None = None
        self._wakes_at = 0.0
        self._timed_out = False
        self._over = False
        self._changed = threading.Condition()
        self._watchdog: threading.Thread | None = None

    def send(self, request: pb.InferRequest, deadline: float) -> None:
        self.under_way.append((request, deadline))
        self._outgoing.put(request)

    def next_answer(self, deadline: float) -> pb.InferResponse:
        self._watch(deadline)
        try:
            answer: pb.InferResponse = next(self._answers)
            return answer
        except StopIteration:
            raise Unavailable("the server ended the stream; reopen it", retry_after=0.5) from None
        except grpc.RpcError as error:
            if self._timed_out:
                raise DeadlineExceeded("no answer came in time; the stream is closed, reopen it") from error
            raise from_rpc_error(error) from error
        finally:
            self._deadline = None

    def _watch(self, deadline: float) -> None:
        self._deadline = deadline
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._guard, name="infer-watchdog", daemon=True)
            self._watchdog.start()
        elif deadline < self._wakes_at:  # it sleeps until an earlier answer's deadline, usually long enough
            with self._changed:
                self._changed.notify()

    def _guard(self) -> None:
        with self._changed:
            while not self._over:
                deadline, now = self._deadline, time.monotonic()
                if deadline is not None and deadline <= now:
                    self._timed_out = True
                    self._answers.cancel()
                    return
                self._wakes_at = now + 60.0 if deadline is None else deadline
                # _watch sets the deadline before it reads _wakes_at; look again for one set in between.
                if self._deadline == deadline:
                    self._changed.wait(self._wakes_at - now)

    def close(self) -> None:
        self._over = True
        self._outgoing.put(None)
        with contextlib.suppress(Exception):
            self._answers.cancel()
        with self._changed:
            self._changed.notify()
