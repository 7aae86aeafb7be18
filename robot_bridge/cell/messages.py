"""The cell's readings as messages of ``robot_link.proto``."""

from __future__ import annotations

from landbridge.v1 import robot_link_pb2 as pb
from robot_bridge.cell.config import CellConfig, LinkConfig
from robot_bridge.cell.model import ARM_JOINTS, JOINT_LOWER, JOINT_MAX_VELOCITY, JOINT_UPPER, MAX_WIDTH
from robot_bridge.cell.sensing import Reading
from robot_bridge.cell.simulation import Verdict

_MAX_COMMAND_RATE = 100.0


def state(reading: Reading) -> pb.LinkState:
    """What was measured; the caller adds what the link knows."""
    return pb.LinkState(
        joint_position=reading.joint_position.tolist(),
        joint_velocity=reading.joint_velocity.tolist(),
        tool_position=reading.tool_position.tolist(),
        tool_rotation=reading.tool_rotation.tolist(),
        gripper_width=reading.gripper_width,
        objects=[
            pb.ObjectReading(
                name="cube", position=reading.cube_position.tolist(), rotation=reading.cube_rotation.tolist()
            )
        ],
        goal_position=reading.goal_position.tolist(),
    )


def judgement(verdict: Verdict) -> pb.LinkJudgement:
    """The referee's view; the caller adds what the link knows."""
    return pb.LinkJudgement(
        elapsed=verdict.elapsed,
        success=verdict.success,
        success_once=verdict.success_once,
        grasped=verdict.grasped,
        distance=verdict.distance,
        skeleton=verdict.skeleton.ravel().tolist(),
        cube_position=verdict.cube_position.tolist(),
        cube_rotation=verdict.cube_rotation.tolist(),
        goal_position=verdict.goal_position.tolist(),
        gripper_width=verdict.gripper_width,
    )


def capabilities(cell: CellConfig, link: LinkConfig, boot_id: str) -> pb.RobotCapabilities:
    """What this robot is and can do."""
    return pb.RobotCapabilities(
        robot="franka-panda",
        boot_id=boot_id,
        joint_names=[f"joint{index + 1}" for index in range(ARM_JOINTS)],
        joint_lower=JOINT_LOWER.tolist(),
        joint_upper=JOINT_UPPER.tolist(),
        joint_max_velocity=JOINT_MAX_VELOCITY.tolist(),
        workspace_low=cell.workspace_low,
        workspace_high=cell.workspace_high,
        max_tool_speed=cell.max_speed,
        max_tool_acceleration=cell.max_acceleration,
        max_gripper_width=MAX_WIDTH,
        max_gripper_speed=cell.max_gripper_speed,
        state_rate_hz=link.state_rate_hz,
        max_command_rate_hz=_MAX_COMMAND_RATE,
        watchdog=link.watchdog,
        command_kinds=[pb.COMMAND_KIND_TOOL_POSITION],
        frame="base",
        objects=["cube"],
    )
