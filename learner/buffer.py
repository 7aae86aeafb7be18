"""Acknowledged trajectories, on disk before they are acknowledged.

One append-only log: records of length, CRC-32 and bytes. What the last checkpoint had consumed is known by sequence
number; after a crash everything else in the log is available again, exactly once. A torn last record (the process died
while writing it) was never acknowledged and is cut off. Consumed records are removed when the log is rewritten, at
checkpoints, once they outweigh the rest.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from landbridge.errors import DataLoss

_HEADER = struct.Struct("<QII")
_REWRITE_BYTES = 64 << 20


@dataclass(frozen=True)
class Record:
    """One stored trajectory: its place in the order of arrival, its id, its bytes."""

    sequence: int
    trajectory_id: str
    data: bytes


class TrajectoryLog:
    """The log and its index in memory. Not thread-safe: its owner holds a lock."""

    def __init__(self, path: Path, identify: Callable[[bytes], str], *, sync: bool = False) -> None:
        """``identify`` reads the trajectory id out of a record. ``sync``: survive a power cut, not only a crash."""
        self._path, self._identify, self._sync = path, identify, sync
        self._pending: dict[int, Record] = {}
        self._known: set[str] = set()
        self._consumed_bytes = 0
        self._next = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._load()
        self._file = path.open("ab", buffering=0)

    def _load(self) -> None:
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            sequence, length, crc = _HEADER.unpack_from(data, position)
            body = data[position + _HEADER.size : position + _HEADER.size + length]
            if len(body) < length:
                break
            if zlib.crc32(body) != crc:
                raise DataLoss(f"{self._path}: record {sequence} is damaged at byte {position}; restore the file")
            self._index(Record(sequence, self._identify(body), body))
            position += _HEADER.size + length
        if position < len(data):
            os.truncate(self._path, position)

    def _index(self, record: Record) -> None:
        self._pending[record.sequence] = record
        self._known.add(record.trajectory_id)
        self._next = max(self._next, record.sequence + 1)

    def __len__(self) -> int:
        """Records not consumed."""
        return len(self._pending)

    def knows(self, trajectory_id: str) -> bool:
        """Whether it was stored before."""
        return trajectory_id in self._known

    def append(self, trajectory_id: str, data: bytes) -> Record:
        """Store; on return it survives this process."""
        record = Record(self._next, trajectory_id, data)
        self._file.write(_HEADER.pack(record.sequence, len(data), zlib.crc32(data)) + data)
        if self._sync:
            os.fsync(self._file.fileno())
        self._index(record)
        return record

    def pending(self) -> list[Record]:
        """What is not consumed, oldest first."""
        return [self._pending[sequence] for sequence in sorted(self._pending)]

    def consume(self, sequences: Collection[int]) -> None:
        """These have been trained on or dropped. Takes effect on disk with the next checkpoint."""
        for sequence in sequences:
            self._consumed_bytes += len(self._pending.pop(sequence).data)

    def cursor(self) -> dict[str, list[int] | int]:
        """What a checkpoint must remember: every record below ``next`` that is not in ``pending`` is consumed."""
        return {"next": self._next, "pending": sorted(self._pending)}

    def restore(self, next_sequence: int, pending: Collection[int]) -> None:
        """Back to a checkpoint's cursor; what came after it stays pending."""
        kept = set(pending)
        lost = sorted(kept - self._pending.keys())
        if lost:
            raise DataLoss(f"{self._path}: records {lost[:3]} are missing ({len(lost)} in all); restore the file")
        for sequence in [s for s in self._pending if s < next_sequence and s not in kept]:
            del self._pending[sequence]
        self._next = max(self._next, next_sequence)

    def compact(self) -> None:
        """Rewrite the log without consumed records when they take much room. Call after a durable checkpoint."""
        if self._consumed_bytes < _REWRITE_BYTES:
            return
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("wb") as out:
            for record in self.pending():
                out.write(_HEADER.pack(record.sequence, len(record.data), zlib.crc32(record.data)) + record.data)
            out.flush()
            os.fsync(out.fileno())
        self._file.close()
        temporary.replace(self._path)
        self._file = self._path.open("ab", buffering=0)
        self._consumed_bytes = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
