from landbridge.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Quantity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUANTITY_UNSPECIFIED: _ClassVar[Quantity]
    QUANTITY_OTHER: _ClassVar[Quantity]
    QUANTITY_JOINT_POSITION: _ClassVar[Quantity]
    QUANTITY_JOINT_VELOCITY: _ClassVar[Quantity]
    QUANTITY_JOINT_POSITION_DELTA: _ClassVar[Quantity]
    QUANTITY_EE_POSITION: _ClassVar[Quantity]
    QUANTITY_EE_ROTATION: _ClassVar[Quantity]
    QUANTITY_EE_POSITION_DELTA: _ClassVar[Quantity]
    QUANTITY_EE_ROTATION_DELTA: _ClassVar[Quantity]
    QUANTITY_GRIPPER: _ClassVar[Quantity]
    QUANTITY_OBJECT_POSITION: _ClassVar[Quantity]
    QUANTITY_OBJECT_ROTATION: _ClassVar[Quantity]
    QUANTITY_GOAL_POSITION: _ClassVar[Quantity]
    QUANTITY_FORCE: _ClassVar[Quantity]
    QUANTITY_FLAG: _ClassVar[Quantity]
    QUANTITY_IMAGE: _ClassVar[Quantity]
    QUANTITY_DEPTH: _ClassVar[Quantity]
    QUANTITY_SEGMENTATION: _ClassVar[Quantity]

class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNIT_UNSPECIFIED: _ClassVar[Unit]
    UNIT_NONE: _ClassVar[Unit]
    UNIT_METRE: _ClassVar[Unit]
    UNIT_MILLIMETRE: _ClassVar[Unit]
    UNIT_RADIAN: _ClassVar[Unit]
    UNIT_DEGREE: _ClassVar[Unit]
    UNIT_METRE_PER_SECOND: _ClassVar[Unit]
    UNIT_RADIAN_PER_SECOND: _ClassVar[Unit]
    UNIT_DEGREE_PER_SECOND: _ClassVar[Unit]
    UNIT_NEWTON: _ClassVar[Unit]
    UNIT_NORMALISED: _ClassVar[Unit]

class Rotation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROTATION_UNSPECIFIED: _ClassVar[Rotation]
    ROTATION_NONE: _ClassVar[Rotation]
    ROTATION_QUATERNION_WXYZ: _ClassVar[Rotation]
    ROTATION_QUATERNION_XYZW: _ClassVar[Rotation]
    ROTATION_AXIS_ANGLE: _ClassVar[Rotation]
    ROTATION_EULER_XYZ: _ClassVar[Rotation]
    ROTATION_MATRIX: _ClassVar[Rotation]
    ROTATION_ROTATION_6D: _ClassVar[Rotation]

class DeltaReference(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELTA_REFERENCE_UNSPECIFIED: _ClassVar[DeltaReference]
    DELTA_REFERENCE_NONE: _ClassVar[DeltaReference]
    DELTA_REFERENCE_MEASURED: _ClassVar[DeltaReference]
    DELTA_REFERENCE_COMMANDED: _ClassVar[DeltaReference]
QUANTITY_UNSPECIFIED: Quantity
QUANTITY_OTHER: Quantity
QUANTITY_JOINT_POSITION: Quantity
QUANTITY_JOINT_VELOCITY: Quantity
QUANTITY_JOINT_POSITION_DELTA: Quantity
QUANTITY_EE_POSITION: Quantity
QUANTITY_EE_ROTATION: Quantity
QUANTITY_EE_POSITION_DELTA: Quantity
QUANTITY_EE_ROTATION_DELTA: Quantity
QUANTITY_GRIPPER: Quantity
QUANTITY_OBJECT_POSITION: Quantity
QUANTITY_OBJECT_ROTATION: Quantity
QUANTITY_GOAL_POSITION: Quantity
QUANTITY_FORCE: Quantity
QUANTITY_FLAG: Quantity
QUANTITY_IMAGE: Quantity
QUANTITY_DEPTH: Quantity
QUANTITY_SEGMENTATION: Quantity
UNIT_UNSPECIFIED: Unit
UNIT_NONE: Unit
UNIT_METRE: Unit
UNIT_MILLIMETRE: Unit
UNIT_RADIAN: Unit
UNIT_DEGREE: Unit
UNIT_METRE_PER_SECOND: Unit
UNIT_RADIAN_PER_SECOND: Unit
UNIT_DEGREE_PER_SECOND: Unit
UNIT_NEWTON: Unit
UNIT_NORMALISED: Unit
ROTATION_UNSPECIFIED: Rotation
ROTATION_NONE: Rotation
ROTATION_QUATERNION_WXYZ: Rotation
ROTATION_QUATERNION_XYZW: Rotation
ROTATION_AXIS_ANGLE: Rotation
ROTATION_EULER_XYZ: Rotation
ROTATION_MATRIX: Rotation
ROTATION_ROTATION_6D: Rotation
DELTA_REFERENCE_UNSPECIFIED: DeltaReference
DELTA_REFERENCE_NONE: DeltaReference
DELTA_REFERENCE_MEASURED: DeltaReference
DELTA_REFERENCE_COMMANDED: DeltaReference

class Contract(_message.Message):
    __slots__ = ("observation", "action", "control_rate_hz", "task", "embodiment", "instruction", "notes")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CONTROL_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    observation: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    action: TensorSpec
    control_rate_hz: float
    task: str
    embodiment: str
    instruction: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, observation: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., action: _Optional[_Union[TensorSpec, _Mapping]] = ..., control_rate_hz: _Optional[float] = ..., task: _Optional[str] = ..., embodiment: _Optional[str] = ..., instruction: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("name", "dtype", "shape", "low", "high", "segments", "image", "privileged", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGED_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _tensor_pb2.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    image: ImageLayout
    privileged: bool
    description: str
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., image: _Optional[_Union[ImageLayout, _Mapping]] = ..., privileged: _Optional[bool] = ..., description: _Optional[str] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("name", "start", "size", "quantity", "unit", "frame", "rotation", "delta_reference", "gripper_closed", "gripper_open")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    ROTATION_FIELD_NUMBER: _ClassVar[int]
    DELTA_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_OPEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: int
    size: int
    quantity: Quantity
    unit: Unit
    frame: str
    rotation: Rotation
    delta_reference: DeltaReference
    gripper_closed: float
    gripper_open: float
    def __init__(self, name: _Optional[str] = ..., start: _Optional[int] = ..., size: _Optional[int] = ..., quantity: _Optional[_Union[Quantity, str]] = ..., unit: _Optional[_Union[Unit, str]] = ..., frame: _Optional[str] = ..., rotation: _Optional[_Union[Rotation, str]] = ..., delta_reference: _Optional[_Union[DeltaReference, str]] = ..., gripper_closed: _Optional[float] = ..., gripper_open: _Optional[float] = ...) -> None: ...

class ImageLayout(_message.Message):
    __slots__ = ("axes", "colour", "upright", "camera")
    AXES_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    UPRIGHT_FIELD_NUMBER: _ClassVar[int]
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    axes: str
    colour: str
    upright: bool
    camera: str
    def __init__(self, axes: _Optional[str] = ..., colour: _Optional[str] = ..., upright: _Optional[bool] = ..., camera: _Optional[str] = ...) -> None: ...
