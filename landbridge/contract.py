"""What tensors mean: specs with semantics, shared by environments, robots and policies.

A shape says how many numbers there are; a :class:`Segment` says what they are:
quantity, frame, unit, rotation representation, gripper convention. Two endpoints whose
shapes agree and whose segments differ must not move a robot together; the check that
decides so is :mod:`landbridge.compatibility`. The wire form is ``spec.proto``;
:mod:`landbridge.contract_codec` converts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np


class Quantity(enum.Enum):
    """What a segment measures or commands."""

    OTHER = "other"
    JOINT_POSITION = "joint_position"
    JOINT_VELOCITY = "joint_velocity"
    JOINT_POSITION_DELTA = "joint_position_delta"
    EE_POSITION = "ee_position"
    EE_ROTATION = "ee_rotation"
    EE_POSITION_DELTA = "ee_position_delta"
    EE_ROTATION_DELTA = "ee_rotation_delta"
    GRIPPER = "gripper"
    OBJECT_POSITION = "object_position"
    OBJECT_ROTATION = "object_rotation"
    GOAL_POSITION = "goal_position"
    FORCE = "force"
    FLAG = "flag"
    IMAGE = "image"
    DEPTH = "depth"
    SEGMENTATION = "segmentation"


class Unit(enum.Enum):
    """Physical unit of every number in a segment."""

    NONE = "none"
    METRE = "metre"
    MILLIMETRE = "millimetre"
    RADIAN = "radian"
    DEGREE = "degree"
    METRE_PER_SECOND = "metre_per_second"
    RADIAN_PER_SECOND = "radian_per_second"
    DEGREE_PER_SECOND = "degree_per_second"
    NEWTON = "newton"
    NORMALISED = "normalised"
    """A simulator's private scale, e.g. [-1, 1]: refused wherever a robot is on the other side."""


class Rotation(enum.Enum):
    """How a rotation is written down."""

    NONE = "none"
    QUATERNION_WXYZ = "quaternion_wxyz"
    QUATERNION_XYZW = "quaternion_xyzw"
    AXIS_ANGLE = "axis_angle"
    EULER_XYZ = "euler_xyz"
    MATRIX = "matrix"
    ROTATION_6D = "rotation_6d"


class DeltaReference(enum.Enum):
    """What a delta is added to: the pose measured when it is applied, or the last commanded target."""

    NONE = "none"
    MEASURED = "measured"
    COMMANDED = "commanded"


@dataclass(frozen=True)
class Segment:
    """A contiguous slice ``[start, start + size)`` of a tensor's last axis, with its meaning."""

    name: str
    start: int
    size: int
    quantity: Quantity
    unit: Unit = Unit.NONE
    frame: str = ""
    """``base`` (robot base), ``world``, ``tool``, ``camera:NAME``; empty where no frame applies."""
    rotation: Rotation = Rotation.NONE
    delta_reference: DeltaReference = DeltaReference.NONE
    gripper_closed: float | None = None
    """For GRIPPER: the value that means fully closed …"""
    gripper_open: float | None = None
    """… and the one that means fully open, in ``unit``."""


@dataclass(frozen=True)
class ImageLayout:
    """Layout of an image tensor: axes (``HWC``/``CHW``), colour (``RGB``/``BGR``), orientation."""

    axes: str = "HWC"
    colour: str = "RGB"
    upright: bool = True
    camera: str = ""


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype, shape (-1 = any length), bounds and meaning of one tensor of one environment.

    ``low``/``high`` are empty (unbounded), of length 1 (for all elements) or flat, one an element.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    segments: tuple[Segment, ...] = ()
    image: ImageLayout | None = None
    privileged: bool = False
    """Known to a simulator only: a critic may read it, a policy meant for a robot must not."""
    description: str = ""

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """``(low, high)`` broadcast to ``shape``, float64; infinities where unbounded."""
        return self._bound(self.low, -np.inf), self._bound(self.high, np.inf)

    def _bound(self, values: tuple[float, ...], default: float) -> np.ndarray:
        size = int(np.prod(self.shape, dtype=np.int64))
        if not values:
            return np.full(self.shape, default)
        if len(values) not in (1, size):
            raise ValueError(
                f"{self.name}: {len(values)} bounds for {size} elements; give none, one, or one an element"
            )
        return np.broadcast_to(np.asarray(values, np.float64), (size,)).reshape(self.shape).copy()


@dataclass(frozen=True)
class Contract:
    """What an environment offers, or what a policy was trained for.

    ``observation`` and ``action`` shapes are those of one environment and one step (no batch axis,
    no chunk axis).
    """

    observation: tuple[TensorSpec, ...]
    action: TensorSpec
    control_rate_hz: float
    """Rate at which single actions of a chunk are executed; 0 where time has no unit."""
    task: str = ""
    embodiment: str = ""
    instruction: str = ""
    notes: tuple[str, ...] = field(default=())

    def observed(self) -> tuple[TensorSpec, ...]:
        """The observation specs a robot can measure (not privileged)."""
        return tuple(spec for spec in self.observation if not spec.privileged)

    def spec(self, name: str) -> TensorSpec:
        """The observation spec called ``name``; KeyError lists what there is."""
        for candidate in self.observation:
            if candidate.name == name:
                return candidate
        raise KeyError(f"no observation named {name!r}; there are {[s.name for s in self.observation]}")
