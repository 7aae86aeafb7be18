from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommandKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMAND_KIND_UNSPECIFIED: _ClassVar[CommandKind]
    COMMAND_KIND_TOOL_POSITION: _ClassVar[CommandKind]

class RobotMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROBOT_MODE_UNSPECIFIED: _ClassVar[RobotMode]
    ROBOT_MODE_IDLE: _ClassVar[RobotMode]
    ROBOT_MODE_ACTIVE: _ClassVar[RobotMode]
    ROBOT_MODE_HOLD: _ClassVar[RobotMode]
    ROBOT_MODE_HOMING: _ClassVar[RobotMode]
    ROBOT_MODE_STOPPED: _ClassVar[RobotMode]
    ROBOT_MODE_FAULT: _ClassVar[RobotMode]
COMMAND_KIND_UNSPECIFIED: CommandKind
COMMAND_KIND_TOOL_POSITION: CommandKind
ROBOT_MODE_UNSPECIFIED: RobotMode
ROBOT_MODE_IDLE: RobotMode
ROBOT_MODE_ACTIVE: RobotMode
ROBOT_MODE_HOLD: RobotMode
ROBOT_MODE_HOMING: RobotMode
ROBOT_MODE_STOPPED: RobotMode
ROBOT_MODE_FAULT: RobotMode

class LinkCommand(_message.Message):
    __slots__ = ("request_id", "session_id", "hello", "time_sync", "arm", "reset", "target", "stop", "clear", "audit", "goodbye")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TIME_SYNC_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    session_id: str
    hello: Hello
    time_sync: TimeSync
    arm: ArmRobot
    reset: ResetEpisode
    target: SetTarget
    stop: StopRobot
    clear: ClearStop
    audit: GetAudit
    goodbye: Goodbye
    def __init__(self, request_id: _Optional[int] = ..., session_id: _Optional[str] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., time_sync: _Optional[_Union[TimeSync, _Mapping]] = ..., arm: _Optional[_Union[ArmRobot, _Mapping]] = ..., reset: _Optional[_Union[ResetEpisode, _Mapping]] = ..., target: _Optional[_Union[SetTarget, _Mapping]] = ..., stop: _Optional[_Union[StopRobot, _Mapping]] = ..., clear: _Optional[_Union[ClearStop, _Mapping]] = ..., audit: _Optional[_Union[GetAudit, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class LinkReply(_message.Message):
    __slots__ = ("request_id", "error", "hello", "time_sync", "status", "reset", "audit")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TIME_SYNC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: LinkError
    hello: HelloReply
    time_sync: TimeSyncReply
    status: LinkStatus
    reset: ResetReply
    audit: Audit
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[LinkError, _Mapping]] = ..., hello: _Optional[_Union[HelloReply, _Mapping]] = ..., time_sync: _Optional[_Union[TimeSyncReply, _Mapping]] = ..., status: _Optional[_Union[LinkStatus, _Mapping]] = ..., reset: _Optional[_Union[ResetReply, _Mapping]] = ..., audit: _Optional[_Union[Audit, _Mapping]] = ...) -> None: ...

class LinkError(_message.Message):
    __slots__ = ("code", "message", "retry_after")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    retry_after: float
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., retry_after: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "client")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    client: str
    def __init__(self, protocol_version: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("session_id", "lease", "capabilities", "status")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    lease: float
    capabilities: RobotCapabilities
    status: LinkStatus
    def __init__(self, session_id: _Optional[str] = ..., lease: _Optional[float] = ..., capabilities: _Optional[_Union[RobotCapabilities, _Mapping]] = ..., status: _Optional[_Union[LinkStatus, _Mapping]] = ...) -> None: ...

class RobotCapabilities(_message.Message):
    __slots__ = ("robot", "boot_id", "joint_names", "joint_lower", "joint_upper", "joint_max_velocity", "workspace_low", "workspace_high", "max_tool_speed", "max_tool_acceleration", "max_gripper_width", "max_gripper_speed", "state_rate_hz", "max_command_rate_hz", "watchdog", "command_kinds", "frame", "objects", "cameras")
    ROBOT_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    JOINT_NAMES_FIELD_NUMBER: _ClassVar[int]
    JOINT_LOWER_FIELD_NUMBER: _ClassVar[int]
    JOINT_UPPER_FIELD_NUMBER: _ClassVar[int]
    JOINT_MAX_VELOCITY_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_LOW_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_HIGH_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_SPEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_ACCELERATION_FIELD_NUMBER: _ClassVar[int]
    MAX_GRIPPER_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_GRIPPER_SPEED_FIELD_NUMBER: _ClassVar[int]
    STATE_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    MAX_COMMAND_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    WATCHDOG_FIELD_NUMBER: _ClassVar[int]
    COMMAND_KINDS_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    CAMERAS_FIELD_NUMBER: _ClassVar[int]
    robot: str
    boot_id: str
    joint_names: _containers.RepeatedScalarFieldContainer[str]
    joint_lower: _containers.RepeatedScalarFieldContainer[float]
    joint_upper: _containers.RepeatedScalarFieldContainer[float]
    joint_max_velocity: _containers.RepeatedScalarFieldContainer[float]
    workspace_low: _containers.RepeatedScalarFieldContainer[float]
    workspace_high: _containers.RepeatedScalarFieldContainer[float]
    max_tool_speed: float
    max_tool_acceleration: float
    max_gripper_width: float
    max_gripper_speed: float
    state_rate_hz: float
    max_command_rate_hz: float
    watchdog: float
    command_kinds: _containers.RepeatedScalarFieldContainer[CommandKind]
    frame: str
    objects: _containers.RepeatedScalarFieldContainer[str]
    cameras: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, robot: _Optional[str] = ..., boot_id: _Optional[str] = ..., joint_names: _Optional[_Iterable[str]] = ..., joint_lower: _Optional[_Iterable[float]] = ..., joint_upper: _Optional[_Iterable[float]] = ..., joint_max_velocity: _Optional[_Iterable[float]] = ..., workspace_low: _Optional[_Iterable[float]] = ..., workspace_high: _Optional[_Iterable[float]] = ..., max_tool_speed: _Optional[float] = ..., max_tool_acceleration: _Optional[float] = ..., max_gripper_width: _Optional[float] = ..., max_gripper_speed: _Optional[float] = ..., state_rate_hz: _Optional[float] = ..., max_command_rate_hz: _Optional[float] = ..., watchdog: _Optional[float] = ..., command_kinds: _Optional[_Iterable[_Union[CommandKind, str]]] = ..., frame: _Optional[str] = ..., objects: _Optional[_Iterable[str]] = ..., cameras: _Optional[_Iterable[str]] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("mode", "stop_generation", "episode_id", "reason")
    MODE_FIELD_NUMBER: _ClassVar[int]
    STOP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    mode: RobotMode
    stop_generation: int
    episode_id: int
    reason: str
    def __init__(self, mode: _Optional[_Union[RobotMode, str]] = ..., stop_generation: _Optional[int] = ..., episode_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TimeSync(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TimeSyncReply(_message.Message):
    __slots__ = ("robot_time",)
    ROBOT_TIME_FIELD_NUMBER: _ClassVar[int]
    robot_time: float
    def __init__(self, robot_time: _Optional[float] = ...) -> None: ...

class ArmRobot(_message.Message):
    __slots__ = ("stop_generation",)
    STOP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    stop_generation: int
    def __init__(self, stop_generation: _Optional[int] = ...) -> None: ...

class ResetEpisode(_message.Message):
    __slots__ = ("seed",)
    SEED_FIELD_NUMBER: _ClassVar[int]
    seed: int
    def __init__(self, seed: _Optional[int] = ...) -> None: ...

class ResetReply(_message.Message):
    __slots__ = ("episode_id", "goal_position", "took", "status")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    TOOK_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    episode_id: int
    goal_position: _containers.RepeatedScalarFieldContainer[float]
    took: float
    status: LinkStatus
    def __init__(self, episode_id: _Optional[int] = ..., goal_position: _Optional[_Iterable[float]] = ..., took: _Optional[float] = ..., status: _Optional[_Union[LinkStatus, _Mapping]] = ...) -> None: ...

class SetTarget(_message.Message):
    __slots__ = ("sequence", "episode_id", "stop_generation", "expires_at", "position", "gripper_width")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_WIDTH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    episode_id: int
    stop_generation: int
    expires_at: float
    position: _containers.RepeatedScalarFieldContainer[float]
    gripper_width: float
    def __init__(self, sequence: _Optional[int] = ..., episode_id: _Optional[int] = ..., stop_generation: _Optional[int] = ..., expires_at: _Optional[float] = ..., position: _Optional[_Iterable[float]] = ..., gripper_width: _Optional[float] = ...) -> None: ...

class StopRobot(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ClearStop(_message.Message):
    __slots__ = ("stop_generation",)
    STOP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    stop_generation: int
    def __init__(self, stop_generation: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAudit(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Audit(_message.Message):
    __slots__ = ("counters", "extremes")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ExtremesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    EXTREMES_FIELD_NUMBER: _ClassVar[int]
    counters: _containers.ScalarMap[str, int]
    extremes: _containers.ScalarMap[str, float]
    def __init__(self, counters: _Optional[_Mapping[str, int]] = ..., extremes: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ObjectReading(_message.Message):
    __slots__ = ("name", "position", "rotation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    position: _containers.RepeatedScalarFieldContainer[float]
    rotation: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., position: _Optional[_Iterable[float]] = ..., rotation: _Optional[_Iterable[float]] = ...) -> None: ...

class LinkState(_message.Message):
    __slots__ = ("boot_id", "sequence", "robot_time", "status", "joint_position", "joint_velocity", "tool_position", "tool_rotation", "gripper_width", "objects", "goal_position", "target_sequence", "targets_dropped")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ROBOT_TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    JOINT_POSITION_FIELD_NUMBER: _ClassVar[int]
    JOINT_VELOCITY_FIELD_NUMBER: _ClassVar[int]
    TOOL_POSITION_FIELD_NUMBER: _ClassVar[int]
    TOOL_ROTATION_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_WIDTH_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    GOAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    sequence: int
    robot_time: float
    status: LinkStatus
    joint_position: _containers.RepeatedScalarFieldContainer[float]
    joint_velocity: _containers.RepeatedScalarFieldContainer[float]
    tool_position: _containers.RepeatedScalarFieldContainer[float]
    tool_rotation: _containers.RepeatedScalarFieldContainer[float]
    gripper_width: float
    objects: _containers.RepeatedCompositeFieldContainer[ObjectReading]
    goal_position: _containers.RepeatedScalarFieldContainer[float]
    target_sequence: int
    targets_dropped: int
    def __init__(self, boot_id: _Optional[str] = ..., sequence: _Optional[int] = ..., robot_time: _Optional[float] = ..., status: _Optional[_Union[LinkStatus, _Mapping]] = ..., joint_position: _Optional[_Iterable[float]] = ..., joint_velocity: _Optional[_Iterable[float]] = ..., tool_position: _Optional[_Iterable[float]] = ..., tool_rotation: _Optional[_Iterable[float]] = ..., gripper_width: _Optional[float] = ..., objects: _Optional[_Iterable[_Union[ObjectReading, _Mapping]]] = ..., goal_position: _Optional[_Iterable[float]] = ..., target_sequence: _Optional[int] = ..., targets_dropped: _Optional[int] = ...) -> None: ...

class LinkJudgement(_message.Message):
    __slots__ = ("boot_id", "episode_id", "robot_time", "elapsed", "success", "success_once", "grasped", "distance", "skeleton", "cube_position", "cube_rotation", "goal_position", "gripper_width")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_TIME_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_ONCE_FIELD_NUMBER: _ClassVar[int]
    GRASPED_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SKELETON_FIELD_NUMBER: _ClassVar[int]
    CUBE_POSITION_FIELD_NUMBER: _ClassVar[int]
    CUBE_ROTATION_FIELD_NUMBER: _ClassVar[int]
    GOAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_WIDTH_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    episode_id: int
    robot_time: float
    elapsed: float
    success: bool
    success_once: bool
    grasped: bool
    distance: float
    skeleton: _containers.RepeatedScalarFieldContainer[float]
    cube_position: _containers.RepeatedScalarFieldContainer[float]
    cube_rotation: _containers.RepeatedScalarFieldContainer[float]
    goal_position: _containers.RepeatedScalarFieldContainer[float]
    gripper_width: float
    def __init__(self, boot_id: _Optional[str] = ..., episode_id: _Optional[int] = ..., robot_time: _Optional[float] = ..., elapsed: _Optional[float] = ..., success: _Optional[bool] = ..., success_once: _Optional[bool] = ..., grasped: _Optional[bool] = ..., distance: _Optional[float] = ..., skeleton: _Optional[_Iterable[float]] = ..., cube_position: _Optional[_Iterable[float]] = ..., cube_rotation: _Optional[_Iterable[float]] = ..., goal_position: _Optional[_Iterable[float]] = ..., gripper_width: _Optional[float] = ...) -> None: ...
