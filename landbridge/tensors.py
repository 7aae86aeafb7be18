"""Tensor codec: numpy arrays to and from ``landbridge.v1.Tensor``.

Decoding is zero-copy: the array is a read-only view of the message's bytes (``writable=True`` copies). Encoding
copies once, into the message. Everything that a hostile or broken sender can get wrong is checked before any
allocation, and reported as INVALID_ARGUMENT with the field's path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import ml_dtypes
import numpy as np

from landbridge.errors import FailedPrecondition, InvalidArgument, Path, Unimplemented
from landbridge.v1 import tensor_pb2 as pb

MAX_RANK = 32
MAX_BYTES = 1 << 31
"""Default limit on one decoded tensor, in bytes."""

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES: dict[pb.Dtype, np.dtype[Any]] = {
    pb.DTYPE_BOOL: np.dtype(np.bool_),
    pb.DTYPE_UINT8: np.dtype(np.uint8),
    pb.DTYPE_INT8: np.dtype(np.int8),
    pb.DTYPE_UINT16: np.dtype("<u2"),
    pb.DTYPE_INT16: np.dtype("<i2"),
    pb.DTYPE_UINT32: np.dtype("<u4"),
    pb.DTYPE_INT32: np.dtype("<i4"),
    pb.DTYPE_UINT64: np.dtype("<u8"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_FLOAT16: np.dtype("<f2"),
    pb.DTYPE_BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_FLOAT64: np.dtype("<f8"),
}
_ENUMS: dict[np.dtype[Any], pb.Dtype] = {dtype: number for number, dtype in _DTYPES.items()}
_NAMES: dict[str, pb.Dtype] = {pb.Dtype.Name(n)[len("DTYPE_") :].lower(): n for n in _DTYPES}


def dtype_number(dtype: np.dtype[Any] | str | type) -> pb.Dtype:
    """The wire enum of a numpy dtype (any byte order) or of its name, ``bfloat16`` included."""
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    wanted = np.dtype(dtype)
    number = _ENUMS.get(wanted.newbyteorder("<") if wanted.byteorder == ">" else wanted)
    if number is None:
        raise InvalidArgument(f"dtype {wanted} has no wire form; use one of {sorted(_NAMES)}", field="dtype")
    return number


def dtype_name(number: pb.Dtype | int) -> str:
    """``float32`` for DTYPE_FLOAT32; INVALID_ARGUMENT for an unknown number."""
    return pb.Dtype.Name(_known(number, Path("dtype")))[len("DTYPE_") :].lower()


def numpy_dtype(number: pb.Dtype | int) -> np.dtype[Any]:
    """The little-endian numpy dtype of a wire enum."""
    return _DTYPES[_known(number, Path("dtype"))]


def encode(array: Any) -> pb.Tensor:
    """A message holding ``array`` (anything numpy can view): any layout, byte order and rank, empty ones too."""
    source = np.asarray(array)
    number = dtype_number(source.dtype)
    source = source.astype(_DTYPES[number], copy=False)
    return pb.Tensor(dtype=number, shape=source.shape, raw=source.tobytes())


def decode(
    message: pb.Tensor, path: Path | str = "tensor", *, writable: bool = False, max_bytes: int = MAX_BYTES
) -> Array:
    """The array in ``message``: a read-only view of its bytes, or a copy of its own with ``writable``."""
    where = Path(path) if isinstance(path, str) else path
    dtype = _DTYPES[_known(message.dtype, where / "dtype")]
    shape = tuple(message.shape)
    expected = _checked_size(shape, dtype.itemsize, where, max_bytes)
    kind = message.WhichOneof("payload")
    if kind == "raw":
        return _decode_raw(message.raw, dtype, shape, expected, where, writable)
    if kind == "shared_memory":
        raise FailedPrecondition(
            f"{where}: shared memory was not negotiated on this connection; send raw bytes",
            field=str(where / "shared_memory"),
        )
    if kind == "image":
        raise Unimplemented(
            f"{where}: this endpoint does not decode compressed images; send raw bytes",
            field=str(where / "image"),
        )
    if expected == 0:
        return np.zeros(shape, dtype)
    raise InvalidArgument(
        f"{where}: no payload; expected {expected} bytes in `raw` for shape {list(shape)}",
        field=str(where / "raw"),
    )


def _decode_raw(
    raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], expected: int, where: Path, writable: bool
) -> Array:
    if len(raw) != expected:
        raise InvalidArgument(
            f"{where}: {len(raw)} bytes came, {expected} expected for {dtype.name} of shape {list(shape)}",
            field=str(where / "raw"),
        )
    array: Array = np.frombuffer(raw, dtype).reshape(shape)
    if dtype == np.bool_ and expected and array.view(np.uint8).max() > 1:
        raise InvalidArgument(f"{where}: a bool is one byte, 0 or 1; another value came", field=str(where / "raw"))
    return array.copy() if writable else array


def _known(number: int, where: Path) -> pb.Dtype:
    if number not in _DTYPES:
        raise InvalidArgument(f"{where}: {number} is no dtype; use one of {sorted(_NAMES)}", field=str(where))
    return cast("pb.Dtype", number)


def _checked_size(shape: tuple[int, ...], itemsize: int, where: Path, max_bytes: int) -> int:
    if len(shape) > MAX_RANK:
        raise InvalidArgument(
            f"{where}: {len(shape)} axes came, at most {MAX_RANK} are allowed", field=str(where / "shape")
        )
    if any(extent < 0 for extent in shape):
        raise InvalidArgument(f"{where}: a negative extent in {list(shape)}", field=str(where / "shape"))
    size = math.prod(shape) * itemsize
    if size > max_bytes or math.prod(e for e in shape if e) * itemsize >= 1 << 63:
        raise InvalidArgument(
            f"{where}: shape {list(shape)} asks for {size} bytes, at most {max_bytes} are accepted",
            field=str(where / "shape"),
        )
    return size


def encode_map(arrays: Mapping[str, Any]) -> dict[str, pb.Tensor]:
    """A map of messages, for constructors of messages with ``map<string, Tensor>`` fields."""
    return {name: encode(array) for name, array in arrays.items()}


def decode_map(
    messages: Mapping[str, pb.Tensor], path: Path | str, *, writable: bool = False, max_bytes: int = MAX_BYTES
) -> dict[str, Array]:
    """Every tensor of a map field, with ``path["name"]`` in errors."""
    where = Path(path) if isinstance(path, str) else path
    return {n: decode(m, where[n], writable=writable, max_bytes=max_bytes) for n, m in messages.items()}


def expect(
    array: Array, path: Path | str, *, dtype: str | None = None, shape: tuple[int | None, ...] | None = None
) -> Array:
    """``array`` if dtype and shape are as wanted (None = any extent); else INVALID_ARGUMENT saying both."""
    if dtype is not None and _ENUMS[array.dtype] != _NAMES[dtype]:
        raise InvalidArgument(f"{path}: dtype {dtype} expected, {array.dtype.name} came", field=f"{path}.dtype")
    if shape is not None and (
        len(shape) != array.ndim or any(w not in (None, h) for w, h in zip(shape, array.shape, strict=True))
    ):
        wanted = ["any" if extent is None else extent for extent in shape]
        raise InvalidArgument(f"{path}: shape {wanted} expected, {list(array.shape)} came", field=f"{path}.shape")
    return array
