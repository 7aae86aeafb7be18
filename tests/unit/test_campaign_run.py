"""Campaigns over real servers in this process: fair, blind, pinned, and careful with what moves."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from campaign_parts import CONTRACT, DELTA, GRIPPER, Reach, Safety, env_server, make_policy, policy_server

from landbridge.contract import Contract, Quantity, Rotation, Segment, TensorSpec
from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound
from landbridge.policies.states import to_arrays
from landbridge.policy.client import PolicyClient
from landbridge.v1 import robot_pb2 as pb
from policy_server.serve import PolicyServer
from robot_bridge.campaign.design import Design, schedule
from robot_bridge.campaign.run import ATTEMPTS, rates_by_arm, run_campaign
from robot_bridge.campaign.store import Store

DESIGN = Design(arms={"sft": 0, "rl": 1}, trials=4, block=2, name="test")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyServer]:
    with policy_server(tmp_path_factory.mktemp("policy")) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "c.sqlite", write=True) as opened:
        yield opened


def addressed(served: PolicyServer, env: str, **fields: object) -> Design:
    return dataclasses.replace(DESIGN, policy=served.address, env=env, **fields)  # type: ignore[arg-type]


def test_every_trial_runs_in_the_locked_order_from_its_initial_condition(served: PolicyServer, store: Store) -> None:
    backend = Reach()
    with env_server(backend) as env:
        design = addressed(served, env)
        run_campaign(design, store, lambda line: None)
    trials = schedule(design)
    assert backend.resets == [trial.seed for trial in trials]
    assert [event.trial for event in store.events("finished")] == [trial.number for trial in trials]
    assert len({trial.arm.label for trial in trials[:4]}) == 2, "both arms within the first block"


def test_every_decision_is_stamped_with_its_arms_version(served: PolicyServer, store: Store) -> None:
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env), store, lambda line: None)
    versions = {trial.number: trial.arm.version for trial in schedule(DESIGN)}
    decisions = list(store.events("decision"))
    assert len(decisions) == 8 * 3  # twelve steps in chunks of four
    assert all(event.data["version"] == versions[event.trial] for event in decisions)
    assert all(event.data["version"] == versions[event.trial] for event in store.events("finished"))


def test_the_arms_weights_drive_from_one_and_the_same_start(served: PolicyServer, store: Store) -> None:
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env, trials=1), store, lambda line: None)
    starts = [event.data["places"] for event in store.events("start")]
    ends = [event.data["places"]["tool"] for event in store.events("decision") if event.data["decision"] == 3]
    assert starts[0] == starts[1] and set(starts[0]) == {"tool", "object", "goal"}
    assert ends[0] != ends[1]


def test_the_screen_knows_letters_only(served: PolicyServer, store: Store) -> None:
    lines: list[str] = []
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env), store, lines.append)
    text = "\n".join(lines)
    assert [line.split(" ")[0] for line in lines] == [f"{k}/8" for k in range(1, 9)]
    assert "A: " in text and "B: " in text and "left" in text
    assert not any(word in text for word in ("sft", "rl", "version"))


def test_events_are_on_the_disk_before_they_are_shown(served: PolicyServer, store: Store) -> None:
    seen: list[int] = []

    def say(line: str) -> None:
        with Store(store.path) as reader:
            seen.append(len(reader.finished()))

    with env_server(Reach()) as env:
        run_campaign(addressed(served, env), store, say)
    assert seen == list(range(1, 9))


def test_a_campaign_run_again_gives_the_same_episodes(served: PolicyServer, tmp_path: Path) -> None:
    ends = []
    for name in ("a", "b"):
        with env_server(Reach()) as env, Store(tmp_path / name, write=True) as store:
            run_campaign(addressed(served, env), store, lambda line: None)
            ends.append([event.data["places"] for event in store.events("decision")])
    assert ends[0] == ends[1]


def test_a_lost_trial_is_run_again_from_the_same_start(served: PolicyServer, store: Store) -> None:
    backend, broken = Reach(), iter([False, True])

    def fail() -> None:
        if next(broken, False):
            raise RuntimeError("the simulator crashed")

    backend.on_step = fail
    with env_server(backend) as env:
        # An unexpected error of a backend is INTERNAL: not the network's doing, so the campaign stops …
        with pytest.raises(Exception, match="crashed"):
            run_campaign(addressed(served, env), store, lambda line: None)
        (aborted,) = store.events("aborted")
        run_campaign(addressed(served, env), store, lambda line: None)  # … and goes on when told to
    first = schedule(DESIGN)[0]
    assert (aborted.trial, aborted.attempt) == (first.number, 1)
    assert backend.resets[:2] == [first.seed, first.seed]
    assert len(store.finished()) == 8 and store.finished()[first.number].attempt == 2


def test_trials_end_after_max_decisions(served: PolicyServer, store: Store) -> None:
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env, max_decisions=2), store, lambda line: None)
    assert {(e.data["end"], e.data["decisions"], e.data["steps"]) for e in store.events("finished")} == {
        ("max_decisions", 2, 8)
    }


def test_fewer_steps_of_a_chunk_can_be_executed(served: PolicyServer, store: Store) -> None:
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env, steps=3), store, lambda line: None)
    assert {e.data["executed"] for e in store.events("decision")} == {3}


def test_success_is_counted_as_the_design_says(served: PolicyServer, store: Store) -> None:
    with env_server(Reach()) as env:
        run_campaign(addressed(served, env, trials=8), store, lambda line: None)
    design = dataclasses.replace(DESIGN, trials=8)
    once = rates_by_arm(store, design)[1]
    at_end = rates_by_arm(store, dataclasses.replace(design, success="at_end"))[1]
    results = [event.data for event in store.events("finished")]
    assert sum(rate.successes for rate in once.values()) == sum(r["success_once"] for r in results)
    assert sum(rate.successes for rate in at_end.values()) == sum(r["success_at_end"] for r in results)
    assert any(r["success_once"] != r["success_at_end"] for r in results)


def test_another_design_is_refused_on_resume(served: PolicyServer, store: Store) -> None:
    with env_server(backend := Reach()) as env:
        run_campaign(addressed(served, env), store, lambda line: None)
        with pytest.raises(FailedPrecondition, match="trials was 4, is 5"):
            run_campaign(addressed(served, env, trials=5), store, lambda line: None)
    assert len(backend.resets) == 8


def test_another_environment_is_refused_on_resume(served: PolicyServer, store: Store) -> None:
    store.connected(environment="cell", kind="simulator", policy="reach", architecture="other")
    with (
        env_server(backend := Reach()) as env,
        pytest.raises(FailedPrecondition, match="environment was cell, is reach"),
    ):
        run_campaign(addressed(served, env), store, lambda line: None)
    assert backend.resets == []


def test_versions_that_are_not_held_are_refused_before_the_first_motion(served: PolicyServer, store: Store) -> None:
    with env_server(backend := Reach()) as env, pytest.raises(NotFound, match=r"'rl' \(version 9\).*it holds \[0, 1\]"):
        run_campaign(addressed(served, env, arms={"sft": 0, "rl": 9}), store, lambda line: None)
    assert backend.resets == []


def test_a_trial_without_any_limit_is_refused(served: PolicyServer, store: Store) -> None:
    backend = Reach()
    backend.max_episode_steps = 0
    with env_server(backend) as env, pytest.raises(InvalidArgument, match="max_decisions"):
        run_campaign(addressed(served, env), store, lambda line: None)


def with_rotation(order: Rotation) -> Contract:
    state = CONTRACT.observation[0]
    turned = Segment("cube_rotation", 9, 4, Quantity.OBJECT_ROTATION, frame="base", rotation=order)
    return dataclasses.replace(CONTRACT, observation=(TensorSpec("state", (13,), segments=(*state.segments, turned)),))


FLIPPED = dataclasses.replace(
    CONTRACT,
    action=dataclasses.replace(
        CONTRACT.action, segments=(DELTA, dataclasses.replace(GRIPPER, gripper_closed=0.08, gripper_open=0.0))
    ),
)


@pytest.mark.parametrize("kind", ["simulator", "robot"])
@pytest.mark.parametrize(
    ("offered", "rule"),
    [
        (FLIPPED, "gripper"),
        (with_rotation(Rotation.QUATERNION_XYZW), "quaternion_xyzw"),
        (dataclasses.replace(CONTRACT, control_rate_hz=10.0), "20"),
    ],
    ids=["flipped gripper", "quaternion order", "rate"],
)
def test_contracts_that_differ_are_refused_before_the_first_motion(
    tmp_path: Path, store: Store, offered: Contract, rule: str, kind: str
) -> None:
    backend, safety = Reach(offered, kind), Safety()
    trained = with_rotation(Rotation.QUATERNION_WXYZ) if "xyzw" in rule else CONTRACT
    with (
        policy_server(tmp_path, (1,), trained) as policy,
        env_server(backend, safety.service()) as env,
        pytest.raises(FailedPrecondition, match=rule),
    ):
        run_campaign(addressed(policy, env), store, lambda line: None)
    assert backend.resets == [] and backend.chunks == 0
    assert safety.requests == [], "it was not even armed"


Robot = tuple[Reach, Safety, str]


@pytest.fixture
def robot() -> Iterator[Robot]:
    backend, safety = Reach(kind="robot"), Safety()
    with env_server(backend, safety.service()) as address:
        yield backend, safety, address


def at_chunk(backend: Reach, number: int, action: Callable[[], None]) -> None:
    backend.on_step = lambda: action() if backend.chunks == number else None


def test_a_robot_is_armed_once_in_so_many_words(served: PolicyServer, store: Store, robot: Robot) -> None:
    _, safety, address = robot
    run_campaign(addressed(served, address), store, lambda line: None)
    (request,) = safety.requests
    assert request.session_id and not request.clear_stop
    assert [event.data for event in store.events("armed")] == [{"before": "DISARMED"}]


def test_a_hold_the_policy_caused_is_a_failure_and_the_robot_is_armed_again(
    served: PolicyServer, store: Store, robot
) -> None:  # type: ignore[no-untyped-def]
    backend, safety, address = robot
    at_chunk(backend, 2, lambda: safety.hold("velocity"))
    run_campaign(addressed(served, address), store, lambda line: None)
    first = store.finished()[1].data
    assert (first["end"], first["success_once"], first["decisions"]) == ("hold", False, 2)
    assert [event.data["before"] for event in store.events("armed")] == ["DISARMED", "HOLD"]
    assert len(backend.resets) == 8


def test_a_hold_of_the_robots_own_is_no_trial(served: PolicyServer, store: Store, robot: Robot) -> None:
    backend, safety, address = robot
    at_chunk(backend, 2, lambda: safety.hold("watchdog"))
    run_campaign(addressed(served, address), store, lambda line: None)
    assert store.finished()[1].attempt == 2 and len(backend.resets) == 9
    assert backend.resets[0] == backend.resets[1]


def test_a_robot_that_keeps_holding_ends_the_campaign(served: PolicyServer, store: Store, robot: Robot) -> None:
    backend, safety, address = robot
    backend.on_step = lambda: safety.hold("watchdog")
    with pytest.raises(FailedPrecondition, match=f"lost {ATTEMPTS} times"):
        run_campaign(addressed(served, address), store, lambda line: None)
    assert len(store.finished()) == 0 and len(list(store.events("aborted"))) == ATTEMPTS


def test_ctrl_c_stops_the_robot_and_only_a_person_clears_it(served: PolicyServer, store: Store, robot: Robot) -> None:
    backend, safety, address = robot
    at_chunk(backend, 8, lambda: os.kill(os.getpid(), signal.SIGINT))  # in the third trial
    with pytest.raises(KeyboardInterrupt):
        run_campaign(addressed(served, address), store, lambda line: None)
    assert isinstance(safety.requests[-1], pb.EmergencyStopRequest)
    assert [event.kind for event in store.events(trial=3)][-2:] == ["emergency_stop", "aborted"]
    with pytest.raises(FailedPrecondition, match="--clear"):
        run_campaign(addressed(served, address), store, lambda line: None)
    run_campaign(addressed(served, address), store, lambda line: None, clear=True)
    assert safety.requests[-1].clear_stop and len(store.finished()) == 8


def test_an_answer_of_other_weights_is_not_executed(
    served: PolicyServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a server that forgets pins: the check is the campaign's own."""
    real, backend = PolicyClient.infer, Reach()
    monkeypatch.setattr(
        PolicyClient, "infer", lambda self, obs, **options: real(self, obs, **{**options, "version": 1})
    )
    with env_server(backend) as env, pytest.raises(FailedPrecondition, match=r"version 0, .* with version 1"):
        run_campaign(addressed(served, env), store, lambda line: None)
    before = next(index for index, trial in enumerate(schedule(DESIGN)) if trial.arm.version == 0)
    assert backend.chunks == 3 * before


def test_the_two_policies_differ() -> None:
    """What the tests above rest on."""
    a, b = (to_arrays(make_policy(version).state_dict()) for version in (0, 1))
    assert any(not np.array_equal(a[name], b[name]) for name in a)
