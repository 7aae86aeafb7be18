"""Who may roll out, and what is too old to train on. One formula, one owner.

With η = ``max_staleness``, B = ``batch`` trajectories a training step and v = the version being trained,

    capacity = min(max_concurrent − running, (η + v + 1)·B − (accepted + running))

tickets are free. ``accepted`` counts trajectories taken and not dropped, trained ones included. A ticket comes back
when its rollout is submitted, rejected or released, or when its lease ends. The bound makes staleness unlikely, not
impossible (an episode may outlive several versions), so consumption checks again: a trajectory whose OLDEST version
is more than η behind is dropped and gives its place back.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ticket:
    """Leave to produce one trajectory."""

    id: str
    index: int
    expires: float


class StalenessManager:
    """Counts tickets and trajectories. Not thread-safe: its owner holds a lock."""

    def __init__(
        self,
        max_staleness: int,
        batch: int,
        max_concurrent: int,
        lease: float,
        *,
        version: int = 0,
        accepted: int = 0,
        first_index: int = 0,
        clock: Callable[[], float] = time.monotonic,
        name: str = "t",
    ) -> None:
        """``lease`` in seconds; ``name`` makes ticket ids of a restarted learner different from the old ones."""
        for what, value, least in (
            ("max_staleness", max_staleness, 0),
            ("batch", batch, 1),
            ("max_concurrent", max_concurrent, 1),
        ):
            if value < least:
                raise ValueError(f"{what} = {value}: at least {least} is needed, or nothing could ever be trained")
        self.max_staleness, self.batch, self.max_concurrent = max_staleness, batch, max_concurrent
        self.version = version
        self.accepted = accepted
        self.returned: Counter[str] = Counter()
        """Tickets that came back without a trajectory, by reason."""
        self.dropped: Counter[str] = Counter()
        """Trajectories accepted and then dropped, by reason."""
        self._lease, self._clock, self._name = lease, clock, name
        self._running: dict[str, Ticket] = {}
        self._index = itertools.count(first_index)
        self.next_index = first_index

    @property
    def running(self) -> int:
        """Tickets out."""
        return len(self._running)

    def capacity(self) -> int:
        """Tickets that could be given now."""
        bound = (self.max_staleness + self.version + 1) * self.batch - (self.accepted + self.running)
        return min(self.max_concurrent - self.running, bound)

    def acquire(self) -> Ticket | None:
        """A ticket, or None when there is no capacity. Expired tickets come back first."""
        self.expire()
        if self.capacity() <= 0:
            return None
        index = next(self._index)
        self.next_index = index + 1
        ticket = Ticket(f"{self._name}-{index}", index, self._clock() + self._lease)
        self._running[ticket.id] = ticket
        return ticket

    def accept(self, ticket_id: str) -> Ticket | None:
        """The trajectory of a ticket has come; None when the ticket is not out (any more)."""
        ticket = self._running.pop(ticket_id, None)
        if ticket is not None:
            self.accepted += 1
        return ticket

    def release(self, ticket_id: str, reason: str) -> bool:
        """A ticket comes back empty; False when it is not out."""
        if self._running.pop(ticket_id, None) is None:
            return False
        self.returned[reason] += 1
        return True

    def expire(self) -> list[str]:
        """Take back tickets whose lease has ended; returns their ids."""
        now = self._clock()
        late = [ticket.id for ticket in self._running.values() if ticket.expires <= now]
        for ticket_id in late:
            self.release(ticket_id, "lease_ended")
        return late

    def staleness(self, oldest_version: int) -> int:
        """Versions behind the one being trained."""
        return self.version - oldest_version

    def too_old(self, oldest_version: int) -> bool:
        """Whether a trajectory may no longer be trained on."""
        return self.staleness(oldest_version) > self.max_staleness

    def drop(self, reason: str) -> None:
        """An accepted trajectory will not be trained on; its place is free again."""
        self.accepted -= 1
        self.dropped[reason] += 1

    def trained(self) -> None:
        """One training step is done and its version is the one that counts from now on."""
        self.version += 1
