"""The contract all table-top Panda tasks of ManiSkill share here: 24 measured numbers, 4 commanded ones."""

from __future__ import annotations

from landbridge.contract import Contract, DeltaReference, Quantity, Rotation, Segment, TensorSpec, Unit

CONTROL_RATE = 20.0
MAX_WIDTH = 0.08
"""Opening width of the open gripper, metres."""
STATE_SIZE, PRIVILEGED_SIZE = 24, 9

_Q = Quantity
_STATE = (
    Segment("qpos", 0, 7, _Q.JOINT_POSITION, Unit.RADIAN),
    Segment("qvel", 7, 7, _Q.JOINT_VELOCITY, Unit.RADIAN_PER_SECOND),
    Segment("tcp_position", 14, 3, _Q.EE_POSITION, Unit.METRE, "base"),
    Segment("gripper_width", 17, 1, _Q.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=MAX_WIDTH),
    Segment("cube_position", 18, 3, _Q.OBJECT_POSITION, Unit.METRE, "base"),
    Segment("goal_position", 21, 3, _Q.GOAL_POSITION, Unit.METRE, "base"),
)
_PRIVILEGED = (
    Segment("is_grasped", 0, 1, _Q.FLAG),
    Segment("cube_rotation", 1, 4, _Q.OBJECT_ROTATION, frame="world", rotation=Rotation.QUATERNION_WXYZ),
    Segment("cube_velocity", 5, 3, _Q.OTHER, Unit.METRE_PER_SECOND, "world"),
    Segment("elapsed_fraction", 8, 1, _Q.OTHER),
)


def contract_for(task: str, instruction: str, action_limit: float) -> Contract:
    """The contract of ``task``; a displacement is bounded by ``action_limit`` metres an axis and step."""
    displacement = Segment(
        "tcp_displacement",
        0,
        3,
        _Q.EE_POSITION_DELTA,
        Unit.METRE,
        "base",
        delta_reference=DeltaReference.MEASURED,
    )
    width = Segment("gripper_width", 3, 1, _Q.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=MAX_WIDTH)
    return Contract(
        observation=(
            TensorSpec("state", (STATE_SIZE,), segments=_STATE, description="What the robot can measure."),
            TensorSpec(
                "privileged",
                (PRIVILEGED_SIZE,),
                privileged=True,
                segments=_PRIVILEGED,
                description="For a critic only: contact when last evaluated, true cube motion, share of the time used.",
            ),
        ),
        action=TensorSpec(
            "action",
            (4,),
            low=(-action_limit, -action_limit, -action_limit, 0.0),
            high=(action_limit, action_limit, action_limit, MAX_WIDTH),
            segments=(displacement, width),
        ),
        control_rate_hz=CONTROL_RATE,
        task=task,
        embodiment="panda",
        instruction=instruction,
        notes=("The tool's rotation is held; a displacement is a target that a PD drive approaches.",),
    )
