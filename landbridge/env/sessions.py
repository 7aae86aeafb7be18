"""Who holds which environments, by leases that end when their client vanishes; and how far each one's episode is."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from landbridge.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted

DEFAULT_LEASE, SHORTEST_LEASE, LONGEST_LEASE = 60.0, 5.0, 600.0
SWEEP_PERIOD = 0.5
"""Seconds between two looks for expired leases."""


class State(enum.Enum):
    """Of one environment within a session; see the diagram in ``env.proto``."""

    CREATED = "not reset yet"
    RUNNING = "running"
    ENDED = "ended"


@dataclass
class Slot:
    """One environment of a session."""

    backend_id: int
    lock: threading.Lock
    """The environment's own, whichever session holds it: one call at a time."""
    state: State = State.CREATED
    episode_id: str = ""
    observation_id: int = 0


@dataclass
class Session:
    """Environments a client holds, numbered from 0."""

    id: str
    client: str
    slots: list[Slot]
    lease: float
    expires: float
    busy: int = 0
    closed: bool = False

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

    @contextlib.contextmanager
    def locked(self, env_ids: Sequence[int], deadline: float) -> Iterator[None]:
        """Hold the environments named until left; DEADLINE_EXCEEDED where another call has one until ``deadline``.

        Taken in the endpoint's order, so that two calls cannot wait for each other.
        """
        held: list[threading.Lock] = []
        try:
            for i in sorted(env_ids, key=lambda i: self.slots[i].backend_id):
                if not self.slots[i].lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise DeadlineExceeded(f"environment {i} is busy with another call; nothing was done")
                held.append(self.slots[i].lock)
            if self.closed:
                raise _no_session()
            yield
        finally:
            for lock in held:
                lock.release()


class Sessions:
    """All sessions of one endpoint. A thread frees what expired sessions hold."""

    def __init__(self, num_envs: int, exclusive: bool) -> None:
        """``exclusive``: a session takes everything there is (a robot)."""
        self._free = list(range(num_envs))
        self._locks = [threading.Lock() for _ in range(num_envs)]
        self._exclusive = exclusive
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._keep_sweeping, name="lease-sweeper", daemon=True).start()

    @property
    def free(self) -> int:
        """Environments nobody holds."""
        return len(self._free)

    def open(self, client: str, count: int, lease: float | None) -> Session:
        """Take ``count`` environments (0: all)."""
        total = len(self._locks)
        seconds = DEFAULT_LEASE if lease is None else lease
        if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
            raise InvalidArgument(
                f"lease: {seconds:g} s; between {SHORTEST_LEASE:g} and {LONGEST_LEASE:g} s are possible", field="lease"
            )
        if not 0 <= count <= total:
            raise InvalidArgument(f"num_envs: {count}; this endpoint has {total} (0: all of them)", field="num_envs")
        wanted = total if count == 0 or self._exclusive else count
        self.sweep()
        with self._lock:
            if len(self._free) < wanted:
                raise self._exhausted(wanted, total)
            taken, self._free = self._free[:wanted], self._free[wanted:]
            slots = [Slot(i, self._locks[i]) for i in taken]
            session = Session(uuid.uuid4().hex, client, slots, seconds, time.monotonic() + seconds)
            self._sessions[session.id] = session
            return session

    def _exhausted(self, wanted: int, total: int) -> ResourceExhausted:
        holders = sorted({s.client or "unnamed" for s in self._sessions.values()})
        return ResourceExhausted(
            f"{wanted} environments asked for, {len(self._free)} of {total} are free (held by {holders}); "
            "try again later or ask for fewer",
            retry_after=1.0,
        )

    def alive(self, session_id: str) -> bool:
        """Whether a session is open. Asking does not renew it."""
        with self._lock:
            return session_id in self._sessions

    @contextlib.contextmanager
    def entered(self, session_id: str) -> Iterator[Session]:
        """The session, its lease renewed when left and not running out before: a call in flight keeps it."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None or (session.busy == 0 and session.expires < time.monotonic()):
                raise _no_session()
            session.busy += 1
        try:
            yield session
        finally:
            with self._lock:
                session.busy -= 1
                session.expires = time.monotonic() + session.lease
                if session.closed and session.busy == 0:
                    self._give_back(session)

    def close(self, session_id: str) -> None:
        """End a session; its environments come back when its last call has ended. Unknown ones are no error."""
        with self._lock:
            self._drop(session_id)

    def sweep(self) -> None:
        """Free what belongs to expired sessions."""
        now = time.monotonic()
        with self._lock:
            for session in [s for s in self._sessions.values() if s.busy == 0 and s.expires < now]:
                self._drop(session.id)

    def stop(self) -> None:
        """End the sweeping thread."""
        self._stopped.set()

    def _keep_sweeping(self) -> None:
        while not self._stopped.wait(SWEEP_PERIOD):
            self.sweep()

    def _drop(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.closed = True
            if session.busy == 0:
                self._give_back(session)

    def _give_back(self, session: Session) -> None:
        self._free.extend(slot.backend_id for slot in session.slots)
        self._free.sort()


def _no_session() -> NotFound:
    return NotFound(
        "session_id: unknown, closed or expired; Open another session (every call renews the lease)", field="session_id"
    )
