import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from landbridge.v1 import spec_pb2 as _spec_pb2
from landbridge.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetEnvInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnvInfo(_message.Message):
    __slots__ = ("name", "kind", "contract", "num_envs", "free_envs", "max_episode_steps", "max_chunk", "can_save_state", "can_render", "server_version", "instance_id")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[EnvInfo.Kind]
        KIND_SIMULATOR: _ClassVar[EnvInfo.Kind]
        KIND_ROBOT: _ClassVar[EnvInfo.Kind]
    KIND_UNSPECIFIED: EnvInfo.Kind
    KIND_SIMULATOR: EnvInfo.Kind
    KIND_ROBOT: EnvInfo.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    FREE_ENVS_FIELD_NUMBER: _ClassVar[int]
    MAX_EPISODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_FIELD_NUMBER: _ClassVar[int]
    CAN_SAVE_STATE_FIELD_NUMBER: _ClassVar[int]
    CAN_RENDER_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: EnvInfo.Kind
    contract: _spec_pb2.Contract
    num_envs: int
    free_envs: int
    max_episode_steps: int
    max_chunk: int
    can_save_state: bool
    can_render: bool
    server_version: str
    instance_id: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[EnvInfo.Kind, str]] = ..., contract: _Optional[_Union[_spec_pb2.Contract, _Mapping]] = ..., num_envs: _Optional[int] = ..., free_envs: _Optional[int] = ..., max_episode_steps: _Optional[int] = ..., max_chunk: _Optional[int] = ..., can_save_state: _Optional[bool] = ..., can_render: _Optional[bool] = ..., server_version: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("client_name", "num_envs", "lease")
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    num_envs: int
    lease: _duration_pb2.Duration
    def __init__(self, client_name: _Optional[str] = ..., num_envs: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("session_id", "num_envs", "lease")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    num_envs: int
    lease: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., num_envs: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("session_id", "env_ids", "seeds", "options")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_IDS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_ids: _containers.RepeatedScalarFieldContainer[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    options: _struct_pb2.Struct
    def __init__(self, session_id: _Optional[str] = ..., env_ids: _Optional[_Iterable[int]] = ..., seeds: _Optional[_Iterable[int]] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("observation", "episode_ids")
    class ObservationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    observation: _containers.MessageMap[str, _tensor_pb2.Tensor]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, observation: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("session_id", "env_ids", "action")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_ids: _containers.RepeatedScalarFieldContainer[int]
    action: _tensor_pb2.Tensor
    def __init__(self, session_id: _Optional[str] = ..., env_ids: _Optional[_Iterable[int]] = ..., action: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class StepChunkRequest(_message.Message):
    __slots__ = ("session_id", "env_ids", "actions", "evaluation", "request_id", "observation_ids", "timeout")
    class Evaluation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EVALUATION_UNSPECIFIED: _ClassVar[StepChunkRequest.Evaluation]
        EVALUATION_EVERY_STEP: _ClassVar[StepChunkRequest.Evaluation]
        EVALUATION_CHUNK_END: _ClassVar[StepChunkRequest.Evaluation]
    EVALUATION_UNSPECIFIED: StepChunkRequest.Evaluation
    EVALUATION_EVERY_STEP: StepChunkRequest.Evaluation
    EVALUATION_CHUNK_END: StepChunkRequest.Evaluation
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_IDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_ids: _containers.RepeatedScalarFieldContainer[int]
    actions: _tensor_pb2.Tensor
    evaluation: StepChunkRequest.Evaluation
    request_id: int
    observation_ids: _containers.RepeatedScalarFieldContainer[int]
    timeout: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., env_ids: _Optional[_Iterable[int]] = ..., actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., evaluation: _Optional[_Union[StepChunkRequest.Evaluation, str]] = ..., request_id: _Optional[int] = ..., observation_ids: _Optional[_Iterable[int]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("observation", "rewards", "evaluated", "executed", "terminated", "truncated", "abandoned", "success_once", "success_at_end", "episode_steps", "messages", "request_id", "error", "observation_ids")
    class ObservationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_ONCE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_AT_END_FIELD_NUMBER: _ClassVar[int]
    EPISODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_IDS_FIELD_NUMBER: _ClassVar[int]
    observation: _containers.MessageMap[str, _tensor_pb2.Tensor]
    rewards: _tensor_pb2.Tensor
    evaluated: _tensor_pb2.Tensor
    executed: _tensor_pb2.Tensor
    terminated: _tensor_pb2.Tensor
    truncated: _tensor_pb2.Tensor
    abandoned: _tensor_pb2.Tensor
    success_once: _tensor_pb2.Tensor
    success_at_end: _tensor_pb2.Tensor
    episode_steps: _tensor_pb2.Tensor
    messages: _containers.RepeatedScalarFieldContainer[str]
    request_id: int
    error: StepError
    observation_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, observation: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., rewards: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., evaluated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., executed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., terminated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., truncated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., abandoned: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., success_once: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., success_at_end: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., episode_steps: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., messages: _Optional[_Iterable[str]] = ..., request_id: _Optional[int] = ..., error: _Optional[_Union[StepError, _Mapping]] = ..., observation_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StepError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RenderRequest(_message.Message):
    __slots__ = ("session_id", "env_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_id: int
    def __init__(self, session_id: _Optional[str] = ..., env_id: _Optional[int] = ...) -> None: ...

class RenderResponse(_message.Message):
    __slots__ = ("image",)
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    image: _tensor_pb2.Tensor
    def __init__(self, image: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class SaveStateRequest(_message.Message):
    __slots__ = ("session_id", "env_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_id: int
    def __init__(self, session_id: _Optional[str] = ..., env_id: _Optional[int] = ...) -> None: ...

class SaveStateResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    def __init__(self, state: _Optional[bytes] = ...) -> None: ...

class RestoreStateRequest(_message.Message):
    __slots__ = ("session_id", "env_id", "state")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    env_id: int
    state: bytes
    def __init__(self, session_id: _Optional[str] = ..., env_id: _Optional[int] = ..., state: _Optional[bytes] = ...) -> None: ...

class RestoreStateResponse(_message.Message):
    __slots__ = ("observation",)
    class ObservationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    observation: _containers.MessageMap[str, _tensor_pb2.Tensor]
    def __init__(self, observation: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
