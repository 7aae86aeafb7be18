"""Who holds which environments: leases, freed when their client vanishes; and where each environment's episode stands."""

from __future__ import annotations

import enum
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted

DEFAULT_LEASE, SHORTEST_LEASE, LONGEST_LEASE = 60.0, 5.0, 600.0


class State(enum.Enum):
    """Of one environment within a session; see the diagram in ``env.proto``."""

    CREATED = "not reset yet"
    RUNNING = "running"
    ENDED = "ended"


@dataclass
class Slot:
    """One environment of a session."""

    backend_id: int
    state: State = State.CREATED
    episode_id: str = ""
    observation_id: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Session:
    """Environments a client holds, numbered from 0."""

    id: str
    client: str
    slots: list[Slot]
    lease: float
    expires: float
    busy: int = 0

    def select(self, env_ids: Sequence[int]) -> list[int]:
        """The environments named (all, when none is), checked."""
        if not env_ids:
            return list(range(len(self.slots)))
        for env_id in env_ids:
            if not 0 <= env_id < len(self.slots):
                raise InvalidArgument(
                    f"env_ids: {env_id} is not one of this session's 0 to {len(self.slots) - 1}", field="env_ids"
                )
        if len(set(env_ids)) != len(env_ids):
            raise InvalidArgument(f"env_ids: {list(env_ids)} names an environment twice", field="env_ids")
        return list(env_ids)

    def require_running(self, env_ids: Sequence[int]) -> None:
        """FAILED_PRECONDITION naming the environments that cannot be stepped."""
        wrong = {i: self.slots[i].state for i in env_ids if self.slots[i].state is not State.RUNNING}
        if wrong:
            told = ", ".join(f"{i} ({state.value})" for i, state in wrong.items())
            raise FailedPrecondition(
                f"cannot step environments {told}; Reset them first; nothing was stepped", field="env_ids"
            )


class Sessions:
    """All sessions of one endpoint. Expired ones are swept when anybody asks for environments, and on a timer."""

    def __init__(self, num_envs: int, exclusive: bool) -> None:
        """``exclusive``: a session takes everything there is (a robot)."""
        self._free = list(range(num_envs))
        self._total = num_envs
        self._exclusive = exclusive
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """Environments nobody holds."""
        self.sweep()
        return len(self._free)

    def open(self, client: str, count: int, lease: float | None) -> Session:
        """Take ``count`` environments (0: all)."""
        seconds = DEFAULT_LEASE if lease is None else lease
        if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
            raise InvalidArgument(
                f"lease: {seconds:g} s; between {SHORTEST_LEASE:g} and {LONGEST_LEASE:g} s are possible", field="lease"
            )
        wanted = self._total if count == 0 or self._exclusive else count
        if not 0 < wanted <= self._total:
            raise InvalidArgument(f"num_envs: {count}; this endpoint has {self._total}", field="num_envs")
        self.sweep()
        with self._lock:
            if len(self._free) < wanted:
                holders = sorted({s.client or "unnamed" for s in self._sessions.values()})
                raise ResourceExhausted(
                    f"{wanted} environments asked for, {len(self._free)} of {self._total} are free "
                    f"(held by {holders}); try again later or ask for fewer",
                    retry_after=1.0,
                )
            taken, self._free = self._free[:wanted], self._free[wanted:]
            session = Session(uuid.uuid4().hex, client, [Slot(i) for i in taken], seconds, time.monotonic() + seconds)
            self._sessions[session.id] = session
            return session

    def enter(self, session_id: str) -> Session:
        """The session, its lease renewed and held open until :meth:`leave`."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None or (session.busy == 0 and session.expires < time.monotonic()):
                raise NotFound(
                    "session_id: unknown, closed or expired; Open another session (a lease is renewed by every call)",
                    field="session_id",
                )
            session.busy += 1
            return session

    def leave(self, session: Session) -> None:
        """End a call within a session."""
        with self._lock:
            session.busy -= 1
            session.expires = time.monotonic() + session.lease

    def close(self, session_id: str) -> None:
        """Give a session's environments back; unknown ones are no error."""
        with self._lock:
            self._drop(session_id)

    def sweep(self) -> None:
        """Free what belongs to expired sessions."""
        now = time.monotonic()
        with self._lock:
            for session in [s for s in self._sessions.values() if s.busy == 0 and s.expires < now]:
                self._drop(session.id)

    def _drop(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._free.extend(slot.backend_id for slot in session.slots)
            self._free.sort()
