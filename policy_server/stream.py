"""One InferStream: a thread of its own reads and submits requests, the caller's thread answers them in order."""

from __future__ import annotations

import collections
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from landbridge.errors import Internal, LandbridgeError
from landbridge.v1 import policy_pb2 as pb
from policy_server.batcher import Batcher, Request
from policy_server.codec import encode_error, encode_result

log = logging.getLogger(__name__)

READ_AHEAD = 64
"""Requests of one stream under way; the next ones stay in the transport, which is the back-pressure."""

_Item = tuple[pb.InferRequest, Request | LandbridgeError]


class Lane:
    """The server's side of one stream."""

    def __init__(
        self, requests: Iterable[pb.InferRequest], batcher: Batcher, submit: Callable[[pb.InferRequest], Request]
    ) -> None:
        """``submit`` decodes and queues one request, or raises."""
        self._requests = requests
        self._batcher = batcher
        self._submit = submit
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._slots = threading.Semaphore(READ_AHEAD)
        self._under_way: collections.deque[Request] = collections.deque()
        self._over = False
        threading.Thread(target=self._read, name="infer-stream", daemon=True).start()

    def answers(self) -> Iterator[pb.InferResponse]:
        """Answers in the order of the requests, until the client half-closes or :meth:`finish`."""
        while (item := self._items.get()) is not None:
            message, request = item
            try:
                if isinstance(request, LandbridgeError):
                    raise request
                yield encode_result(message, request, self._batcher.wait(request))
            except LandbridgeError as error:
                yield encode_error(message, error)
            finally:
                self._slots.release()

    def finish(self) -> None:
        """Answer what has been read, then end the stream."""
        self._over = True
        self._items.put(None)

    def abandon(self) -> None:
        """The call has ended, in whatever way: compute nothing more for it, let the reader go."""
        self._over = True
        for request in list(self._under_way):
            request.abandon()
        self._slots.release()

    def _read(self) -> None:
        try:
            for message in self._requests:
                self._slots.acquire()
                if self._over:
                    return
                self._items.put((message, self._submitted(message)))
        except Exception as error:  # how gRPC tells this thread that client or transport broke off
            log.debug("stream ended: %s", error)
        finally:
            self._items.put(None)

    def _submitted(self, message: pb.InferRequest) -> Request | LandbridgeError:
        try:
            request = self._submit(message)
        except LandbridgeError as error:
            return error
        except Exception as error:
            log.exception("InferStream failed to read a request")
            return Internal(f"{type(error).__name__}: {error}")
        while self._under_way and self._under_way[0].settled:
            self._under_way.popleft()
        self._under_way.append(request)
        if self._over:  # the call ended while this request was queued
            request.abandon()
        return request


class Lanes:
    """The streams that are open."""

    def __init__(self) -> None:
        self._open: set[Lane] = set()
        self._lock = threading.Lock()

    def open(self, lane: Lane, context: Any) -> None:
        """Keep track of ``lane`` until its call ends."""
        with self._lock:
            self._open.add(lane)
        if not context.add_callback(lambda: self._closed(lane)):
            self._closed(lane)

    def _closed(self, lane: Lane) -> None:
        with self._lock:
            self._open.discard(lane)
        lane.abandon()

    def __len__(self) -> int:
        return len(self._open)

    def finish(self) -> None:
        """End them all once what was read is answered."""
        with self._lock:
            lanes = list(self._open)
        for lane in lanes:
            lane.finish()
