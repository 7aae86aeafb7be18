"""Who may roll out, and what is too old to train on. One formula, one owner.

With η = ``max_staleness``, B = ``batch`` trajectories a training step and v = the version being trained,

    capacity = min(max_concurrent − running, (η + v + 1)·B − (accepted + running))

tickets are free. ``accepted`` counts trajectories taken and not dropped, trained ones included: every finished step
counts as B of them, also one that was made of fewer because its decisions were many. A ticket comes back when its
trajectory is accepted, when its rollout is rejected or released, or when its lease ends. The bound makes staleness
unlikely, not impossible (an episode may outlive several versions), so consumption checks again: a trajectory whose
OLDEST version is more than η behind is dropped, counted once with its reason, and gives its place back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ticket:
    """Leave to produce one trajectory; ``index`` counts tickets from the start of the run."""

    id: str
    index: int


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
        pending: int = 0,
        first_index: int = 0,
        clock: Callable[[], float] = time.monotonic,
        name: str = "t",
    ) -> None:
        """``lease`` in seconds; ``pending`` trajectories are in the buffer already; ``name`` begins every ticket's id
        and must differ from that of an earlier learner of the same run.
        """
        for what, value, least in (
            ("max_staleness", max_staleness, 0),
            ("batch", batch, 1),
            ("max_concurrent", max_concurrent, 1),
        ):
            if value < least:
                raise ValueError(f"{what} = {value}: at least {least} is needed, or nothing could ever be trained")
        self.max_staleness, self.batch, self.max_concurrent, self.lease = max_staleness, batch, max_concurrent, lease
        self.version = version
        self.accepted = version * batch + pending
        self.next_index = first_index
        self.returned: Counter[str] = Counter()
        """Tickets that came back without a trajectory, by reason."""
        self.dropped: Counter[str] = Counter()
        """Trajectories accepted and then dropped, by reason."""
        self._clock, self._name = clock, name
        self._expiry: dict[str, float] = {}

    @property
    def running(self) -> int:
        """Tickets out."""
        return len(self._expiry)

    def capacity(self) -> int:
        """Tickets that could be given now; negative where a larger bound applied before."""
        bound = (self.max_staleness + self.version + 1) * self.batch - (self.accepted + self.running)
        return min(self.max_concurrent - self.running, bound)

    def acquire(self) -> Ticket | None:
        """A ticket, or None when there is no capacity. Expired tickets come back first."""
        self.expire()
        if self.capacity() <= 0:
            return None
        ticket = Ticket(f"{self._name}-{self.next_index}", self.next_index)
        self.next_index += 1
        self._expiry[ticket.id] = self._clock() + self.lease
        return ticket

    def renew(self, ticket_id: str) -> bool:
        """A new lease for a ticket whose trajectory has come and waits to be stored; False when it is not out."""
        if ticket_id not in self._expiry:
            return False
        self._expiry[ticket_id] = self._clock() + self.lease
        return True

    def accept(self, ticket_id: str) -> bool:
        """The trajectory of a ticket is taken; False when the ticket is not out (any more), and nothing is counted."""
        if self._expiry.pop(ticket_id, None) is None:
            return False
        self.accepted += 1
        return True

    def release(self, ticket_id: str, reason: str) -> bool:
        """A ticket comes back empty; False when it is not out."""
        if self._expiry.pop(ticket_id, None) is None:
            return False
        self.returned[reason] += 1
        return True

    def expire(self) -> list[str]:
        """Take back tickets whose lease has ended; returns their ids."""
        now = self._clock()
        late = [ticket_id for ticket_id, expiry in self._expiry.items() if expiry <= now]
        for ticket_id in late:
            self.release(ticket_id, "lease_ended")
        return late

    def next_expiry(self) -> float | None:
        """When, by the clock, the next lease ends; None with no ticket out."""
        return min(self._expiry.values(), default=None)

    def too_old(self, oldest_version: int) -> bool:
        """Whether a trajectory may no longer be trained on."""
        return self.version - oldest_version > self.max_staleness

    def drop(self, reason: str) -> None:
        """An accepted trajectory will not be trained on; its place is free again."""
        self.accepted -= 1
        self.dropped[reason] += 1

    def trained(self, count: int) -> None:
        """A training step on ``count`` trajectories is published: its version is the one that counts from now on."""
        self.version += 1
        self.accepted += self.batch - count
