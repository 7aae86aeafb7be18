"""A campaign's log: one SQLite file of events, on the disk before anyone sees what they say.

Nothing is changed or deleted, and every state is computed from the events; so a process that dies at any moment leaves
a campaign that can go on. One process writes at a time; any number read meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from landbridge.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from robot_bridge.campaign.design import Design, Trial, from_locked, schedule

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    trial INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_design ON events (kind) WHERE kind = 'locked';
CREATE UNIQUE INDEX IF NOT EXISTS one_start ON events (trial, attempt) WHERE kind = 'started';
CREATE UNIQUE INDEX IF NOT EXISTS one_result ON events (trial) WHERE kind = 'finished';
CREATE INDEX IF NOT EXISTS by_trial ON events (trial, kind);
"""
CAMPAIGN = 0
"""The trial number of events that belong to no trial."""


@dataclass(frozen=True)
class Event:
    """One line of the log.

    Kinds: ``locked`` (the design), ``connected`` (what the endpoints are), ``armed``, ``emergency_stop``;
    of a trial's attempt: ``started``, ``decision`` …, and ``finished`` or ``aborted``.
    """

    id: int
    time: float
    """Unix seconds."""
    kind: str
    trial: int
    attempt: int
    data: dict[str, Any]


class Store:
    """An open log. ``write``: take it for this process alone, and create it where there is none."""

    def __init__(self, path: str | Path, *, write: bool = False) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None
        if write:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _take(self.path)
        elif not self.path.exists():
            raise NotFound(f"there is no campaign at {self.path}")
        try:
            self._open(write)
        except sqlite3.DatabaseError as error:
            self.close()
            raise FailedPrecondition(f"{self.path} is not a campaign's store: {error}") from error

    def _open(self, write: bool) -> None:
        address = self.path.resolve().as_uri() + ("?mode=rwc" if write else "?mode=ro")
        self._db = sqlite3.connect(address, uri=True, timeout=10.0, isolation_level=None)
        if write:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
            self._db.executescript(_SCHEMA)
        self._db.execute("SELECT count(*) FROM events")

    def append(self, kind: str, trial: int = CAMPAIGN, attempt: int = 0, /, **data: Any) -> None:
        """Write one event; it is on the disk when this returns. ALREADY_EXISTS for a second result of a trial."""
        values = (time.time(), kind, trial, attempt, json.dumps(data, allow_nan=False))
        try:
            self._db.execute("INSERT INTO events (time, kind, trial, attempt, data) VALUES (?, ?, ?, ?, ?)", values)
        except sqlite3.IntegrityError as error:
            raise AlreadyExists(f"{self.path} has a {kind!r} of trial {trial}, attempt {attempt} already") from error

    def events(self, kind: str | None = None, trial: int | None = None) -> Iterator[Event]:
        """In the order they were written; all, or those of a kind and a trial."""
        query = "SELECT id, time, kind, trial, attempt, data FROM events WHERE (?1 IS NULL OR kind = ?1)"
        rows = self._db.execute(query + " AND (?2 IS NULL OR trial = ?2) ORDER BY id", (kind, trial))
        for number, when, name, of, attempt, data in rows:
            yield Event(number, when, name, of, attempt, json.loads(data))

    def lock(self, design: Design) -> str:
        """Freeze ``design``, or check that it is the frozen one; returns its digest. FAILED_PRECONDITION otherwise."""
        held = next(self.events("locked"), None)
        if held is None:
            self.append("locked", digest=design.digest(), design=design.locked_part())
        elif held.data["digest"] != design.digest():
            was, now = held.data["design"], json.loads(json.dumps(design.locked_part()))
            changed = [f"{key} was {was.get(key)}, is {now.get(key)}" for key in now if was.get(key) != now.get(key)]
            raise FailedPrecondition(
                f"the design is locked in {self.path} and this one is another: {'; '.join(changed)}. "
                "Go on with the locked one, or begin another campaign in another store"
            )
        return design.digest()

    def design(self, policy: str = "", env: str = "") -> Design:
        """The locked design, with these addresses; FAILED_PRECONDITION where none is locked or it was tampered with."""
        held = next(self.events("locked"), None)
        if held is None:
            raise FailedPrecondition(f"no design is locked in {self.path}")
        design = from_locked(held.data["design"], policy, env)
        if design.digest() != held.data["digest"]:
            raise FailedPrecondition(f"the design in {self.path} does not have the digest it was locked with")
        return design

    def connected(self, **identity: Any) -> None:
        """Note what the endpoints are; FAILED_PRECONDITION where earlier trials ran on others."""
        first = next(self.events("connected"), None)
        if first is not None and first.data != identity:
            changed = [
                f"{key} was {first.data.get(key)}, is {now}"
                for key, now in identity.items()
                if first.data.get(key) != now
            ]
            raise FailedPrecondition(f"earlier trials of {self.path} ran on something else: {'; '.join(changed)}")
        if first is None:
            self.append("connected", **identity)

    def finished(self) -> dict[int, Event]:
        """Results by trial number."""
        return {event.trial: event for event in self.events("finished")}

    def attempts(self, trial: int) -> int:
        """How often a trial was started."""
        return sum(1 for _ in self.events("started", trial))

    def abort_unfinished(self, reason: str) -> list[int]:
        """Mark attempts that were started and have no end; returns their trials."""
        open_attempts = {(e.trial, e.attempt) for e in self.events("started")}
        for kind in ("finished", "aborted"):
            open_attempts -= {(e.trial, e.attempt) for e in self.events(kind)}
        for trial, attempt in sorted(open_attempts):
            self.append("aborted", trial, attempt, reason=reason)
        return sorted({trial for trial, _ in open_attempts})

    def remaining(self, design: Design) -> list[Trial]:
        """Trials without a result, in their order."""
        have = self.finished()
        return [trial for trial in schedule(design) if trial.number not in have]

    def close(self) -> None:
        """Let others write."""
        if hasattr(self, "_db"):
            self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _take(path: Path) -> IO[str]:
    """An exclusive lock beside ``path``, which ends with this process however it ends."""
    file = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise Aborted(f"another process is writing to {path}; wait for it or end it") from error
    return file
