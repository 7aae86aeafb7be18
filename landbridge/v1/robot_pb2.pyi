import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from landbridge.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SafetyMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAFETY_MODE_UNSPECIFIED: _ClassVar[SafetyMode]
    SAFETY_MODE_DISARMED: _ClassVar[SafetyMode]
    SAFETY_MODE_ARMED: _ClassVar[SafetyMode]
    SAFETY_MODE_HOLD: _ClassVar[SafetyMode]
    SAFETY_MODE_STOPPED: _ClassVar[SafetyMode]
    SAFETY_MODE_FAULT: _ClassVar[SafetyMode]
SAFETY_MODE_UNSPECIFIED: SafetyMode
SAFETY_MODE_DISARMED: SafetyMode
SAFETY_MODE_ARMED: SafetyMode
SAFETY_MODE_HOLD: SafetyMode
SAFETY_MODE_STOPPED: SafetyMode
SAFETY_MODE_FAULT: SafetyMode

class ArmRequest(_message.Message):
    __slots__ = ("session_id", "clear_stop", "clear_fault")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CLEAR_STOP_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FAULT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    clear_stop: bool
    clear_fault: bool
    def __init__(self, session_id: _Optional[str] = ..., clear_stop: _Optional[bool] = ..., clear_fault: _Optional[bool] = ...) -> None: ...

class ArmResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: SafetyState
    def __init__(self, state: _Optional[_Union[SafetyState, _Mapping]] = ...) -> None: ...

class EmergencyStopRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class EmergencyStopResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: SafetyState
    def __init__(self, state: _Optional[_Union[SafetyState, _Mapping]] = ...) -> None: ...

class GetSafetyStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SafetyState(_message.Message):
    __slots__ = ("mode", "stop_generation", "reason", "recent", "counts", "observation_age")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODE_FIELD_NUMBER: _ClassVar[int]
    STOP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_AGE_FIELD_NUMBER: _ClassVar[int]
    mode: SafetyMode
    stop_generation: int
    reason: str
    recent: _containers.RepeatedCompositeFieldContainer[SafetyDecision]
    counts: _containers.ScalarMap[str, int]
    observation_age: _duration_pb2.Duration
    def __init__(self, mode: _Optional[_Union[SafetyMode, str]] = ..., stop_generation: _Optional[int] = ..., reason: _Optional[str] = ..., recent: _Optional[_Iterable[_Union[SafetyDecision, _Mapping]]] = ..., counts: _Optional[_Mapping[str, int]] = ..., observation_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SafetyDecision(_message.Message):
    __slots__ = ("check", "outcome", "message", "asked", "done", "time")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    check: str
    outcome: str
    message: str
    asked: _containers.RepeatedScalarFieldContainer[float]
    done: _containers.RepeatedScalarFieldContainer[float]
    time: float
    def __init__(self, check: _Optional[str] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ..., asked: _Optional[_Iterable[float]] = ..., done: _Optional[_Iterable[float]] = ..., time: _Optional[float] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("session_id", "operator")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    operator: str
    def __init__(self, session_id: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class TakeOverResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HandBackRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class HandBackResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamTelemetryRequest(_message.Message):
    __slots__ = ("max_rate_hz",)
    MAX_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    max_rate_hz: float
    def __init__(self, max_rate_hz: _Optional[float] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("time", "measured", "commanded", "mode", "decisions")
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    class CommandedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    COMMANDED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    time: float
    measured: _containers.MessageMap[str, _tensor_pb2.Tensor]
    commanded: _containers.MessageMap[str, _tensor_pb2.Tensor]
    mode: SafetyMode
    decisions: _containers.RepeatedCompositeFieldContainer[SafetyDecision]
    def __init__(self, time: _Optional[float] = ..., measured: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., commanded: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., mode: _Optional[_Union[SafetyMode, str]] = ..., decisions: _Optional[_Iterable[_Union[SafetyDecision, _Mapping]]] = ...) -> None: ...
