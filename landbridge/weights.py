"""Weights on the wire: a manifest, then buckets; put together again and verified before anybody sees them.

Shared by whoever sends (the learner, a campaign) and whoever receives (the policy server). Arrays are numpy; bfloat16
travels as ml_dtypes. Errors are those PolicyService.PushWeights promises in ``policy.proto``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from landbridge.errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument
from landbridge.tensors import MAX_BYTES, decode, dtype_name, dtype_number, numpy_dtype
from landbridge.v1 import tensor_pb2, weights_pb2

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
    """The manifest of ``state``; with ``base_version`` it lists only what changed since that version."""
    entries = [
        weights_pb2.TensorEntry(
            name=name, dtype=dtype_number(array.dtype), shape=array.shape, crc32=zlib.crc32(_bytes(array))
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
        data = _bytes(array)
        for offset in range(0, len(data), size):
            yield weights_pb2.WeightsBucket(name=name, offset=offset, data=data[offset : offset + size])


def changed(state: State, base: State) -> dict[str, Array]:
    """The tensors of ``state`` whose bytes differ from ``base``'s, and those it lacks."""
    return {name: array for name, array in state.items() if name not in base or _bytes(array) != _bytes(base[name])}


def _bytes(array: Array) -> bytes:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()


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
        self._parts: dict[str, dict[int, bytes]] = {name: {} for name in self._entries}
        self._received = dict.fromkeys(self._entries, 0)

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
        """Take one bucket; overlaps, strangers and bytes beyond the tensor's end are refused."""
        where = f'bucket["{bucket.name}"]'
        if bucket.name not in self._entries:
            raise InvalidArgument(f"{where}: the manifest does not list that tensor", field=where)
        size = self._size(bucket.name)
        if bucket.offset + len(bucket.data) > size:
            raise InvalidArgument(
                f"{where}: bytes up to {bucket.offset + len(bucket.data)} of a tensor of {size}", field=where
            )
        parts = self._parts[bucket.name]
        if bucket.offset in parts:
            raise InvalidArgument(f"{where}: offset {bucket.offset} came twice", field=where)
        parts[bucket.offset] = bucket.data
        self._received[bucket.name] += len(bucket.data)

    def finish(self) -> dict[str, Array]:
        """The tensors the manifest lists, complete and with the right checksums; DATA_LOSS otherwise."""
        return {name: self._tensor(name, entry) for name, entry in self._entries.items()}

    def _tensor(self, name: str, entry: weights_pb2.TensorEntry) -> Array:
        size = self._size(name)
        data = bytearray(size)
        position = 0
        for offset, part in sorted(self._parts[name].items()):
            if offset != position:
                raise DataLoss(f"{name}: bytes {position} to {offset} never came (or overlap)", field=name)
            data[offset : offset + len(part)] = part
            position += len(part)
        if position != size:
            raise DataLoss(f"{name}: {position} of {size} bytes came", field=name)
        crc = zlib.crc32(data)
        if crc != entry.crc32:
            raise DataLoss(f"{name}: checksum {crc:08x}, the manifest says {entry.crc32:08x}", field=name)
        message = tensor_pb2.Tensor(dtype=entry.dtype, shape=entry.shape, raw=bytes(data))
        return decode(message, name, max_bytes=MAX_BYTES)

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
