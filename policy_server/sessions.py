"""Sessions: of one robot's requests only the newest matters.

A request is out of date when a newer one of its session came before it: newer by ``observation_id`` within one
episode where the client counts observations, by arrival otherwise. Out-of-date requests are ABORTED, never computed:
a robot that got an old chunk after a new one would jump back.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from landbridge.errors import Aborted

MAX_SESSIONS = 4096
"""Sessions remembered; the one unused for longest is forgotten first."""


@dataclass(frozen=True)
class Stamp:
    """Where a request stands in its session; ``session`` empty means in none."""

    session: str
    episode: str = ""
    observation: int = 0


class Sessions:
    """The newest request of each session. Thread-safe."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        """``limit`` sessions are remembered."""
        self._limit = limit
        self._newest: OrderedDict[str, Stamp] = OrderedDict()
        self._lock = threading.Lock()

    def arrive(self, stamp: Stamp) -> None:
        """Note a request; ABORTED when a newer observation of the same episode has been asked about already."""
        with self._lock:
            newest = self._newest.get(stamp.session)
            if newest is not None and newest.episode == stamp.episode and stamp.observation < newest.observation:
                raise Aborted(
                    f"observation {stamp.observation} of session {stamp.session!r} came after observation "
                    f"{newest.observation} of the same episode; call ResetSession when an episode starts"
                )
            self._newest[stamp.session] = stamp
            self._newest.move_to_end(stamp.session)
            if len(self._newest) > self._limit:
                self._newest.popitem(last=False)

    def forget(self, session: str) -> None:
        """Start afresh: any observation may come next."""
        with self._lock:
            self._newest.pop(session, None)
