"""Weights on the wire: every byte arrives, in any order, or the receiver says what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbridge.errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, LandbridgeError
from landbridge.v1 import tensor_pb2, weights_pb2
from landbridge.weights import (
    Assembler,
    changed,
    iter_buckets,
    make_manifest,
    refuse_other_contents,
)

HASH = "a" * 64
STATE = {
    "layer.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer.half": np.linspace(-1, 1, 7).astype(ml_dtypes.bfloat16),
    "scale": np.array(3.5, np.float64),
    "nothing": np.zeros((0, 4), np.float32),
    "transposed": np.arange(6, dtype=np.int64).reshape(2, 3).T,
}


def manifest(state: dict[str, Any] = STATE, **changes: Any) -> weights_pb2.WeightsManifest:
    return make_manifest(state, **({"version": 3, "architecture_hash": HASH} | changes))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        one[n].dtype == other[n].dtype and one[n].shape == other[n].shape and one[n].tobytes() == other[n].tobytes()
        for n in one
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.randoms())
def test_buckets_of_any_size_in_any_order_make_the_same_state(size: int, order: random.Random) -> None:
    buckets = list(iter_buckets(STATE, size))
    order.shuffle(buckets)
    assembler = Assembler(manifest(), STATE, HASH)
    for bucket in buckets:
        assert len(bucket.data) <= size
        assembler.add(bucket)
    assert same(assembler.finish(), STATE)


def test_big_endian_arrays_travel_as_little_endian() -> None:
    big = {"x": np.arange(5, dtype=">f4")}
    assembler = Assembler(manifest(big), {"x": np.zeros(5, np.float32)}, HASH)
    for bucket in iter_buckets(big):
        assembler.add(bucket)
    assert assembler.finish()["x"].tolist() == [0, 1, 2, 3, 4]


def test_what_comes_out_cannot_be_written_to() -> None:
    assembler = Assembler(manifest(), STATE, HASH)
    for bucket in iter_buckets(STATE):
        assembler.add(bucket)
    with pytest.raises(ValueError, match="read-only"):
        assembler.finish()["layer.weight"][0] = 1.0


def entry(which: str, **fields: Any) -> Callable[[weights_pb2.WeightsManifest], None]:
    def change(made: weights_pb2.WeightsManifest) -> None:
        found = next(e for e in made.tensors if e.name == which)
        for key, value in fields.items():
            if key == "shape":
                found.shape[:] = value
            else:
                setattr(found, key, value)

    return change


def drop(made: weights_pb2.WeightsManifest) -> None:
    del made.tensors[0]


def twice(made: weights_pb2.WeightsManifest) -> None:
    made.tensors.append(made.tensors[0])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda m: setattr(m, "architecture_hash", "b" * 64), FailedPrecondition, "architecture bbbb"),
        (drop, DataLoss, "layer.weight"),
        (twice, InvalidArgument, "twice"),
        (entry("scale", name="stranger"), InvalidArgument, "stranger"),
        (entry("layer.weight", shape=[4, 3]), InvalidArgument, r"\[4, 3\] came, float32 \[3, 4\] expected"),
        (entry("layer.weight", shape=[1 << 40, 1 << 40]), InvalidArgument, "expected"),
        (entry("layer.weight", dtype=tensor_pb2.DTYPE_FLOAT64), InvalidArgument, "float64"),
        (entry("layer.weight", dtype=99), InvalidArgument, "99"),
    ],
)
def test_a_wrong_manifest_is_refused_before_any_bucket(
    change: Callable[[Any], None], error: type[LandbridgeError], says: str
) -> None:
    made = manifest()
    change(made)
    with pytest.raises(error, match=says):
        Assembler(made, STATE, HASH)


@pytest.mark.parametrize(
    ("bucket", "says"),
    [
        ({"name": "stranger", "data": b"1"}, "does not list"),
        ({"name": "layer.weight", "offset": 40, "data": b"123456789"}, "bytes 40 to 49 of a tensor of 48"),
        ({"name": "layer.weight", "offset": 1 << 63, "data": b"1"}, "of a tensor of 48"),
        ({"name": "layer.weight", "offset": 8, "data": b"1" * 8}, "overlap 8 to 16"),
        ({"name": "layer.weight", "offset": 4, "data": b"1" * 8}, "overlap 8 to 16"),
        ({"name": "layer.weight", "offset": 12, "data": b"1" * 8}, "overlap 8 to 16"),
        ({"name": "layer.weight", "offset": 0, "data": b"1" * 48}, "overlap 8 to 16"),
        ({"name": "layer.weight", "offset": 10, "data": b"1" * 2}, "overlap 8 to 16"),
    ],
)
def test_a_wrong_bucket_is_refused(bucket: dict[str, Any], says: str) -> None:
    assembler = Assembler(manifest(), STATE, HASH)
    assembler.add(weights_pb2.WeightsBucket(name="layer.weight", offset=8, data=b"12345678"))
    with pytest.raises(InvalidArgument, match=says):
        assembler.add(weights_pb2.WeightsBucket(**bucket))


@pytest.mark.parametrize("missing", ["first", "middle", "last", "all"])
def test_missing_bytes_are_data_loss(missing: str) -> None:
    assembler = Assembler(manifest(), STATE, HASH)
    buckets = [b for b in iter_buckets(STATE, 16) if b.name == "layer.weight"]
    gone = {"first": buckets[:1], "middle": buckets[1:2], "last": buckets[-1:], "all": buckets}[missing]
    for bucket in iter_buckets(STATE, 16):
        if bucket not in gone:
            assembler.add(bucket)
    with pytest.raises(DataLoss, match=r"layer\.weight: bytes \d+ to \d+ never came"):
        assembler.finish()


def test_one_flipped_bit_is_data_loss() -> None:
    assembler = Assembler(manifest(), STATE, HASH)
    for bucket in iter_buckets(STATE):
        if bucket.name == "layer.half":
            bucket.data = bytes([bucket.data[0] ^ 1]) + bucket.data[1:]
        assembler.add(bucket)
    with pytest.raises(DataLoss, match=r"layer\.half: checksum"):
        assembler.finish()


def test_changes_are_told_bit_by_bit() -> None:
    base = {"same": np.zeros(3), "nan": np.array([np.nan]), "zero": np.array([0.0]), "shape": np.zeros((2, 2))}
    new = {"same": np.zeros(3), "nan": np.array([np.nan]), "zero": np.array([-0.0]), "shape": np.zeros(4), "new": 1}
    new["new"] = np.ones(1)
    assert set(changed(new, base)) == {"zero", "shape", "new"}


def test_a_push_of_changes_needs_only_those() -> None:
    part = {"scale": np.array(4.0)}
    assembler = Assembler(manifest(part, base_version=2), STATE, HASH)
    for bucket in iter_buckets(part):
        assembler.add(bucket)
    assert same(assembler.finish(), part)


def test_a_version_is_published_once() -> None:
    refuse_other_contents(3, dict(STATE), STATE)
    with pytest.raises(AlreadyExists, match="version 3"):
        refuse_other_contents(3, STATE | {"scale": np.array(4.0)}, STATE)
