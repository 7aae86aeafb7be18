"""Acknowledged trajectories: on disk before they are acknowledged, oldest first, each once.

A log of append-only segments. A record is a header (sequence number, length, CRC-32 of the body, CRC-32 of the header
before it) and the body. What the last checkpoint had consumed is known by sequence number (:class:`Cursor`); after a
crash everything else in the log is pending again. A torn last record (the process died while writing it) was never
acknowledged and is cut off; damage anywhere else is DATA_LOSS, never a silent gap. Segments whose records are all
consumed are deleted at checkpoints; the ids in them stay known in ``retired``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from landbridge.errors import DataLoss, FailedPrecondition

_HEADER = struct.Struct("<QII")
_CRC = struct.Struct("<I")
_PREFIX = _HEADER.size + _CRC.size
SEGMENT_BYTES = 16 << 20

M = TypeVar("M")


@dataclass(frozen=True)
class Record(Generic[M]):
    """One stored trajectory: its place in the order of arrival, what is known of it, its bytes."""

    sequence: int
    trajectory_id: str
    meta: M
    data: bytes


@dataclass(frozen=True)
class Cursor:
    """What a checkpoint remembers: records below ``next`` that are not in ``pending`` are consumed."""

    next: int
    pending: tuple[int, ...]


@dataclass
class _Segment:
    path: Path
    live: set[int] = field(default_factory=set)
    """Records not consumed."""
    ids: list[str] = field(default_factory=list)


class TrajectoryLog(Generic[M]):
    """The log, and in memory an index of what is pending. Not thread-safe: its owner holds a lock.

    One process at a time: a second one on the same folder is FAILED_PRECONDITION.
    """

    def __init__(
        self,
        folder: Path,
        describe: Callable[[bytes], tuple[str, M]],
        *,
        sync: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """``describe`` reads id and metadata out of a record's bytes. ``sync``: survive a power cut, not only a
        crash of the process.
        """
        self._folder, self._describe, self._sync, self._segment_bytes = folder, describe, sync, segment_bytes
        self._pending: dict[int, Record[M]] = {}
        self._known: set[str] = set()
        self._segments: list[_Segment] = []
        self._home: dict[int, _Segment] = {}
        self.next_sequence = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FailedPrecondition(
                f"{folder} is in use by another learner; end it, or take another run-dir"
            ) from error
        self._retired = folder / "retired"
        if self._retired.exists():
            self._known.update(self._retired.read_text().splitlines())
        paths = sorted(folder.glob("segment-*.log"))
        for path in paths:
            self._load(path, last=path is paths[-1])
        self._open_segment(paths[-1] if paths else None)

    def _load(self, path: Path, *, last: bool) -> None:
        segment = _Segment(path)
        self._segments.append(segment)
        data = path.read_bytes()
        position = 0
        while position < len(data):
            body = self._body(data, position, path, last)
            if body is None:
                os.truncate(path, position)
                return
            sequence, _, _ = _HEADER.unpack_from(data, position)
            identity, meta = self._describe(body)
            self._index(Record(sequence, identity, meta, body), segment)
            position += _PREFIX + len(body)

    @staticmethod
    def _body(data: bytes, position: int, path: Path, last: bool) -> bytes | None:
        """The record at ``position``; None where it is the torn end of the log."""
        start, rest = position + _PREFIX, len(data) - position
        nothing_follows = True
        if rest >= _PREFIX:
            header = data[position : position + _HEADER.size]
            _, length, crc = _HEADER.unpack(header)
            if _CRC.unpack_from(data, position + _HEADER.size)[0] == zlib.crc32(header):
                body = data[start : start + length]
                if len(body) == length and zlib.crc32(body) == crc:
                    return body
                nothing_follows = rest <= _PREFIX + length
            else:
                # A file grown but not filled when the power went ends in zeros.
                nothing_follows = not any(data[position:])
        if last and nothing_follows:
            return None
        raise DataLoss(f"{path} is damaged at byte {position} of {len(data)}; restore it, or start a new run")

    def _open_segment(self, path: Path | None) -> None:
        if path is None:
            path = self._folder / f"segment-{self.next_sequence:012d}.log"
            self._segments.append(_Segment(path))
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def _index(self, record: Record[M], segment: _Segment) -> None:
        self._pending[record.sequence] = record
        self._home[record.sequence] = segment
        self._known.add(record.trajectory_id)
        segment.live.add(record.sequence)
        segment.ids.append(record.trajectory_id)
        self.next_sequence = max(self.next_sequence, record.sequence + 1)

    def __len__(self) -> int:
        """Records not consumed."""
        return len(self._pending)

    def knows(self, trajectory_id: str) -> bool:
        """Whether it was stored before, also before a restart."""
        return trajectory_id in self._known

    def append(self, trajectory_id: str, meta: M, data: bytes) -> Record[M]:
        """Store; on return it survives this process. An OSError (disk full) leaves the log as it was."""
        if self._size >= self._segment_bytes:
            self._file.close()
            self._open_segment(None)
        record = Record(self.next_sequence, trajectory_id, meta, data)
        header = _HEADER.pack(record.sequence, len(data), zlib.crc32(data))
        self._write(header + _CRC.pack(zlib.crc32(header)) + data)
        self._index(record, self._segments[-1])
        return record

    def _write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:]) or 0
            if self._sync:
                os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._file.fileno(), self._size)
            raise
        self._size += len(data)

    def pending(self) -> list[Record[M]]:
        """What is not consumed, oldest first."""
        return [self._pending[sequence] for sequence in sorted(self._pending)]

    def consume(self, sequences: Collection[int]) -> None:
        """These have been trained on or dropped; on disk that is so with the next checkpoint's cursor."""
        for sequence in sequences:
            del self._pending[sequence]
            self._home.pop(sequence).live.discard(sequence)

    def cursor(self) -> Cursor:
        """Where consumption stands."""
        return Cursor(self.next_sequence, tuple(sorted(self._pending)))

    def restore(self, cursor: Cursor) -> None:
        """Back to a checkpoint's cursor: what it had consumed is, what came after it is pending."""
        kept = set(cursor.pending)
        if lost := sorted(kept - self._pending.keys()):
            raise DataLoss(f"{self._folder}: records {lost[:3]} are missing ({len(lost)} in all); restore the folder")
        self.consume([s for s in self._pending if s < cursor.next and s not in kept])
        self.next_sequence = max(self.next_sequence, cursor.next)

    def compact(self) -> int:
        """Delete segments that are wholly consumed; call after a durable checkpoint. Returns how many went."""
        done = [segment for segment in self._segments[:-1] if not segment.live]
        for segment in done:
            with self._retired.open("a") as file:  # before the segment goes: an id is in one of the two at any time
                file.write("".join(f"{identity}\n" for identity in segment.ids))
                file.flush()
                os.fsync(file.fileno())
            segment.path.unlink()
            self._segments.remove(segment)
        return len(done)

    def close(self) -> None:
        """Close the files; the folder is free for another process."""
        self._file.close()
        self._lock.close()
