"""Messages of ``robot_link.proto`` as the bridge's dataclasses. What does not fit is refused, not guessed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from landbridge.errors import InvalidArgument
from landbridge.v1 import robot_link_pb2 as pb
from robot_bridge.drivers.protocol import Audit, Capabilities, Episode, Judgement, Mode, ObjectPose, RobotState, Status

_MODES = {
    pb.ROBOT_MODE_IDLE: Mode.IDLE,
    pb.ROBOT_MODE_ACTIVE: Mode.ACTIVE,
    pb.ROBOT_MODE_HOLD: Mode.HOLD,
    pb.ROBOT_MODE_HOMING: Mode.HOMING,
    pb.ROBOT_MODE_STOPPED: Mode.STOPPED,
    pb.ROBOT_MODE_FAULT: Mode.FAULT,
}


def _array(values: Iterable[float], size: int | None, name: str) -> np.ndarray:
    array = np.array(list(values), np.float64)
    if size is not None and array.size != size:
        raise InvalidArgument(f"robot: {name} has {array.size} numbers, {size} were expected", field=name)
    array.setflags(write=False)
    return array


def mode(message: pb.LinkStatus) -> Mode:
    """INVALID_ARGUMENT for a mode this protocol does not have."""
    if message.mode not in _MODES:
        raise InvalidArgument(f"robot: mode {message.mode} is none of {sorted(_MODES)}", field="status.mode")
    return _MODES[message.mode]


def status(message: pb.LinkStatus) -> Status:
    """Mode, generation, episode."""
    return Status(mode(message), message.stop_generation, message.episode_id, message.reason)


def capabilities(message: pb.RobotCapabilities) -> Capabilities:
    """INVALID_ARGUMENT where the robot does not describe each of its joints, or its workspace."""
    joints = len(message.joint_names)
    kinds = (pb.CommandKind.Name(kind) for kind in message.command_kinds)
    return Capabilities(
        robot=message.robot,
        boot_id=message.boot_id,
        joint_names=tuple(message.joint_names),
        joint_lower=_array(message.joint_lower, joints, "joint_lower"),
        joint_upper=_array(message.joint_upper, joints, "joint_upper"),
        joint_max_velocity=_array(message.joint_max_velocity, joints, "joint_max_velocity"),
        workspace_low=_array(message.workspace_low, 3, "workspace_low"),
        workspace_high=_array(message.workspace_high, 3, "workspace_high"),
        max_tool_speed=message.max_tool_speed,
        max_tool_acceleration=message.max_tool_acceleration,
        max_gripper_width=message.max_gripper_width,
        max_gripper_speed=message.max_gripper_speed,
        state_rate_hz=message.state_rate_hz,
        max_command_rate_hz=message.max_command_rate_hz,
        watchdog=message.watchdog,
        frame=message.frame,
        command_kinds=tuple(kind.removeprefix("COMMAND_KIND_").lower() for kind in kinds),
        objects=tuple(message.objects),
        cameras=tuple(message.cameras),
    )


def robot_state(message: pb.LinkState, joints: int, clock_offset: float, received_at: float) -> RobotState:
    """``clock_offset`` is robot time minus local time."""
    objects = {
        item.name: ObjectPose(
            _array(item.position, 3, f"objects.{item.name}.position"),
            _array(item.rotation, 4, f"objects.{item.name}.rotation"),
        )
        for item in message.objects
    }
    goal = _array(message.goal_position, 3, "goal_position") if message.goal_position else None
    return RobotState(
        sequence=message.sequence,
        measured_at=message.robot_time - clock_offset,
        received_at=received_at,
        mode=mode(message.status),
        reason=message.status.reason,
        stop_generation=message.status.stop_generation,
        episode_id=message.status.episode_id,
        joint_position=_array(message.joint_position, joints, "joint_position"),
        joint_velocity=_array(message.joint_velocity, joints, "joint_velocity"),
        tool_position=_array(message.tool_position, 3, "tool_position"),
        tool_rotation=_array(message.tool_rotation, 4, "tool_rotation"),
        gripper_width=message.gripper_width,
        objects=objects,
        goal_position=goal,
        target_sequence=message.target_sequence,
        targets_dropped=message.targets_dropped,
    )


def episode(message: pb.ResetReply) -> Episode:
    """What a reset answered."""
    goal = _array(message.goal_position, 3, "goal_position")
    return Episode(message.episode_id, goal, message.status.stop_generation, message.took)


def judgement(message: pb.LinkJudgement, received_at: float) -> Judgement:
    """The referee's reading."""
    return Judgement(
        episode_id=message.episode_id,
        received_at=received_at,
        elapsed=message.elapsed,
        success=message.success,
        success_once=message.success_once,
        grasped=message.grasped,
        distance=message.distance,
        skeleton=_array(message.skeleton, None, "skeleton").reshape(-1, 3),
        cube_position=_array(message.cube_position, 3, "cube_position"),
        cube_rotation=_array(message.cube_rotation, 4, "cube_rotation"),
        goal_position=_array(message.goal_position, 3, "goal_position"),
        gripper_width=message.gripper_width,
    )


def audit(message: pb.Audit) -> Audit:
    """The robot's own account."""
    return Audit(dict(message.counters), dict(message.extremes))
