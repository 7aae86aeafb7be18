"""Groups of environments, the worker's books, and handing in again what was not acknowledged."""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from env_parts import LocalBackend, served
from learner_parts import LAYOUT, message, new_intake
from learning_parts import EPISODE_STEPS, HORIZON, write_checkpoint

from landbridge import rpc
from landbridge.env.client import EnvClient
from landbridge.env.protocol import ChunkResult
from landbridge.env.service import EnvServicer
from landbridge.errors import FailedPrecondition, NotFound, ResourceExhausted, Unavailable
from landbridge.learning.client import LearnerClient
from landbridge.policy.client import PolicyClient
from landbridge.v1 import learner_pb2 as pb
from landbridge.v1 import learner_pb2_grpc
from learner.advantages import End
from learner.intake import Intake
from learner.rollout import Assignment, Episode, Group, GroupOptions, run_groups
from learner.seeds import env_seed
from learner.submit import Submitter
from learner.trajectories import from_message, to_message
from learner.worker import TicketWork, WorkerConfig, as_trajectory, check_fit, group_sizes
from policy_server.options import PolicyServeConfig
from policy_server.serve import build

LONG = 20.0


class Listed:
    """Work: the episodes of a list, kept when done."""

    def __init__(self, count: int) -> None:
        self._todo = collections.deque(Assignment(f"t-{i}", 1000 + i, env_seed(1000 + i)) for i in range(count))
        self._lock = threading.Lock()
        self.episodes: dict[str, Episode] = {}
        self.losses: list[tuple[str, str]] = []

    def next(self, count: int, idle: bool) -> list[Assignment]:
        with self._lock:
            return [self._todo.popleft() for _ in range(min(count, len(self._todo)))]

    def over(self) -> bool:
        return not self._todo

    def done(self, episode: Episode) -> None:
        assert episode.assignment.key not in self.episodes
        self.episodes[episode.assignment.key] = episode

    def lost(self, assignment: Assignment, reason: str) -> None:
        self.losses.append((assignment.key, reason))


class Failing(LocalBackend):
    """The ``broken`` chunk of the first environment abandons its episode."""

    def __init__(self, broken: int, **options: Any) -> None:
        super().__init__(max_episode_steps=EPISODE_STEPS, **options)
        self._chunks, self._broken = itertools.count(1), broken

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        results = super().step_chunk(env_ids, actions, evaluate_every_step, deadline_s)
        if 0 in env_ids and next(self._chunks) == self._broken:
            first = results[list(env_ids).index(0)]
            first.abandoned, first.terminated, first.truncated, first.message = True, False, False, "worker died"
        return results


@contextlib.contextmanager
def policy_serving(folder: Path) -> Iterator[PolicyClient]:
    server = build(PolicyServeConfig(checkpoint=write_checkpoint(folder / "start"), port=0))
    with PolicyClient(server.start()) as client:
        yield client
    server.stop(0.0)


def options(num_envs: int, **changes: Any) -> GroupOptions:
    return GroupOptions(num_envs, ("state",), evaluation="every_step", timeout=LONG, **{"patience": LONG, **changes})


def roll_out(env: EnvClient, policy: PolicyClient, work: Listed, *sizes: int, **changes: Any) -> None:
    stopped = threading.Event()
    run_groups([Group(env, policy, work, options(n, **changes), stopped.is_set) for n in sizes], stopped.set)


def test_episodes_do_not_depend_on_how_many_run_side_by_side(tmp_path: Path) -> None:
    seen = []
    with policy_serving(tmp_path) as policy:
        for sizes in ((1,), (3,), (2, 2)):
            backend = LocalBackend(num_envs=sum(sizes), max_episode_steps=EPISODE_STEPS)
            with served(EnvServicer(backend)) as env:
                work = Listed(5)
                roll_out(env, policy, work, *sizes)
                assert env.info().free_envs == sum(sizes), "sessions are given back"
            assert not work.losses
            seen.append([as_trajectory(work.episodes[f"t-{i}"], "id", "w") for i in range(5)])
    for alone, *others in zip(*seen, strict=True):
        assert len(alone) == EPISODE_STEPS // HORIZON and alone.end is End.TRUNCATED
        for other in others:
            np.testing.assert_allclose(other.actions, alone.actions, rtol=0, atol=1e-3)
            np.testing.assert_allclose(other.observation["state"], alone.observation["state"], rtol=0, atol=1e-3)
            np.testing.assert_array_equal(other.executed, alone.executed)
    assert not np.allclose(seen[0][0].actions, seen[0][1].actions), "episodes differ from each other"


def test_what_a_worker_hands_in_is_what_the_learner_accepts(tmp_path: Path) -> None:
    with policy_serving(tmp_path) as policy, served(EnvServicer(LocalBackend(max_episode_steps=4))) as env:
        work = Listed(1)
        roll_out(env, policy, work, 1)
    made = as_trajectory(work.episodes["t-0"], "id", "w")
    assert from_message(to_message(made), LAYOUT, 0).rewards.shape == (2, HORIZON)


def test_an_abandoned_episode_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    with policy_serving(tmp_path) as policy, served(EnvServicer(Failing(broken=3))) as env:
        work = Listed(4)
        roll_out(env, policy, work, 2)
    ends = {key: episode.end for key, episode in work.episodes.items()}
    assert ends == {"t-0": End.ABANDONED, "t-1": End.TRUNCATED, "t-2": End.TRUNCATED, "t-3": End.TRUNCATED}
    assert len(work.episodes["t-0"].decisions) == 3


def test_a_version_that_is_not_held_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    with policy_serving(tmp_path) as policy, served(EnvServicer(LocalBackend())) as env:
        work = Listed(2)
        with pytest.raises(NotFound, match="not held"):
            roll_out(env, policy, work, 2, version=9)
        assert {reason for _, reason in work.losses} == {"stopped"} and len(work.losses) == 2


def test_a_policy_that_stays_away_costs_its_episodes(tmp_path: Path) -> None:
    with served(EnvServicer(LocalBackend())) as env, PolicyClient("127.0.0.1:9") as policy:
        work = Listed(2)
        roll_out(env, policy, work, 2, patience=0.2)
    assert sorted(work.losses) == [("t-0", "policy_gone"), ("t-1", "policy_gone")]


def test_a_policy_made_for_other_environments_is_refused(tmp_path: Path) -> None:
    with policy_serving(tmp_path) as policy:
        with served(EnvServicer(LocalBackend("CartPole-v1"))) as env, pytest.raises(FailedPrecondition):
            check_fit(policy.info(), env)
        with served(EnvServicer(LocalBackend())) as env:
            check_fit(policy.info(), env)


def test_environments_are_dealt_evenly_and_a_request_stays_within_the_servers_rows() -> None:
    assert group_sizes(WorkerConfig(groups=2), 7, 256) == [4, 3]
    assert group_sizes(WorkerConfig(envs=3, groups=2), 7, 256) == [2, 1]
    assert group_sizes(WorkerConfig(groups=4), 2, 256) == [1, 1]
    assert max(group_sizes(WorkerConfig(groups=1), 10, 4)) <= 4
    with pytest.raises(ResourceExhausted):
        group_sizes(WorkerConfig(), 0, 256)


class Forgetful(learner_pb2_grpc.LearnerServiceServicer):
    """A learner that stores what the first stream brings and dies before it can say so."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self.streams = 0
        self.released: list[str] = []

    def SubmitTrajectories(self, requests: Any, context: Any) -> Iterator[pb.SubmitAcknowledgement]:
        self.streams += 1
        first = self.streams == 1
        for sent in requests:
            answer = self.intake.submit(sent, LONG)
            if first:
                raise Unavailable("killed before the acknowledgement")
            yield answer

    def ReleaseRollout(self, request: pb.ReleaseRolloutRequest, context: Any) -> pb.ReleaseRolloutResponse:
        self.released.append(request.reason)
        return pb.ReleaseRolloutResponse()


@contextlib.contextmanager
def forgetful(folder: Path) -> Iterator[tuple[Forgetful, LearnerClient]]:
    intake, _, _ = new_intake(folder, batch=4)
    servicer = Forgetful(intake)
    descriptor = pb.DESCRIPTOR.services_by_name["LearnerService"]
    server = rpc.Server([rpc.Service(learner_pb2_grpc.add_LearnerServiceServicer_to_server, servicer, descriptor)])
    with LearnerClient(server.start()) as client:
        yield servicer, client
    server.stop(0.0)


def test_what_was_not_acknowledged_is_handed_in_again_and_stored_once(tmp_path: Path) -> None:
    with forgetful(tmp_path) as (servicer, client):
        tickets, _, _ = servicer.intake.acquire(3, 0.0)
        submitter = Submitter(client, max_unacknowledged=10, patience=LONG)
        for ticket in tickets:
            submitter.put(message(ticket.id))
        assert submitter.close(LONG) == 0
        assert submitter.outcomes == {"duplicate": 1, "stored": 2} and servicer.streams == 2
        assert servicer.intake.status().produced == 3


def test_rollouts_wait_while_too_much_is_unacknowledged_and_a_learner_that_stays_away_is_said() -> None:
    with LearnerClient("127.0.0.1:9") as client:
        submitter = Submitter(client, max_unacknowledged=1, patience=0.2)
        submitter.put(message("t-0"))
        with pytest.raises(Unavailable, match="stayed away"):
            submitter.put(message("t-1"))
        assert submitter.close(0.0) == 1


def test_an_episode_lost_on_its_first_decision_gives_its_ticket_back(tmp_path: Path) -> None:
    with policy_serving(tmp_path) as policy, served(EnvServicer(Failing(broken=1))) as env:
        listed = Listed(1)
        roll_out(env, policy, listed, 1)
    with forgetful(tmp_path / "log") as (servicer, client):
        submitter = Submitter(client, max_unacknowledged=10, patience=LONG)
        TicketWork(client, submitter, "w", LONG).done(listed.episodes["t-0"])
        assert servicer.released == ["abandoned"]
        assert submitter.close(LONG) == 0 and not submitter.outcomes
