import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from landbridge.v1 import tensor_pb2 as _tensor_pb2
from landbridge.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcquireRolloutRequest(_message.Message):
    __slots__ = ("worker_id", "wait", "count")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    wait: _duration_pb2.Duration
    count: int
    def __init__(self, worker_id: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class AcquireRolloutResponse(_message.Message):
    __slots__ = ("tickets", "finished", "trained_version")
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_VERSION_FIELD_NUMBER: _ClassVar[int]
    tickets: _containers.RepeatedCompositeFieldContainer[RolloutTicket]
    finished: bool
    trained_version: int
    def __init__(self, tickets: _Optional[_Iterable[_Union[RolloutTicket, _Mapping]]] = ..., finished: _Optional[bool] = ..., trained_version: _Optional[int] = ...) -> None: ...

class RolloutTicket(_message.Message):
    __slots__ = ("id", "seed", "lease")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    id: str
    seed: int
    lease: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., seed: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseRolloutRequest(_message.Message):
    __slots__ = ("ticket", "reason")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ticket: str
    reason: str
    def __init__(self, ticket: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseRolloutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Trajectory(_message.Message):
    __slots__ = ("trajectory_id", "ticket", "worker_id", "observation", "trace", "log_prob", "actions", "rewards", "evaluated", "executed", "versions", "end", "success_once", "success_at_end", "seed", "episode_id")
    class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        END_UNSPECIFIED: _ClassVar[Trajectory.End]
        END_TERMINATED: _ClassVar[Trajectory.End]
        END_TRUNCATED: _ClassVar[Trajectory.End]
        END_ABANDONED: _ClassVar[Trajectory.End]
        END_CUT: _ClassVar[Trajectory.End]
    END_UNSPECIFIED: Trajectory.End
    END_TERMINATED: Trajectory.End
    END_TRUNCATED: Trajectory.End
    END_ABANDONED: Trajectory.End
    END_CUT: Trajectory.End
    class ObservationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    class TraceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
    TRAJECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_ONCE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_AT_END_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    trajectory_id: str
    ticket: str
    worker_id: str
    observation: _containers.MessageMap[str, _tensor_pb2.Tensor]
    trace: _containers.MessageMap[str, _tensor_pb2.Tensor]
    log_prob: _tensor_pb2.Tensor
    actions: _tensor_pb2.Tensor
    rewards: _tensor_pb2.Tensor
    evaluated: _tensor_pb2.Tensor
    executed: _tensor_pb2.Tensor
    versions: _tensor_pb2.Tensor
    end: Trajectory.End
    success_once: bool
    success_at_end: bool
    seed: int
    episode_id: str
    def __init__(self, trajectory_id: _Optional[str] = ..., ticket: _Optional[str] = ..., worker_id: _Optional[str] = ..., observation: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., trace: _Optional[_Mapping[str, _tensor_pb2.Tensor]] = ..., log_prob: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rewards: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., evaluated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., executed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., versions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., end: _Optional[_Union[Trajectory.End, str]] = ..., success_once: _Optional[bool] = ..., success_at_end: _Optional[bool] = ..., seed: _Optional[int] = ..., episode_id: _Optional[str] = ...) -> None: ...

class SubmitAcknowledgement(_message.Message):
    __slots__ = ("trajectory_id", "outcome", "message")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[SubmitAcknowledgement.Outcome]
        OUTCOME_STORED: _ClassVar[SubmitAcknowledgement.Outcome]
        OUTCOME_DUPLICATE: _ClassVar[SubmitAcknowledgement.Outcome]
        OUTCOME_REJECTED: _ClassVar[SubmitAcknowledgement.Outcome]
    OUTCOME_UNSPECIFIED: SubmitAcknowledgement.Outcome
    OUTCOME_STORED: SubmitAcknowledgement.Outcome
    OUTCOME_DUPLICATE: SubmitAcknowledgement.Outcome
    OUTCOME_REJECTED: SubmitAcknowledgement.Outcome
    TRAJECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    trajectory_id: str
    outcome: SubmitAcknowledgement.Outcome
    message: str
    def __init__(self, trajectory_id: _Optional[str] = ..., outcome: _Optional[_Union[SubmitAcknowledgement.Outcome, str]] = ..., message: _Optional[str] = ...) -> None: ...

class WatchWeightsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WeightsAnnouncement(_message.Message):
    __slots__ = ("version", "update")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    version: int
    update: int
    def __init__(self, version: _Optional[int] = ..., update: _Optional[int] = ...) -> None: ...

class GetWeightsRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetWeightsResponse(_message.Message):
    __slots__ = ("manifest", "bucket")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    manifest: _weights_pb2.WeightsManifest
    bucket: _weights_pb2.WeightsBucket
    def __init__(self, manifest: _Optional[_Union[_weights_pb2.WeightsManifest, _Mapping]] = ..., bucket: _Optional[_Union[_weights_pb2.WeightsBucket, _Mapping]] = ...) -> None: ...

class GetLearnerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LearnerStatus(_message.Message):
    __slots__ = ("updates", "version", "running_tickets", "accepted", "buffered", "trained", "dropped", "env_steps", "paused", "finished", "staleness_histogram", "instance_id", "last")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TICKETS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ENV_STEPS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    STALENESS_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    updates: int
    version: int
    running_tickets: int
    accepted: int
    buffered: int
    trained: int
    dropped: _containers.ScalarMap[str, int]
    env_steps: int
    paused: bool
    finished: bool
    staleness_histogram: _containers.RepeatedScalarFieldContainer[int]
    instance_id: str
    last: UpdateReport
    def __init__(self, updates: _Optional[int] = ..., version: _Optional[int] = ..., running_tickets: _Optional[int] = ..., accepted: _Optional[int] = ..., buffered: _Optional[int] = ..., trained: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., env_steps: _Optional[int] = ..., paused: _Optional[bool] = ..., finished: _Optional[bool] = ..., staleness_histogram: _Optional[_Iterable[int]] = ..., instance_id: _Optional[str] = ..., last: _Optional[_Union[UpdateReport, _Mapping]] = ...) -> None: ...

class StreamMetricsRequest(_message.Message):
    __slots__ = ("from_update",)
    FROM_UPDATE_FIELD_NUMBER: _ClassVar[int]
    from_update: int
    def __init__(self, from_update: _Optional[int] = ...) -> None: ...

class UpdateReport(_message.Message):
    __slots__ = ("update", "version", "seconds_since_start", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SECONDS_SINCE_START_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    update: int
    version: int
    seconds_since_start: float
    values: _containers.ScalarMap[str, float]
    def __init__(self, update: _Optional[int] = ..., version: _Optional[int] = ..., seconds_since_start: _Optional[float] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PauseLearnerRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: _duration_pb2.Duration
    def __init__(self, lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PauseLearnerResponse(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class ResumeLearnerRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class ResumeLearnerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...
