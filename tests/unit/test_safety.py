"""The safety layer: each check, in its order; modes that latch; nothing that leaves lies outside the limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from landbridge.errors import FailedPrecondition
from robot_bridge.drivers.protocol import Capabilities, Mode, ObjectPose, RobotState
from robot_bridge.limits import Limits, SafetyConfig
from robot_bridge.safety import Command, Refused, SafetyLayer, SafetyMode

CAPABILITIES = Capabilities(
    robot="panda",
    boot_id="b",
    joint_names=tuple(f"joint{i}" for i in range(1, 8)),
    joint_lower=np.full(7, -2.8),
    joint_upper=np.full(7, 2.8),
    joint_max_velocity=np.full(7, 2.0),
    workspace_low=np.array([0.3, -0.4, 0.01]),
    workspace_high=np.array([0.8, 0.4, 0.6]),
    max_tool_speed=0.7,
    max_tool_acceleration=8.0,
    max_gripper_width=0.08,
    max_gripper_speed=0.3,
    state_rate_hz=100.0,
    max_command_rate_hz=100.0,
    watchdog=0.25,
    frame="base",
    command_kinds=("tool_position",),
    objects=("cube",),
    cameras=(),
)
CONFIG = SafetyConfig()
NOW = 100.0
OK = np.array([0.01, 0.0, -0.01, 0.04])


def layer(armed=True):
    made = SafetyLayer(Limits.of(CAPABILITIES, CONFIG), CONFIG)
    if armed:
        made.arm(clear_stop=False, clear_fault=False)
    return made


def state(**changes):
    values = {
        "sequence": 1,
        "measured_at": NOW - 0.01,
        "received_at": NOW,
        "mode": Mode.ACTIVE,
        "reason": "",
        "stop_generation": 0,
        "episode_id": 7,
        "joint_position": np.zeros(7),
        "joint_velocity": np.zeros(7),
        "tool_position": np.array([0.6, 0.0, 0.2]),
        "tool_rotation": np.array([1.0, 0, 0, 0]),
        "gripper_width": 0.08,
        "objects": {"cube": ObjectPose(np.zeros(3), np.array([1.0, 0, 0, 0]))},
        "goal_position": np.zeros(3),
        "target_sequence": 0,
        "targets_dropped": 0,
    }
    return RobotState(**(values | changes))


def command(made, action=OK, **changes):
    values = {"action": action, "episode_id": 7, "generation": made.generation, "observed_at": NOW - 0.05}
    return Command(**(values | changes))


def refused(made, check, robot=None, **changes):
    with pytest.raises(Refused) as caught:
        made.check(command(made, **changes), robot or state(), NOW)
    assert caught.value.check == check
    assert made.recent[-2].check == check and made.recent[-2].outcome == "refused"
    return caught.value


def test_a_good_command_passes_unchanged_and_is_counted():
    made = layer()
    passed = made.check(command(made), state(), NOW)
    np.testing.assert_allclose(passed.position, [0.61, 0.0, 0.19])
    assert passed.gripper_width == 0.04 and passed.changes == () and made.counts["command/passed"] == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(4))
def test_finite(bad, place):
    action = OK.copy()
    action[place] = bad
    made = layer()
    refused(made, "finite", action=action)
    assert made.mode is SafetyMode.HOLD


@pytest.mark.parametrize("action", [np.zeros(3), np.zeros(5), np.zeros((1, 4)), np.zeros(0)])
def test_shape(action):
    refused(layer(), "shape", action=action)


@pytest.mark.parametrize(
    ("changes", "robot"),
    [
        ({"episode_id": 6}, {}),
        ({"generation": 0}, {}),
        ({"observed_at": NOW - CONFIG.max_chunk_age - 0.01}, {}),
        ({}, {"measured_at": NOW - CONFIG.max_state_age - 0.01}),
    ],
    ids=["old episode", "before an arming", "old observation", "frozen robot state"],
)
def test_freshness(changes, robot):
    made = layer()
    refused(made, "freshness", state(**robot), **changes)
    assert made.mode is SafetyMode.HOLD


def test_workspace_brings_near_targets_back_and_says_so():
    made = layer()
    robot = state(tool_position=np.array([0.6, 0.0, 0.03]))
    passed = made.check(command(made, np.array([0.0, 0.0, -0.05, 0.0])), robot, NOW)
    np.testing.assert_allclose(passed.position, [0.6, 0.0, 0.01])
    (change,) = passed.changes
    assert change.startswith("workspace")
    decision = made.recent[-1]
    assert decision.outcome == "limited" and decision.asked[2] == pytest.approx(-0.02) and decision.done[2] == 0.01


def test_workspace_refuses_what_is_far_outside():
    made = layer()
    robot = state(tool_position=np.array([0.78, 0.0, 0.2]))
    refused(made, "workspace", robot, action=np.array([0.2, 0.0, 0.0, 0.0]))


def test_joints_near_their_limits_hold_the_robot():
    position = np.zeros(7)
    position[3] = 2.8 - CONFIG.joint_margin + 0.001
    assert "joint 4" in refused(layer(), "joint", state(joint_position=position)).message


def test_velocity_a_robot_faster_than_its_limit_is_held():
    velocity = np.zeros(7)
    velocity[1] = 2.5
    assert "joint 2" in refused(layer(), "velocity", state(joint_velocity=velocity)).message


def test_velocity_long_ways_are_shortened_in_their_direction():
    made = layer()
    passed = made.check(command(made, np.array([0.0, 0.2, 0.15, 0.0])), state(), NOW)
    way = passed.position - np.array([0.6, 0.0, 0.2])
    assert np.linalg.norm(way) == pytest.approx(made.limits.max_lead)
    np.testing.assert_allclose(way / np.linalg.norm(way), [0.0, 0.8, 0.6])
    assert passed.changes[0].startswith("velocity")


def test_a_disarmed_robot_takes_no_command():
    refused(layer(armed=False), "session")


def test_checks_come_in_their_order():
    """A command that is wrong in every way is refused for the first reason, and so on down the chain."""
    velocity, position = np.full(7, 9.0), np.full(7, 2.8)
    far = np.array([0.5, 0.0, 0.0, 0.0])
    wrong = {"joint_velocity": velocity, "joint_position": position}
    refused(layer(), "finite", state(**wrong), action=far * math.nan, episode_id=1)
    refused(layer(), "shape", state(**wrong), action=np.zeros(2), episode_id=1)
    refused(layer(), "freshness", state(**wrong), action=far, episode_id=1)
    refused(layer(), "workspace", state(**wrong), action=far)
    refused(layer(), "joint", state(**wrong))
    refused(layer(), "velocity", state(joint_velocity=velocity))


def test_hold_latches_until_armed_and_voids_what_was_issued_before():
    made = layer()
    before = command(made)
    made.hold("watchdog", "no command for 0.3 s", NOW)
    with pytest.raises(Refused, match="watchdog"):
        made.check(before, state(), NOW)
    made.arm(clear_stop=False, clear_fault=False)
    with pytest.raises(Refused, match="issued before"):
        made.check(before, state(), NOW)
    made.arm(clear_stop=False, clear_fault=False)
    assert made.check(command(made), state(), NOW)


def test_an_emergency_stop_latches_over_everything_and_needs_to_be_cleared_in_so_many_words():
    made = layer()
    before = command(made)
    made.fault("driver lost", NOW)
    made.stop("operator", NOW)
    made.hold("watchdog", "later", NOW)
    made.fault("later still", NOW)
    assert made.mode is SafetyMode.STOPPED and "operator" in made.reason
    for words in ({"clear_stop": False, "clear_fault": True}, {"clear_stop": False, "clear_fault": False}):
        with pytest.raises(FailedPrecondition, match="emergency stop"):
            made.arm(**words)
    made.arm(clear_stop=True, clear_fault=False)
    with pytest.raises(Refused, match="issued before"):
        made.check(before, state(), NOW)


def test_a_fault_needs_to_be_cleared_and_is_not_weakened_by_a_hold():
    made = layer()
    made.fault("driver lost", NOW)
    made.hold("watchdog", "later", NOW)
    assert made.mode is SafetyMode.FAULT
    with pytest.raises(FailedPrecondition, match="fault is in force"):
        made.arm(clear_stop=True, clear_fault=False)
    made.arm(clear_stop=False, clear_fault=True)
    assert made.mode is SafetyMode.ARMED


def test_disarming_does_not_lift_a_stop():
    made = layer()
    made.stop("operator", NOW)
    made.disarm()
    assert made.mode is SafetyMode.STOPPED


@settings(max_examples=400, deadline=None)
@given(
    action=hnp.arrays(np.float64, 4, elements=st.floats(-1e6, 1e6) | st.floats(allow_nan=True, allow_infinity=True)),
    tool=hnp.arrays(np.float64, 3, elements=st.floats(-0.2, 1.0)),
)
def test_nothing_that_leaves_lies_outside_the_limits(action, tool):
    made = layer()
    try:
        passed = made.check(command(made, action), state(tool_position=tool), NOW)
    except Refused:
        assert made.mode is SafetyMode.HOLD
        return
    limits = made.limits
    assert np.isfinite(passed.position).all()
    assert np.linalg.norm(passed.position - tool) <= limits.max_lead + 1e-9
    assert 0.0 <= passed.gripper_width <= limits.max_gripper_width
    inside = (tool >= limits.workspace_low).all() and (tool <= limits.workspace_high).all()
    if inside:  # from outside, a shortened way back may not yet reach the box
        assert (passed.position >= limits.workspace_low - 1e-9).all()
        assert (passed.position <= limits.workspace_high + 1e-9).all()


def test_limits_are_the_tighter_of_robot_and_installation():
    limits = Limits.of(CAPABILITIES, SafetyConfig(workspace_high=(0.7, 0.9, 0.9), max_tool_speed=5.0))
    np.testing.assert_allclose(limits.workspace_high, [0.7, 0.4, 0.6])
    assert limits.max_tool_speed == 0.7
    with pytest.raises(FailedPrecondition, match="no workspace is left"):
        Limits.of(CAPABILITIES, SafetyConfig(workspace_low=(0.9, 0, 0)))
