"""Contracts to and from their wire form (``spec.proto``) and its JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf import json_format

from landbridge.contract import (
    Contract,
    DeltaReference,
    ImageLayout,
    Quantity,
    Rotation,
    Segment,
    TensorSpec,
    Unit,
)
from landbridge.errors import InvalidArgument
from landbridge.tensors import dtype_name, dtype_number
from landbridge.v1 import spec_pb2 as pb

E = TypeVar("E", bound=enum.Enum)


def contract_to_proto(contract: Contract) -> pb.Contract:
    """The wire form of a contract."""
    return pb.Contract(
        observation=[spec_to_proto(spec) for spec in contract.observation],
        action=spec_to_proto(contract.action),
        control_rate_hz=contract.control_rate_hz,
        task=contract.task,
        embodiment=contract.embodiment,
        instruction=contract.instruction,
        notes=contract.notes,
    )


def contract_from_proto(message: pb.Contract) -> Contract:
    """The contract in ``message``; INVALID_ARGUMENT for enum values this side does not know."""
    return Contract(
        observation=tuple(spec_from_proto(spec) for spec in message.observation),
        action=spec_from_proto(message.action),
        control_rate_hz=message.control_rate_hz,
        task=message.task,
        embodiment=message.embodiment,
        instruction=message.instruction,
        notes=tuple(message.notes),
    )


def spec_to_proto(spec: TensorSpec) -> pb.TensorSpec:
    """The wire form of one tensor's spec."""
    image = spec.image
    return pb.TensorSpec(
        name=spec.name,
        dtype=dtype_number(spec.dtype),
        shape=spec.shape,
        low=spec.low,
        high=spec.high,
        segments=[_segment_to_proto(segment) for segment in spec.segments],
        image=None
        if image is None
        else pb.ImageLayout(axes=image.axes, colour=image.colour, upright=image.upright, camera=image.camera),
        privileged=spec.privileged,
        description=spec.description,
    )


def spec_from_proto(message: pb.TensorSpec) -> TensorSpec:
    """The spec in ``message``."""
    image = message.image
    return TensorSpec(
        name=message.name,
        shape=tuple(message.shape),
        dtype=dtype_name(message.dtype),
        low=tuple(message.low),
        high=tuple(message.high),
        segments=tuple(_segment_from_proto(s) for s in message.segments),
        image=ImageLayout(image.axes, image.colour, image.upright, image.camera) if message.HasField("image") else None,
        privileged=message.privileged,
        description=message.description,
    )


def _segment_to_proto(segment: Segment) -> pb.Segment:
    return pb.Segment(
        name=segment.name,
        start=segment.start,
        size=segment.size,
        quantity=_number(pb.Quantity, "QUANTITY", segment.quantity),
        unit=_number(pb.Unit, "UNIT", segment.unit),
        frame=segment.frame,
        rotation=_number(pb.Rotation, "ROTATION", segment.rotation),
        delta_reference=_number(pb.DeltaReference, "DELTA_REFERENCE", segment.delta_reference),
        gripper_closed=segment.gripper_closed,
        gripper_open=segment.gripper_open,
    )


def _segment_from_proto(message: pb.Segment) -> Segment:
    return Segment(
        name=message.name,
        start=message.start,
        size=message.size,
        quantity=_member(pb.Quantity, "QUANTITY", message.quantity, Quantity),
        unit=_member(pb.Unit, "UNIT", message.unit, Unit),
        frame=message.frame,
        rotation=_member(pb.Rotation, "ROTATION", message.rotation, Rotation),
        delta_reference=_member(pb.DeltaReference, "DELTA_REFERENCE", message.delta_reference, DeltaReference),
        gripper_closed=message.gripper_closed if message.HasField("gripper_closed") else None,
        gripper_open=message.gripper_open if message.HasField("gripper_open") else None,
    )


def _number(wire: Any, prefix: str, member: enum.Enum) -> Any:
    return wire.Value(f"{prefix}_{member.value.upper()}")


def _member(wire: Any, prefix: str, number: int, kind: type[E]) -> E:
    name = wire.Name(number) if number in wire.values() else ""
    value = name.removeprefix(f"{prefix}_").lower()
    for member in kind:
        if member.value == value:
            return member
    raise InvalidArgument(
        f"{prefix.lower()} {number} is unset or unknown to this side; expected one of {[m.value for m in kind]}",
        field=prefix.lower(),
    )


def contract_to_json(contract: Contract) -> dict[str, Any]:
    """A JSON-able form (protobuf's JSON mapping of the wire form), for checkpoints and demonstration files."""
    made: dict[str, Any] = json_format.MessageToDict(contract_to_proto(contract), preserving_proto_field_name=True)
    return made


def contract_from_json(data: Mapping[str, Any]) -> Contract:
    """Inverse of :func:`contract_to_json`; INVALID_ARGUMENT for unknown fields or values."""
    try:
        message = json_format.ParseDict(dict(data), pb.Contract())
    except json_format.ParseError as error:
        raise InvalidArgument(f"not a contract: {error}", field="contract") from error
    return contract_from_proto(message)
