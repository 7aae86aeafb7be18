import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from landbridge.v1 import spec_pb2 as _spec_pb2
from landbridge.v1 import tensor_pb2 as _tensor_pb2
from landbridge.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SampleMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAMPLE_MODE_UNSPECIFIED: _ClassVar[SampleMode]
    SAMPLE_MODE_DETERMINISTIC: _ClassVar[SampleMode]
    SAMPLE_MODE_STOCHASTIC: _ClassVar[SampleMode]
SAMPLE_MODE_UNSPECIFIED: SampleMode
SAMPLE_MODE_DETERMINISTIC: SampleMode
SAMPLE_MODE_STOCHASTIC: SampleMode

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyInfo(_message.Message):
    __slots__ = ("name", "server_version", "contract", "horizon", "max_rows", "architecture_hash", "architecture_json", "current_version", "held_versions", "reads", "paused", "instance_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_HASH_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_JSON_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HELD_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    server_version: str
    contract: _spec_pb2.Contract
    horizon: int
    max_rows: int
    architecture_hash: str
    architecture_json: str
    current_version: int
    held_versions: _containers.RepeatedScalarFieldContainer[int]
    reads: _containers.RepeatedScalarFieldContainer[str]
    paused: bool
    instance_id: str
    def __init__(self, name: _Optional[str] = ..., server_version: _Optional[str] = ..., contract: _Optional[_Union[_spec_pb2.Contract, _Mapping]] = ..., horizon: _Optional[int] = ..., max_rows: _Optional[int] = ..., architecture_hash: _Optional[str] = ..., architecture_json: _Optional[str] = ..., current_version: _Optional[int] = ..., held_versions: _Optional[_Iterable[int]] = ..., reads: _Optional[_Iterable[str]] = ..., paused: _Optional[bool] = ..., instance_id: _Optional[str] = ...) -> None: ...

class InferRequest(_message.Message):
    __slots__ = ("request_id", "session_id", "episode_id", "observation_id", "observation", "seeds", "mode", "version", "want_trace", "want_value", "timeout")
    class ObservationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WANT_TRACE_FIELD_NUMBER: _ClassVar[int]
    WANT_VALUE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    session_id: str
    episode_id: str
    observation_id: int
    observation: _containers.MessageMap[str, _tensor_pb2.Tensor]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    mode: SampleMode
    version: int
    want_trace: bool
    want_value: bool
    timeout: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[int] = ..., session_id: _Optional[str] = ..., episode_id: _Optional[str] = ..., observation_id: _Optional[int] = ..., observation: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., seeds: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[SampleMode, str]] = ..., version: _Optional[int] = ..., want_trace: _Optional[bool] = ..., want_value: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class InferResponse(_message.Message):
    __slots__ = ("request_id", "episode_id", "observation_id", "version", "actions", "log_prob", "value", "trace", "seeds", "timings", "error")
    class TraceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    episode_id: str
    observation_id: int
    version: int
    actions: _tensor_pb2.Tensor
    log_prob: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    trace: _containers.MessageMap[str, _tensor_pb2.Tensor]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    timings: Timings
    error: RequestError
    def __init__(self, request_id: _Optional[int] = ..., episode_id: _Optional[str] = ..., observation_id: _Optional[int] = ..., version: _Optional[int] = ..., actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., log_prob: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., trace: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., seeds: _Optional[_Iterable[int]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., error: _Optional[_Union[RequestError, _Mapping]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queued", "computed", "batch_rows")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    queued: float
    computed: float
    batch_rows: int
    def __init__(self, queued: _Optional[float] = ..., computed: _Optional[float] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class RequestError(_message.Message):
    __slots__ = ("code", "message", "retry_after")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    retry_after: _duration_pb2.Duration
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ResetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ResetSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PushWeightsRequest(_message.Message):
    __slots__ = ("manifest", "bucket")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    manifest: _weights_pb2.WeightsManifest
    bucket: _weights_pb2.WeightsBucket
    def __init__(self, manifest: _Optional[_Union[_weights_pb2.WeightsManifest, _Mapping]] = ..., bucket: _Optional[_Union[_weights_pb2.WeightsBucket, _Mapping]] = ...) -> None: ...

class PushWeightsResponse(_message.Message):
    __slots__ = ("version", "activated", "verify_seconds", "flip_seconds", "held_versions")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIVATED_FIELD_NUMBER: _ClassVar[int]
    VERIFY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FLIP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HELD_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    activated: bool
    verify_seconds: float
    flip_seconds: float
    held_versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., activated: _Optional[bool] = ..., verify_seconds: _Optional[float] = ..., flip_seconds: _Optional[float] = ..., held_versions: _Optional[_Iterable[int]] = ...) -> None: ...

class ActivateWeightsRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ActivateWeightsResponse(_message.Message):
    __slots__ = ("previous_version", "version")
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    previous_version: int
    version: int
    def __init__(self, previous_version: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class ListWeightsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWeightsResponse(_message.Message):
    __slots__ = ("versions", "current_version")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[HeldVersion]
    current_version: int
    def __init__(self, versions: _Optional[_Iterable[_Union[HeldVersion, _Mapping]]] = ..., current_version: _Optional[int] = ...) -> None: ...

class HeldVersion(_message.Message):
    __slots__ = ("version", "training_step", "received", "pinned", "bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TRAINING_STEP_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    training_step: int
    received: _timestamp_pb2.Timestamp
    pinned: bool
    bytes: int
    def __init__(self, version: _Optional[int] = ..., training_step: _Optional[int] = ..., received: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pinned: _Optional[bool] = ..., bytes: _Optional[int] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: _duration_pb2.Duration
    def __init__(self, lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
