"""Payloads between the pool and its worker processes: bytes with a fixed layout, never pickles.

A request's kind is one letter; answers are of kind ``K`` with a result, or ``E`` with an error as JSON. Observations
have the contract's shapes, so only their bytes travel.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from landbridge.contract import Contract, TensorSpec
from landbridge.env.protocol import ChunkResult, Observation
from landbridge.errors import Internal, LandbridgeError, Unimplemented, from_code
from landbridge.tensors import dtype_number, numpy_dtype

HELLO, RESET, STEP, RENDER, SAVE, RESTORE = (b"H", b"R", b"S", b"P", b"V", b"L")
OK, ERROR = b"K", b"E"

_STEP = struct.Struct("<?I")
_RESULT = struct.Struct("<IIIII")


class Layout:
    """Packs and unpacks observations, actions and results of one contract.

    float32 tensors lie first and end to end, behind the rewards in a result: one look finds what is not finite.
    """

    def __init__(self, contract: Contract) -> None:
        for spec in (*contract.observation, contract.action):
            if any(extent < 0 for extent in spec.shape):
                raise ValueError(f"{spec.name}: worker processes need fixed shapes, {list(spec.shape)} is not")
        singles = [spec for spec in contract.observation if spec.dtype == "float32"]
        others = [spec for spec in contract.observation if spec.dtype != "float32"]
        self._parts = [_Part.of(spec) for spec in (*singles, *others)]
        self._singles, self._others = self._parts[: len(singles)], self._parts[len(singles) :]
        self._single_size = sum(part.size for part in self._singles)
        self._action_dtype = numpy_dtype(dtype_number(contract.action.dtype))
        self._action_shape = contract.action.shape

    def pack_observation(self, observation: Observation) -> bytes:
        """The tensors' bytes, in this layout's order."""
        return b"".join([part.pack(observation[part.name]) for part in self._parts])

    def unpack_observation(self, data: bytes) -> tuple[Observation, bool]:
        """Inverse of :meth:`pack_observation`, and whether every number is finite."""
        singles = np.frombuffer(data, np.float32, self._single_size)
        return self._unpack(data, singles, 0, 4 * self._single_size), bool(
            np.isfinite(singles).all()
        ) and self._others_finite(data)

    def _unpack(self, data: bytes, singles: np.ndarray, start: int, offset: int) -> Observation:
        """Views: float32 tensors from ``singles`` on at ``start``, the others from ``data`` on at ``offset``."""
        made = {}
        for part in self._singles:
            made[part.name] = singles[start : start + part.size].reshape(part.shape)
            start += part.size
        for part in self._others:
            made[part.name] = np.frombuffer(data, part.dtype, part.size, offset).reshape(part.shape)
            offset += part.size * part.dtype.itemsize
        return made

    def _others_finite(self, data: bytes) -> bool:
        """Of the tensors at the end of ``data`` that are not float32."""
        offset = len(data) - sum(part.size * part.dtype.itemsize for part in self._others)
        for part in self._others:
            if part.floating and not np.isfinite(np.frombuffer(data, part.dtype, part.size, offset)).all():
                return False
            offset += part.size * part.dtype.itemsize
        return True

    def pack_step(self, actions: np.ndarray, every_step: bool) -> bytes:
        """The payload of a STEP request for ``actions`` [C, …A]."""
        return _STEP.pack(every_step, len(actions)) + np.ascontiguousarray(actions, self._action_dtype).tobytes()

    def unpack_step(self, payload: bytes) -> tuple[np.ndarray, bool]:
        """Inverse of :meth:`pack_step`."""
        every_step, count = _STEP.unpack_from(payload)
        actions = np.frombuffer(payload, self._action_dtype, offset=_STEP.size)
        return actions.reshape(count, *self._action_shape), every_step

    def pack_result(self, result: ChunkResult) -> bytes:
        """The payload of an answer to STEP."""
        flags = (
            result.terminated
            | result.truncated << 1
            | result.abandoned << 2
            | result.success_once << 3
            | result.success_at_end << 4
        )
        length = len(result.rewards)
        message = result.message.encode()
        message += b" " * (-len(message) % 4)  # numbers behind it stay aligned
        success = result.success if len(result.success) else np.zeros(length, bool)
        return b"".join(
            [
                _RESULT.pack(length, result.executed, result.episode_step, flags, len(message)),
                message,
                np.asarray(result.rewards, np.float32).tobytes(),
                *[part.pack(result.observation[part.name]) for part in self._parts],
                np.asarray(result.evaluated, bool).tobytes(),
                np.asarray(success, bool).tobytes(),
            ]
        )

    def unpack_result(self, payload: bytes) -> tuple[ChunkResult, bool]:
        """Inverse of :meth:`pack_result`, and whether every number in it is finite."""
        length, executed, step, flags, message_length = _RESULT.unpack_from(payload)
        offset = _RESULT.size + message_length
        message = payload[_RESULT.size : offset].decode().rstrip() if message_length else ""
        singles = np.frombuffer(payload, np.float32, length + self._single_size, offset)
        marks = np.frombuffer(payload, bool, 2 * length, len(payload) - 2 * length)
        result = ChunkResult(
            self._unpack(payload, singles, length, offset + singles.nbytes),
            singles[:length],
            marks[:length],
            executed,
            bool(flags & 1),
            bool(flags & 2),
            bool(flags & 4),
            marks[length:],
            bool(flags & 8),
            bool(flags & 16),
            step,
            message,
        )
        return result, bool(np.isfinite(singles).all()) and (
            not self._others or self._others_finite(payload[: -2 * length])
        )


@dataclass(frozen=True)
class _Part:
    """One tensor of an observation."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    floating: bool

    @staticmethod
    def of(spec: TensorSpec) -> _Part:
        dtype = numpy_dtype(dtype_number(spec.dtype))
        floating = spec.dtype in ("float16", "bfloat16", "float32", "float64")
        return _Part(spec.name, dtype, spec.shape, int(np.prod(spec.shape, dtype=np.int64)), floating)

    def pack(self, value: np.ndarray) -> bytes:
        if value.shape != self.shape:
            raise Internal(f"observation {self.name!r}: the contract says {list(self.shape)}, {list(value.shape)} came")
        return (value if value.dtype == self.dtype else value.astype(self.dtype)).tobytes()


def pack_image(image: np.ndarray) -> bytes:
    """The payload of an answer to RENDER: ``image`` [H, W, 3] uint8."""
    image = np.ascontiguousarray(image, np.uint8)
    return json.dumps(image.shape).encode() + b"\n" + image.tobytes()


def unpack_image(payload: bytes) -> np.ndarray:
    """Inverse of :func:`pack_image`."""
    shape, _, data = payload.partition(b"\n")
    return np.frombuffer(data, np.uint8).reshape(json.loads(shape))


def pack_error(error: Exception) -> bytes:
    """The payload of an ERROR answer; unknown exceptions become INTERNAL with their type's name."""
    if isinstance(error, NotImplementedError):
        error = Unimplemented(str(error) or "this adapter does not offer that")
    if not isinstance(error, LandbridgeError):
        error = Internal(f"{type(error).__name__}: {error}")
    body = {"code": error.code.value[0], "message": error.message, "field": error.field}
    return json.dumps(body).encode()


def unpack_error(payload: bytes) -> LandbridgeError:
    """The error in an ERROR answer."""
    body: dict[str, Any] = json.loads(payload)
    return from_code(body["code"], body["message"], field=body["field"])
