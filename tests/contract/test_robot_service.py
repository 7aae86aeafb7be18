"""The bridge over the real MuJoCo cell: an environment like any other, and a robot that stops when it must."""

import itertools

import numpy as np
import pytest
from robot_parts import bridge, holding, needs_cell

from landbridge.env.client import EnvClient
from landbridge.errors import FailedPrecondition, NotFound, ResourceExhausted, Unimplemented
from landbridge.v1 import robot_pb2 as pb
from sim_server.experts import make_expert

pytestmark = needs_cell
STILL = np.array([[0.0, 0.0, 0.0, 0.08]], np.float32)


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    with bridge(tmp_path_factory.mktemp("robot"), "--robot.speed", "2") as made:
        yield made


def play(session, seed):
    """An episode of the scripted expert that was written against ManiSkill's contract."""
    expert = make_expert("PickCube-v1")
    expert.reset()
    observation = session.reset([0], [seed]).observation
    while True:
        step = session.step(expert.act(observation["state"][0]).astype(np.float32)[None])
        observation = step.observation
        if step.done[0]:
            return step


def test_the_expert_of_the_simulator_solves_the_task_in_the_cell(robot):
    with holding(robot) as session:
        results = [play(session, seed) for seed in range(5)]
    assert sum(bool(r.success_once[0]) for r in results) >= 4
    assert not any(r.abandoned[0] for r in results)


def test_nothing_moves_before_arming_and_the_error_says_what_to_do(robot):
    with EnvClient(robot.address) as client, client.open(1) as session:
        robot.wait_mode("DISARMED")
        with pytest.raises(FailedPrecondition, match=r"RobotService\.Arm"):
            session.reset([0], [1])


def test_only_the_session_that_holds_the_robot_may_arm_it(robot):
    with pytest.raises(NotFound):
        robot.arm("somebody-else")


def test_the_robot_is_exclusive_and_disarmed_when_its_session_ends(robot):
    with holding(robot):
        with EnvClient(robot.address) as other, pytest.raises(ResourceExhausted):
            other.open(1)
        assert robot.mode() == "ARMED"
    robot.wait_mode("DISARMED")


def test_an_emergency_stop_latches_and_a_command_after_it_does_not_move_the_robot(robot):
    with holding(robot) as session:
        session.reset([0], [3])
        session.step(STILL)
        robot.stop("somebody pressed the button")
        for _ in range(2):
            with pytest.raises(FailedPrecondition, match="pressed the button"):
                session.step(np.array([[0.05, 0, 0, 0.08]], np.float32))
        with pytest.raises(FailedPrecondition, match="emergency stop"):
            robot.arm(session.id)
        robot.arm(session.id, clear_stop=True)
        assert session.reset([0], [3]).observation["state"].shape == (1, 24)


def test_what_the_safety_layer_changes_is_said_in_the_answer_and_counted(robot):
    with holding(robot) as session:
        session.reset([0], [4])
        messages = []
        for _ in range(12):
            step = session.step(np.array([[0.0, 0.0, -0.05, 0.08]], np.float32))
            messages += [m for m in step.messages if "workspace" in m]
        assert messages and robot.state().counts["workspace/limited"] >= len(messages)
        assert step.observation["state"][0, 16] > 0.0, "the tool never reached the table"


def test_a_policy_that_vanishes_leaves_the_robot_held(robot):
    with holding(robot) as session:
        session.reset([0], [5])
        session.step(np.array([[0.0, 0.1, 0.1, 0.08]], np.float32))
        state = robot.wait_mode("HOLD")
        assert "watchdog" in state.reason
        with pytest.raises(FailedPrecondition, match="watchdog"):
            session.step(STILL)


def test_calls_of_later_issues_answer_unimplemented_by_name(robot):
    from landbridge import rpc

    with pytest.raises(Unimplemented, match="TakeOver"):
        rpc.call(robot.stub.TakeOver, pb.TakeOverRequest(), 5.0)


@pytest.mark.parametrize("rate", [0.0, 1000.0])  # the cell measures 100 times a second
def test_telemetry_tells_every_measurement_once(robot, rate):
    stream = robot.stub.StreamTelemetry(pb.StreamTelemetryRequest(max_rate_hz=rate), timeout=10.0)
    told = [next(stream) for _ in range(20)]
    stream.cancel()
    times = [one.time for one in told]
    assert times == sorted(times) and np.median(np.diff(times)) < 0.04, "not at some rate of the bridge's own"
    for before, after in itertools.pairwise(told):  # as robot.proto says
        assert after.time > before.time or after.decisions or after.mode != before.mode
    assert set(told[0].measured) >= {"joint_position", "tool_position"}


def test_the_compliance_suite_of_environments_passes_on_a_robot(tmp_path):
    from landbridge.env import compliance

    with bridge(tmp_path, "--robot.speed", "2", "--auto-arm") as cell:
        verdicts = compliance.run(cell.address)
    failed = [f"{v.name}: {v.message}" for v in verdicts if not v.passed]
    assert verdicts and not failed, failed
