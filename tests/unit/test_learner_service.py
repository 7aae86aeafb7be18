"""LearnerService over gRPC: a learner in this process, its trainer in a thread, a real policy server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from learner_parts import DUPLICATE, REJECTED, STORED, message
from learning_parts import json_lines, write_checkpoint

from landbridge.config import load
from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound
from landbridge.learning.client import LearnerClient
from landbridge.policies.checkpoint import load_checkpoint
from landbridge.policies.states import to_arrays
from landbridge.v1 import learner_pb2 as pb
from landbridge.weights import Assembler
from learner.config import LearnConfig
from learner.seeds import episode_seed
from learner.serve import Learner
from learner.serve import build as build_learner
from learner.service import LearnerServicer
from policy_server.options import PolicyServeConfig
from policy_server.serve import build as build_policy_server

LONG = 20.0
BATCH = 2


@dataclass
class Served:
    learner: Learner
    client: LearnerClient
    run_dir: Path
    failures: list[BaseException]

    def hand_in(self, count: int) -> list[pb.SubmitAcknowledgement]:
        """So many trajectories by the rules, of the version in training."""
        tickets = []
        while len(tickets) < count:
            tickets += self.client.acquire("test", count - len(tickets), LONG).tickets
        version = self.client.status().version
        return list(self.client.submit([message(t.id, version=version) for t in tickets], LONG))

    def reports(self, count: int) -> list[pb.UpdateReport]:
        """The first so many updates' reports, as they come."""
        stream = self.client.metrics(0, LONG)
        return [next(stream) for _ in range(count)]


@contextlib.contextmanager
def serving(folder: Path, *settings: str) -> Iterator[Served]:
    checkpoint = write_checkpoint(folder / "start")
    policy = build_policy_server(PolicyServeConfig(checkpoint=checkpoint, port=0))
    words = [f"policy={policy.start()}", f"checkpoint={checkpoint}", f"run_dir={folder / 'run'}", "port=0"]
    words += [f"batch={BATCH}", "max_staleness=1", "ppo.epochs=1", *settings]
    learner = build_learner(load(LearnConfig, None, words), threading.Event(), print)
    learner.publisher.check_servers(LONG)
    learner.server.start()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            learner.trainer.run()
        except BaseException as error:
            failures.append(error)

    trainer = threading.Thread(target=run)
    trainer.start()
    try:
        with LearnerClient(learner.address) as client:
            yield Served(learner, client, folder / "run", failures)
    finally:
        learner.trainer.stop()
        trainer.join(LONG)
        learner.close()
        policy.stop(0.0)
    assert not failures


def test_trajectories_in_updates_and_weights_out(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert [ack.outcome for ack in served.hand_in(BATCH)] == [STORED] * BATCH
        (report,) = served.reports(1)
        assert (report.update, report.version) == (1, 1)
        assert report.values["batch_trajectories"] == BATCH and report.values["staleness_max"] == 0
        manifest, buckets = served.client.get_weights()
        assert (manifest.version, manifest.training_step) == (1, 1)
        state = to_arrays(served.learner.model.policy.state_dict())
        assembler = Assembler(manifest, state, manifest.architecture_hash)
        for bucket in buckets:
            assembler.add(bucket)
        assert all(np.array_equal(array, state[name]) for name, array in assembler.finish().items())
        status = served.client.status()
        assert (status.updates, status.version, status.trained, status.buffered) == (1, 1, BATCH, 0)
        assert status.env_steps == BATCH * 6 and list(status.staleness_histogram) == [BATCH * 3]
        assert status.last.update == 1 and status.instance_id


def test_acknowledgements_come_in_order_one_each(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        one, two = served.client.acquire("test", 2, LONG).tickets
        sent = [message(one.id), message(one.id), message(two.id, executed=np.array([9, 2, 2])), message(two.id)]
        answers = list(served.client.submit(sent, LONG))
        assert [a.trajectory_id for a in answers] == [m.trajectory_id for m in sent]
        assert [a.outcome for a in answers] == [STORED, DUPLICATE, REJECTED, REJECTED]
        assert "executed" in answers[2].message


def test_tickets_carry_the_seeds_of_the_run_and_end_with_admission(tmp_path: Path) -> None:
    with serving(tmp_path, "seed=3") as served:
        answer = served.client.acquire("test", 100, LONG)
        assert [t.seed for t in answer.tickets] == [episode_seed(3, index) for index in range(2 * BATCH)]
        assert answer.tickets[0].lease.seconds == 300 and answer.trained_version == 0
        assert not served.client.acquire("test", 1, 0.0).tickets
        served.client.release(answer.tickets[0].id, "crashed")
        served.client.release(answer.tickets[0].id, "crashed")
        assert len(served.client.acquire("test", 5, LONG).tickets) == 1


def test_watchers_get_the_current_version_at_once_and_every_one_after(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        stream = served.client.watch_weights(LONG)
        assert next(stream).version == 0
        for version in (1, 2):
            served.hand_in(BATCH)
            announced = next(stream)
            assert (announced.version, announced.update) == (version, version)


def test_weights_that_are_not_kept_are_not_found(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        next(served.client.watch_weights(LONG))
        with pytest.raises(NotFound, match=r"\[0\]"):
            served.client.get_weights(7)


def test_a_pause_holds_tickets_back_until_it_is_resumed(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        lease = served.client.pause(LONG)
        assert served.client.status().paused and not served.client.acquire("test", 1, 0.0).tickets
        served.client.resume(lease)
        assert served.client.acquire("test", 1, LONG).tickets
        with pytest.raises(InvalidArgument, match="lease"):
            served.client.pause(0.0)


def test_a_checkpoint_on_demand_holds_what_was_acknowledged(tmp_path: Path) -> None:
    from learner import recovery

    with serving(tmp_path, "checkpoint_every=1000") as served:
        served.hand_in(BATCH)
        served.reports(1)
        served.hand_in(1)
        path = Path(served.client.checkpoint(LONG))
        assert load_checkpoint(path / "policy").version == 1
        progress = recovery.load(served.run_dir).progress
        assert (progress.update, progress.counters.trained, len(progress.cursor.pending)) == (1, BATCH, 1)


def test_when_training_is_over_workers_are_told_and_streams_end(tmp_path: Path) -> None:
    with serving(tmp_path, "stop.updates=1") as served:
        served.hand_in(BATCH)
        served.reports(1)
        answer = served.client.acquire("test", 1, LONG)
        while not answer.finished:
            answer = served.client.acquire("test", 1, LONG)
        assert not answer.tickets and served.client.status().finished
    assert [line["update"] for line in json_lines(tmp_path / "run" / "metrics.jsonl")] == [1]


def test_requests_out_of_range_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        with pytest.raises(InvalidArgument, match="count"):
            served.client.acquire("test", -1, 0.0)
        with pytest.raises(InvalidArgument, match="wait"):
            served.client.acquire("test", 1, -5.0)


class HangsUp:
    """The context of a caller that goes just as it is given tickets."""

    def __init__(self) -> None:
        self._answers = iter([True, False])

    def is_active(self) -> bool:
        return next(self._answers)


def test_tickets_of_a_caller_that_hung_up_come_back(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        learner = served.learner
        servicer = LearnerServicer(
            learner.intake,
            learner.trainer,
            learner.metrics,
            learner.announcements,
            run_seed=0,
            lease=LONG,
            architecture_hash="",
            instance_id="",
        )
        assert len(servicer.AcquireRollout(pb.AcquireRolloutRequest(count=4), HangsUp()).tickets) == 4
        status = learner.intake.status()
        assert (status.running, status.returned) == (0, {"caller_gone": 4})


def test_a_stream_of_metrics_tells_each_update_once_from_the_one_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        for update in (1, 2, 3):
            served.hand_in(BATCH)
            assert [report.update for report in served.reports(update)] == list(range(1, update + 1))
        stream = served.client.metrics(2, LONG)
        assert [next(stream).update, next(stream).update] == [2, 3]


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    with pytest.raises(FailedPrecondition, match="--resume"), serving(tmp_path):
        pass
