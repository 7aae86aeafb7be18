"""Payloads between the pool and its worker processes: bytes with a fixed layout, never pickles.

A request's kind is one letter; answers are of kind ``K`` with a result, or ``E`` with an error as JSON. Observations
have the contract's shapes, so only their bytes travel.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from landbridge.contract import Contract
from landbridge.env.protocol import ChunkResult, Observation
from landbridge.errors import Internal, LandbridgeError, Unimplemented, from_code
from landbridge.tensors import dtype_number, numpy_dtype

HELLO, RESET, STEP, RENDER, SAVE, RESTORE = (b"H", b"R", b"S", b"P", b"V", b"L")
OK, ERROR = b"K", b"E"

_STEP = struct.Struct("<?I")
_RESULT = struct.Struct("<IIIBI")
_FLAGS = ("terminated", "truncated", "abandoned", "success_once", "success_at_end")


class Layout:
    """Packs and unpacks observations, actions and results of one contract."""

    def __init__(self, contract: Contract) -> None:
        for spec in (*contract.observation, contract.action):
            if any(extent < 0 for extent in spec.shape):
                raise ValueError(f"{spec.name}: worker processes need fixed shapes, {list(spec.shape)} is not")
        self._parts = [
            (spec.name, numpy_dtype(dtype_number(spec.dtype)), spec.shape, int(np.prod(spec.shape, dtype=np.int64)))
            for spec in contract.observation
        ]
        self._action_dtype = numpy_dtype(dtype_number(contract.action.dtype))
        self._action_shape = contract.action.shape

    def pack_observation(self, observation: Observation) -> bytes:
        """Tensors in the contract's order."""
        return b"".join(
            np.ascontiguousarray(observation[name], dtype).reshape(shape).tobytes()
            for name, dtype, shape, _ in self._parts
        )

    def unpack_observation(self, data: bytes, offset: int) -> tuple[Observation, int]:
        """The observation at ``offset``, and where it ends."""
        made = {}
        for name, dtype, shape, size in self._parts:
            made[name] = np.frombuffer(data, dtype, size, offset).reshape(shape)
            offset += size * dtype.itemsize
        return made, offset

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
        flags = sum(1 << bit for bit, name in enumerate(_FLAGS) if getattr(result, name))
        message = result.message.encode()
        head = _RESULT.pack(len(result.rewards), result.executed, result.episode_step, flags, len(message))
        success = result.success if len(result.success) else np.zeros(len(result.rewards), bool)
        return b"".join(
            (
                head,
                np.asarray(result.rewards, np.float32).tobytes(),
                np.asarray(result.evaluated, bool).tobytes(),
                np.asarray(success, bool).tobytes(),
                message,
                self.pack_observation(result.observation),
            )
        )

    def unpack_result(self, payload: bytes) -> ChunkResult:
        """Inverse of :meth:`pack_result`."""
        length, executed, step, flags, message_length = _RESULT.unpack_from(payload)
        offset = _RESULT.size
        rewards = np.frombuffer(payload, np.float32, length, offset)
        offset += 4 * length
        evaluated = np.frombuffer(payload, bool, length, offset)
        success = np.frombuffer(payload, bool, length, offset + length)
        offset += 2 * length
        message = payload[offset : offset + message_length].decode()
        observation, _ = self.unpack_observation(payload, offset + message_length)
        marks = {name: bool(flags & (1 << bit)) for bit, name in enumerate(_FLAGS)}
        return ChunkResult(
            observation=observation,
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            success=success,
            episode_step=step,
            message=message,
            **marks,
        )


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
