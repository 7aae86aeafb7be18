"""The tensor codec: every dtype and layout round-trips; hostile input is refused before anything is allocated."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from landbridge import tensors
from landbridge.errors import FailedPrecondition, InvalidArgument, Unimplemented
from landbridge.v1 import tensor_pb2 as pb

DTYPES = [
    np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64,
    np.float16, np.float32, np.float64,
]  # fmt: skip


def same(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_round_trip_of_any_dtype_shape_and_byte_order(data):
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)))
    sent = array.astype(dtype.newbyteorder(data.draw(st.sampled_from("<>"))))
    wire = pb.Tensor.FromString(tensors.encode(sent).SerializeToString())
    back = tensors.decode(wire)
    assert back.dtype == dtype and same(back, array)


@pytest.mark.parametrize("layout", [lambda a: a.T, lambda a: a[::2, ::-1], np.asfortranarray, lambda a: a[:0]])
def test_non_contiguous_and_empty_layouts(layout):
    array = layout(np.arange(24, dtype=np.int32).reshape(4, 6))
    assert same(tensors.decode(tensors.encode(array)), np.ascontiguousarray(array))


def test_bfloat16_keeps_its_bits():
    array = np.array([1.5, -0.0, np.inf, 3.0e38], ml_dtypes.bfloat16)
    message = tensors.encode(array)
    assert message.dtype == pb.DTYPE_BFLOAT16 and len(message.raw) == 8
    assert same(tensors.decode(message), array)


def test_scalar_is_rank_zero():
    back = tensors.decode(tensors.encode(np.float64(2.5)))
    assert back.shape == () and back == 2.5


def test_decode_is_a_read_only_view_and_a_writable_copy_is_one_argument_away():
    message = tensors.encode(np.arange(4.0))
    view = tensors.decode(message)
    assert not view.flags.writeable and not view.flags.owndata
    copy = tensors.decode(message, writable=True)
    copy[0] = 9.0
    assert tensors.decode(message)[0] == 0.0


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Tensor(dtype=0, shape=[1], raw=b"1234"), "x.dtype"),
        (pb.Tensor(dtype=99, shape=[1], raw=b"1234"), "x.dtype"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[2], raw=b"1234"), "x.raw"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[1], raw=b"12345"), "x.raw"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[-1], raw=b"1234"), "x.shape"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[-1, -1], raw=b"1234"), "x.shape"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[1 << 40, 1 << 40], raw=b"1234"), "x.shape"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[0, 1 << 62, 1 << 62], raw=b""), "x.shape"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[1] * 33, raw=b"1234"), "x.shape"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[1]), "x.raw"),
        (pb.Tensor(dtype=pb.DTYPE_BOOL, shape=[2], raw=b"\x01\x02"), "x.raw"),
    ],
)
def test_hostile_messages_are_refused_with_the_fields_path(message, field):
    with pytest.raises(InvalidArgument) as caught:
        tensors.decode(message, "x")
    assert caught.value.field == field


def test_the_byte_limit_is_checked_from_the_shape_alone():
    with pytest.raises(InvalidArgument, match="at most 64 are accepted"):
        tensors.decode(pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[65], raw=bytes(65)), max_bytes=64)


def test_shared_memory_is_refused_unless_negotiated_and_pictures_by_name():
    region = pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[4], shared_memory=pb.SharedMemoryRegion(segment="/etc"))
    with pytest.raises(FailedPrecondition, match="not negotiated"):
        tensors.decode(region)
    picture = pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[1, 1, 3], image=pb.CompressedImage())
    with pytest.raises(Unimplemented, match="compressed images"):
        tensors.decode(picture)


def test_objects_and_strings_have_no_wire_form():
    for bad in (np.array(["a"]), np.array([{}], dtype=object), np.array([1j])):
        with pytest.raises(InvalidArgument, match="no wire form"):
            tensors.encode(bad)


def test_paths_of_maps_name_the_key():
    with pytest.raises(InvalidArgument) as caught:
        tensors.decode_map({"state": pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[3], raw=b"")}, "observation")
    assert caught.value.field == 'observation["state"].raw'


def test_expect_says_both_what_was_wanted_and_what_came():
    array = np.zeros((2, 3), np.float32)
    assert tensors.expect(array, "a", dtype="float32", shape=(None, 3)) is array
    with pytest.raises(InvalidArgument, match=r"shape \['any', 4\] expected, \[2, 3\] came"):
        tensors.expect(array, "a", shape=(None, 4))
    with pytest.raises(InvalidArgument, match="dtype float64 expected, float32 came"):
        tensors.expect(array, "a", dtype="float64")
