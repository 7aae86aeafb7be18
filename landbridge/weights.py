"""Weights on the wire: a manifest, then buckets; put together again and verified before anybody sees them.

Shared by whoever sends (the learner, a campaign) and whoever receives (the policy server). Arrays are numpy; bfloat16
travels as ml_dtypes. Errors are those PolicyService.PushWeights promises in ``policy.proto``.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from landbridge.errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument
from landbridge.tensors import dtype_name, dtype_number, numpy_dtype
from landbridge.v1 import weights_pb2

Array = np.ndarray[Any, np.dtype[Any]]
State = Mapping[str, Array]

BUCKET_BYTES = 1 << 20
"""Payload of one bucket; small enough for a stock 4 MB receive limit."""


def make_manifest(
    state: State,
    *,
    version: int,
    architecture_hash: str,
    base_version: int | None = None,
    activate: bool = True,
    training_step: int = 0,
) -> weights_pb2.WeightsManifest:
    """The manifest of ``state``.

    With ``base_version``, ``state`` holds only the tensors that differ from that version's (see :func:`changed`).
    """
    entries = [
        weights_pb2.TensorEntry(
            name=name, dtype=dtype_number(array.dtype), shape=array.shape, crc32=zlib.crc32(_raw(array))
        )
        for name, array in state.items()
    ]
    return weights_pb2.WeightsManifest(
        version=version,
        architecture_hash=architecture_hash,
        base_version=base_version,
        tensors=entries,
        activate=activate,
        training_step=training_step,
    )


def iter_buckets(state: State, size: int = BUCKET_BYTES) -> Iterator[weights_pb2.WeightsBucket]:
    """Every byte of every tensor, in pieces of at most ``size`` bytes."""
    for name, array in state.items():
        data = _raw(array)
        for offset in range(0, len(data), size):
            yield weights_pb2.WeightsBucket(name=name, offset=offset, data=bytes(data[offset : offset + size]))


def changed(state: State, base: State) -> dict[str, Array]:
    """The tensors of ``state`` whose bytes, shape or dtype differ from ``base``'s, and those it lacks."""
    return {name: array for name, array in state.items() if name not in base or not _identical(array, base[name])}


def _identical(one: Array, other: Array) -> bool:
    """Bit for bit: a NaN equals itself, 0.0 differs from -0.0."""
    if one is other:
        return True
    return one.shape == other.shape and one.dtype == other.dtype and _raw(one) == _raw(other)


def _raw(array: Array) -> memoryview:
    """Little-endian C-order bytes, without a copy where the array has them already."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return flat.view(np.uint8).data


class Assembler:
    """Collects buckets for one manifest, in any order, and hands out a verified state.

    ``template`` is the state the architecture needs (names, shapes, dtypes). What the manifest claims is checked
    against it before a byte is allocated.
    """

    def __init__(self, manifest: weights_pb2.WeightsManifest, template: State, architecture_hash: str) -> None:
        if manifest.architecture_hash != architecture_hash:
            raise FailedPrecondition(
                f"weights of architecture {manifest.architecture_hash[:12]}… came, this server runs "
                f"{architecture_hash[:12]}…; push weights of the same architecture or restart with another checkpoint",
                field="manifest.architecture_hash",
            )
        self.manifest = manifest
        self._entries: dict[str, weights_pb2.TensorEntry] = {}
        for entry in manifest.tensors:
            self._add(entry, template)
        if not manifest.HasField("base_version") and (missing := sorted(template.keys() - self._entries.keys())):
            raise DataLoss(f"a full push lacks tensors {missing[:3]} ({len(missing)} in all)", field="manifest.tensors")
        self._data = {name: bytearray(self._size(name)) for name in self._entries}
        self._spans: dict[str, list[tuple[int, int]]] = {name: [] for name in self._entries}
        """Byte ranges received of each tensor, sorted."""

    def _add(self, entry: weights_pb2.TensorEntry, template: State) -> None:
        where = f'manifest.tensors["{entry.name}"]'
        if entry.name in self._entries:
            raise InvalidArgument(f"{where} is listed twice", field=where)
        if entry.name not in template:
            raise InvalidArgument(f"{where}: this architecture has no tensor of that name", field=where)
        wanted = template[entry.name]
        if tuple(entry.shape) != wanted.shape or dtype_number(wanted.dtype) != entry.dtype:
            raise InvalidArgument(
                f"{where}: {dtype_name(entry.dtype)} {list(entry.shape)} came, "
                f"{wanted.dtype.name} {list(wanted.shape)} expected",
                field=where,
            )
        self._entries[entry.name] = entry

    def add(self, bucket: weights_pb2.WeightsBucket) -> None:
        """Take one bucket; overlaps, strangers and bytes beyond the tensor's end are INVALID_ARGUMENT."""
        where = f'bucket["{bucket.name}"]'
        if bucket.name not in self._entries:
            raise InvalidArgument(f"{where}: the manifest does not list that tensor", field=where)
        data, spans = self._data[bucket.name], self._spans[bucket.name]
        start, stop = bucket.offset, bucket.offset + len(bucket.data)
        if stop > len(data):
            raise InvalidArgument(f"{where}: bytes {start} to {stop} of a tensor of {len(data)}", field=where)
        if start == stop:
            return
        at = bisect.bisect_left(spans, (start, stop))
        for first, last in spans[max(0, at - 1) : at + 1]:
            if start < last and first < stop:
                raise InvalidArgument(
                    f"{where}: bytes {start} to {stop} overlap {first} to {last}, which came before", field=where
                )
        spans.insert(at, (start, stop))
        data[start:stop] = bucket.data

    def finish(self) -> dict[str, Array]:
        """The tensors the manifest lists, complete and with the right checksums; DATA_LOSS otherwise."""
        return {name: self._tensor(name, entry) for name, entry in self._entries.items()}

    def _tensor(self, name: str, entry: weights_pb2.TensorEntry) -> Array:
        position = 0
        for start, stop in [*self._spans[name], (self._size(name), self._size(name))]:
            if start != position:
                raise DataLoss(f"{name}: bytes {position} to {start} never came", field=name)
            position = stop
        crc = zlib.crc32(self._data[name])
        if crc != entry.crc32:
            raise DataLoss(f"{name}: checksum {crc:08x}, the manifest says {entry.crc32:08x}", field=name)
        array: Array = np.frombuffer(self._data[name], numpy_dtype(entry.dtype)).reshape(tuple(entry.shape))
        array.flags.writeable = False
        return array

    def _size(self, name: str) -> int:
        entry = self._entries[name]
        return int(np.prod(entry.shape, dtype=np.int64)) * numpy_dtype(entry.dtype).itemsize


def same_contents(state: State, other: State) -> bool:
    """Bit-equality of two states."""
    return state.keys() == other.keys() and not changed(state, other)


def refuse_other_contents(version: int, state: State, held: State) -> None:
    """ALREADY_EXISTS unless the version is held with exactly these contents."""
    if not same_contents(state, held):
        raise AlreadyExists(
            f"version {version} is held with other contents; a version is published once: use the next number",
            field="manifest.version",
        )
