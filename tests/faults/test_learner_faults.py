"""kill −9 of each process of a training run: training goes on, and every trajectory is accounted for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learning_parts import json_lines, landbridge, processes, start_policy, start_sim, write_checkpoint

from landbridge.learning.client import LearnerClient
from landbridge.policy.client import PolicyClient
from landbridge.process import Child, ProcessGroup
from learner import recovery
from learner.buffer import TrajectoryLog
from learner.trajectories import describe

ETA = 1
PATIENCE = 60.0
FLAGS = ("--port", 0, "--batch", 8, "--max-staleness", ETA, "--ppo.epochs", 1, "--ppo.minibatch", 64)


def port_of(child: Child) -> int:
    return int(child.address.rpartition(":")[2])


def wait_for(condition: Callable[[], bool], what: str, *children: Child) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s" + "".join(c.tail() for c in children)
        time.sleep(0.02)


def kill(child: Child) -> None:
    child.kill()
    assert child.wait(10) == -signal.SIGKILL


class Run:
    """Servers and a learner with one worker, as processes."""

    def __init__(self, group: ProcessGroup, folder: Path) -> None:
        self.group, self.folder, self.run_dir = group, folder, folder / "run"
        self.checkpoint = write_checkpoint(folder / "start")
        self.policy, self.sim = start_policy(group, self.checkpoint), start_sim(group, 4)

    def learn(self, *flags: object) -> Child:
        words = ("--policy", self.policy.address, "--env", self.sim.address, "--run-dir", self.run_dir)
        learner = self.group.start("learner", landbridge("learn", "rl", *words, *FLAGS, *flags))
        learner.wait_serving(PATIENCE)
        return learner

    def begin(self, *flags: object) -> Child:
        return self.learn("--checkpoint", self.checkpoint, *flags)

    def updates(self) -> int:
        return max((line["update"] for line in json_lines(self.run_dir / "metrics.jsonl")), default=0)

    def wait_for_update(self, update: int, *children: Child) -> None:
        wait_for(lambda: self.updates() >= update, f"update {update} (at {self.updates()})", *children)

    def account(self) -> dict[str, Any]:
        """Where every record of the log is, by the journal and the last checkpoint; each in one place."""
        log = TrajectoryLog(self.run_dir / "trajectories", describe)
        stored = {record.sequence: record.trajectory_id for record in log.pending()}
        log.close()
        journal = json_lines(self.run_dir / "consumed.jsonl")
        trained = [s for line in journal for s in line.get("trained", [])]
        dropped = [line["dropped"] for line in journal if "dropped" in line]
        progress = recovery.load(self.run_dir).progress
        # What came after the last checkpoint is pending too: workers hand in until they are told to stop.
        pending = [*progress.cursor.pending, *(s for s in stored if s >= progress.cursor.next)]
        assert sorted(trained + dropped + pending) == sorted(stored), "lost, or consumed twice"
        assert len(set(stored.values())) == len(stored), "stored twice"
        assert progress.counters.trained == len(trained)
        assert sum(count for _, count in progress.counters.dropped) == len(dropped)
        return {"trained": trained, "dropped": dropped, "stored": stored}

    def check_staleness(self) -> None:
        for line in json_lines(self.run_dir / "metrics.jsonl"):
            assert line["staleness_max"] <= ETA
            assert line.get("behaviour_gap", 0.0) < 1e-4


def test_the_learner_killed_and_resumed_loses_nothing_and_trains_on_nothing_twice(tmp_path: Path) -> None:
    with processes(tmp_path / "logs") as group:
        run = Run(group, tmp_path)
        learner = run.begin("--checkpoint-every", 3)
        run.wait_for_update(5, learner)
        kill(learner)
        acknowledged = TrajectoryLog(run.run_dir / "trajectories", describe)
        before = {record.trajectory_id for record in acknowledged.pending()}
        acknowledged.close()
        reached, restored = recovery.last_published(run.run_dir), recovery.load(run.run_dir).progress
        assert restored.version <= reached
        resumed = run.learn("--resume", "--stop.updates", restored.update + 6)
        assert resumed.wait(PATIENCE) == 0, resumed.tail()
        account = run.account()
        assert before <= set(account["stored"].values())
        lines = json_lines(run.run_dir / "metrics.jsonl")
        assert [line["update"] for line in lines] == list(range(1, restored.update + 7)), "each update once"
        versions = [line["version"] for line in lines]
        assert versions == sorted(set(versions))
        if restored.version < reached:
            assert versions[restored.update] > reached, "a version number is never used for other weights"
        run.check_staleness()
        with PolicyClient(run.policy.address) as policy:
            assert policy.info().current_version == versions[-1]


def test_the_policy_server_killed_and_restarted_is_given_the_newest_weights(tmp_path: Path) -> None:
    with processes(tmp_path / "logs") as group:
        run = Run(group, tmp_path)
        learner = run.begin()
        run.wait_for_update(3, learner)
        port = port_of(run.policy)
        kill(run.policy)
        run.policy = start_policy(group, run.checkpoint, port=port)
        with PolicyClient(run.policy.address) as policy:
            wait_for(lambda: policy.info().current_version >= 3, "the restarted server's weights", learner)
        run.wait_for_update(run.updates() + 4, learner)
        finish(run, learner)


def test_the_simulator_killed_and_restarted_costs_its_episodes_only(tmp_path: Path) -> None:
    with processes(tmp_path / "logs") as group:
        run = Run(group, tmp_path)
        learner = run.begin()
        run.wait_for_update(3, learner)
        port = port_of(run.sim)
        kill(run.sim)
        run.sim = start_sim(group, 4, port=port)
        run.wait_for_update(run.updates() + 4, learner)
        finish(run, learner)


def test_a_worker_killed_is_started_again_and_its_tickets_come_back(tmp_path: Path) -> None:
    with processes(tmp_path / "logs") as group:
        run = Run(group, tmp_path)
        learner = run.begin("--ticket-lease", 2)
        run.wait_for_update(3, learner)
        (worker,) = [pid for pid in children_of(learner.pid) if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")
        run.wait_for_update(run.updates() + 4, learner)
        with LearnerClient(learner.address) as client:
            wait_for(lambda: client.status().running_tickets <= 4, "tickets of the dead worker", learner)
        finish(run, learner)


def finish(run: Run, learner: Child) -> None:
    """Ends it as Ctrl-C would, within five seconds, with nobody left behind; the books are right."""
    workers = children_of(learner.pid)
    began = time.monotonic()
    learner.terminate()
    assert learner.wait(10) == 0, learner.tail()
    assert time.monotonic() - began < 5.0
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    run.account()
    run.check_staleness()


def children_of(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
