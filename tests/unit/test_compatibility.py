"""May this policy drive that environment? One test a rule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from landbridge.compatibility import _FLOATS, _WHOLE, Report, _exact, check
from landbridge.contract import (
    Contract,
    DeltaReference,
    ImageLayout,
    Quantity,
    Rotation,
    Segment,
    TensorSpec,
    Unit,
)
from landbridge.errors import FailedPrecondition, InvalidArgument

QPOS = Segment("qpos", 0, 7, Quantity.JOINT_POSITION, Unit.RADIAN)
TCP = Segment("tcp_position", 7, 3, Quantity.EE_POSITION, Unit.METRE, "base")
TCP_ROTATION = Segment("tcp_rotation", 10, 4, Quantity.EE_ROTATION, Unit.NONE, "base", Rotation.QUATERNION_WXYZ)
MOVE = Segment("move", 0, 3, Quantity.EE_POSITION_DELTA, Unit.METRE, "base", delta_reference=DeltaReference.MEASURED)
GRIP = Segment("gripper", 3, 1, Quantity.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=0.08)

STATE = TensorSpec("state", (14,), segments=(QPOS, TCP, TCP_ROTATION))
CAMERA = TensorSpec("camera", (8, 8, 3), "uint8", (0,), (255,), image=ImageLayout(camera="wrist"))
ACTION = TensorSpec("action", (4,), low=(-0.1, -0.1, -0.1, 0.0), high=(0.1, 0.1, 0.1, 0.08), segments=(MOVE, GRIP))
CONTRACT = Contract((STATE, CAMERA), ACTION, 20.0, task="PickCube", embodiment="panda")


def observing(*specs: TensorSpec, **changes: Any) -> Contract:
    return replace(CONTRACT, observation=specs, **changes)


def with_segment(spec: TensorSpec, name: str, **changes: Any) -> TensorSpec:
    return replace(spec, segments=tuple(replace(s, **changes) if s.name == name else s for s in spec.segments))


def state(name: str, **changes: Any) -> Contract:
    return observing(with_segment(STATE, name, **changes), CAMERA)


def camera(**changes: Any) -> Contract:
    return observing(STATE, replace(CAMERA, image=replace(CAMERA.image, **changes)))


def action(name: str, **changes: Any) -> Contract:
    return replace(CONTRACT, action=with_segment(ACTION, name, **changes))


def rules(report: Report) -> list[str]:
    return [problem.rule for problem in report.problems]


@pytest.mark.parametrize("kind", ["simulator", "robot"])
def test_equal_contracts_fit_and_nothing_is_converted(kind: Any) -> None:
    report = check(CONTRACT, CONTRACT, kind)
    assert report.ok and not report.conversions and not report.notes
    seen = {"state": np.zeros((2, 14), np.float32), "camera": np.zeros((2, 8, 8, 3), np.uint8)}
    assert report.adapter().observation(seen)["state"] is seen["state"], "nothing to change: nothing copied"


DIFFERENCES = {
    "flipped gripper": (action("gripper", gripper_closed=0.08, gripper_open=0.0), "gripper"),
    "gripper opening of another scale": (action("gripper", gripper_open=1.0), "gripper"),
    "gripper ends not stated": (action("gripper", gripper_closed=None, gripper_open=None), "gripper"),
    "quaternion xyzw for wxyz": (state("tcp_rotation", rotation=Rotation.QUATERNION_XYZW), "rotation"),
    "degrees for radians": (state("qpos", unit=Unit.DEGREE), "unit"),
    "millimetres for metres": (state("tcp_position", unit=Unit.MILLIMETRE), "unit"),
    "millimetres in the action": (action("move", unit=Unit.MILLIMETRE), "unit"),
    "world frame for base frame": (state("tcp_position", frame="world"), "frame"),
    "tool frame in the action": (action("move", frame="tool"), "frame"),
    "delta from the commanded pose": (action("move", delta_reference=DeltaReference.COMMANDED), "delta_reference"),
    "another quantity of the same unit": (state("tcp_position", quantity=Quantity.OBJECT_POSITION), "quantity"),
    "half the control rate": (replace(CONTRACT, control_rate_hz=10.0), "rate"),
    "upside-down picture": (camera(upright=False), "orientation"),
    "BGR picture": (camera(colour="BGR"), "colour"),
    "CHW picture": (camera(axes="CHW"), "axes"),
    "another camera": (camera(camera="front"), "camera"),
    "floats for bytes in a picture": (observing(STATE, replace(CAMERA, dtype="float32")), "dtype"),
    "picture in 0..1": (observing(STATE, replace(CAMERA, high=(1,))), "range"),
    "numbers for a picture": (observing(STATE, replace(CAMERA, image=None)), "image"),
    "larger picture": (observing(STATE, replace(CAMERA, shape=(16, 16, 3))), "shape"),
    "missing observation": (observing(STATE), "missing"),
    "misnamed observation": (observing(STATE, replace(CAMERA, name="camera0")), "missing"),
    "missing segment": (observing(replace(STATE, shape=(10,), segments=(QPOS, TCP)), CAMERA), "missing"),
    "narrower dtype": (observing(replace(STATE, dtype="float64"), CAMERA), "dtype"),
    "no stated meaning": (observing(replace(STATE, segments=()), CAMERA), "meaning"),
    "action nobody commands": (
        replace(CONTRACT, action=TensorSpec("a", (5,), segments=(*ACTION.segments, replace(TCP, start=4, size=1)))),
        "missing",
    ),
    "another arm's joints": (replace(CONTRACT, embodiment="ur5"), "embodiment"),
}


@pytest.mark.parametrize("kind", ["simulator", "robot"])
@pytest.mark.parametrize(("env", "rule"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_difference_in_meaning_is_refused_and_named(env: Contract, rule: str, kind: Any) -> None:
    report = check(CONTRACT, env, kind)
    assert set(rules(report)) == {rule}
    with pytest.raises(FailedPrecondition, match="expects"):
        report.adapter()


def test_a_problem_says_what_was_expected_what_came_and_what_to_do() -> None:
    report = check(CONTRACT, action("gripper", gripper_closed=0.08, gripper_open=0.0), "robot")
    assert str(report.problems[0]) == (
        "action, segment 'gripper': the policy expects closed 0.0 and open 0.08, the environment has closed 0.08, "
        "open 0.0; the polarity is flipped: mend the contract that is wrong"
    )


def test_every_problem_is_listed_not_only_the_first() -> None:
    env = replace(action("gripper", gripper_closed=0.08, gripper_open=0.0), control_rate_hz=10.0)
    report = check(CONTRACT, env, "robot")
    assert rules(report) == ["gripper", "rate"]
    with pytest.raises(FailedPrecondition, match=r"(?s)2 problems.*flipped.*10 Hz"):
        report.raise_if_failed()


def test_a_wider_dtype_is_an_exact_conversion() -> None:
    policy = observing(replace(STATE, dtype="float64"))
    report = check(policy, observing(STATE), "robot")
    assert report.conversions == ["observation 'state': float32 is widened to float64"]
    seen = report.adapter().observation({"state": np.ones((1, 14), np.float32)})
    assert seen["state"].dtype == np.float64


def test_segments_are_matched_by_name_whatever_their_order() -> None:
    extra = Segment("cube_position", 0, 3, Quantity.OBJECT_POSITION, Unit.METRE, "base")
    turned = (extra, replace(TCP_ROTATION, start=3), replace(QPOS, start=7), replace(TCP, start=14))
    report = check(observing(STATE), observing(replace(STATE, shape=(17,), segments=turned)), "robot")
    assert report.ok and len(report.conversions) == 2
    seen = report.adapter().observation({"state": np.arange(17, dtype=np.float32)[None]})
    assert seen["state"].tolist() == [[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 3, 4, 5, 6]]


def test_action_segments_arrive_where_the_environment_has_them() -> None:
    env_action = replace(
        ACTION,
        low=(0.0, -0.1, -0.1, -0.1),
        high=(0.08, 0.1, 0.1, 0.1),
        segments=(replace(GRIP, start=0), replace(MOVE, start=1)),
    )
    report = check(CONTRACT, replace(CONTRACT, action=env_action), "robot")
    assert report.conversions == ["action: segments are re-ordered to gripper, move"]
    chunk = np.array([[[1, 2, 3, 4]]], np.float32)
    assert report.adapter().action(chunk).tolist() == [[[4, 1, 2, 3]]]


def test_what_the_policy_does_not_read_is_dropped_and_listed() -> None:
    report = check(observing(STATE), CONTRACT, "robot")
    assert report.conversions == ["observations the policy does not read are dropped: camera"]
    assert list(report.adapter().observation({"state": np.zeros(14), "camera": np.zeros(1)})) == ["state"]


def test_the_adapter_names_an_observation_that_does_not_come() -> None:
    with pytest.raises(InvalidArgument, match="'camera' is missing; got \\['state'\\]"):
        check(CONTRACT, CONTRACT, "robot").adapter().observation({"state": np.zeros(14)})


SECRET = TensorSpec("privileged", (1,), segments=(Segment("is_grasped", 0, 1, Quantity.FLAG),), privileged=True)


def test_privileged_information_is_refused_on_a_robot_and_allowed_in_a_simulator() -> None:
    policy = observing(STATE, SECRET)
    assert check(policy, policy, "simulator").ok
    assert rules(check(policy, policy, "robot")) == ["privileged"]
    assert rules(check(policy, observing(STATE), "robot")) == ["privileged"]
    unmarked = replace(SECRET, privileged=False)
    assert rules(check(observing(STATE, unmarked), policy, "robot")) == ["privileged"], "the environment's mark counts"


def test_a_critic_may_read_more_than_the_robot_measures() -> None:
    assert check(observing(STATE, SECRET), observing(STATE), "robot", reads=["state"]).ok


def test_a_normalised_unit_is_refused_on_a_robot_only() -> None:
    scaled = action("move", unit=Unit.NORMALISED)
    assert check(scaled, scaled, "simulator").ok
    assert rules(check(scaled, scaled, "robot")) == ["normalised"]


def test_tensors_without_meaning_are_refused_on_a_robot_only() -> None:
    bare = replace(CONTRACT, observation=(), action=replace(ACTION, segments=()))
    assert check(bare, bare, "simulator").ok
    assert rules(check(bare, bare, "robot")) == ["meaning"]


def test_action_bounds_beyond_a_robots_are_refused_a_simulator_clips() -> None:
    slow = replace(CONTRACT, action=replace(ACTION, high=(0.1, 0.05, 0.1, 0.08)))
    assert rules(check(CONTRACT, slow, "robot")) == ["bounds"]
    report = check(CONTRACT, slow, "simulator")
    assert report.ok
    assert report.notes == [
        "action: the environment clips to [-0.1, 0.05] at [1]; the policy may ask [-0.1, 0.1] at [1]"
    ]
    assert check(slow, CONTRACT, "robot").ok, "a policy that asks less is welcome"
    boundless = replace(CONTRACT, action=replace(ACTION, low=(), high=()))
    assert rules(check(boundless, CONTRACT, "robot")) == ["bounds"]


def test_one_bound_stands_for_all_elements() -> None:
    wide = replace(CONTRACT, action=replace(ACTION, low=(-1,), high=(1,)))
    assert check(CONTRACT, wide, "robot").ok


def test_a_robot_has_a_rate() -> None:
    timeless = replace(CONTRACT, control_rate_hz=0.0)
    assert check(timeless, timeless, "simulator").ok
    assert rules(check(timeless, timeless, "robot")) == ["rate"]


def test_any_length_is_the_policys_to_allow() -> None:
    any_height = observing(replace(CAMERA, shape=(-1, 8, 3)))
    assert check(any_height, observing(CAMERA), "robot").ok
    assert rules(check(observing(CAMERA), any_height, "robot")) == ["shape"]


def test_segments_that_leave_gaps_must_lie_alike() -> None:
    gap = replace(STATE, segments=(QPOS, TCP_ROTATION))
    moved = replace(STATE, segments=(replace(QPOS, start=1), TCP_ROTATION))
    assert check(observing(gap), observing(gap), "robot").ok
    assert rules(check(observing(gap), observing(moved), "robot")) == ["layout"]
    degrees = with_segment(gap, "qpos", unit=Unit.DEGREE)
    assert rules(check(observing(gap), observing(degrees), "robot")) == ["unit"]


def test_another_embodiment_is_a_note_where_no_joint_is_read() -> None:
    policy = observing(replace(STATE, shape=(3,), segments=(replace(TCP, start=0),)))
    report = check(policy, replace(policy, embodiment="ur5", task="Lift"), "robot")
    assert report.ok and len(report.notes) == 2


@pytest.mark.parametrize(("source", "target"), list(itertools.product([*_FLOATS, *_WHOLE], repeat=2)))
def test_a_dtype_is_called_wider_exactly_when_extreme_values_survive(source: str, target: str) -> None:
    kind = np.dtype(source)
    if source in _FLOATS:
        info = ml_dtypes.finfo(kind)
        extremes = np.array([info.max, info.min, info.tiny, 1 + float(info.eps)], kind)
    elif source == "bool":
        extremes = np.array([False, True])
    else:
        limits = np.iinfo(kind)
        extremes = np.array([limits.min, limits.max], kind)
    with np.errstate(all="ignore"):
        there = extremes.astype(target)
        # As Python numbers: numpy would compare after a cast that hides the loss.
        kept = [a == b for a, b in zip(extremes.tolist(), there.tolist(), strict=True)]
    assert _exact(source, target) == (all(kept) and (target != "bool" or source == "bool"))
