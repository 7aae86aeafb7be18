"""A campaign that is killed goes on where it was: nothing lost, nothing twice, the same starts."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from campaign_parts import Reach, env_server, policy_server

from robot_bridge.campaign.design import schedule
from robot_bridge.campaign.store import Store

TIMEOUT = 60.0


def start(policy: str, env: str, store: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "landbridge.cli", "campaign", "run", "--policy", policy, "--env", env]
    command += ["--store", str(store), *words]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


ARMS = ("--arm", "sft=0", "--arm", "rl=1", "--trials", "5")


@pytest.mark.parametrize("killed_at", [(5,), (3, 11)], ids=["once", "twice"])
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path, killed_at: tuple[int, ...]) -> None:
    """Killed while its n-th chunk is being executed: chunk 5 is in the middle of the second trial."""
    backend, path = Reach(), tmp_path / "c.sqlite"
    reached, go_on = threading.Event(), threading.Event()

    def on_step() -> None:
        if backend.chunks in killed_at:
            reached.set()
            go_on.wait(TIMEOUT)

    backend.on_step = on_step
    kept: dict[int, object] = {}
    with policy_server(tmp_path) as policy, env_server(backend) as env:
        for attempt, _ in enumerate(killed_at):
            process = start(policy.address, env, path, *(ARMS if attempt == 0 else ("--resume",)))
            assert reached.wait(TIMEOUT)
            process.kill()
            process.communicate(timeout=TIMEOUT)
            reached.clear()
            go_on.set()
            with Store(path) as store:
                now = store.finished()
                assert kept.items() <= now.items(), "a result that was there is there, unchanged"
                kept = dict(now)
            go_on.clear()
        process = start(policy.address, env, path, "--resume")
        output, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, output
    with Store(path) as store:
        design = store.design(policy.address, env)
        results = store.finished()
        assert sorted(results) == list(range(1, 11))
        assert kept.items() <= results.items()
        aborted = [event.trial for event in store.events("aborted")]
        assert len(aborted) == len(killed_at)
        starts = Counter(event.trial for event in store.events("started"))
        assert all(starts[n] == 1 + aborted.count(n) == results[n].attempt for n in results)
        seeds = {trial.number: trial.seed for trial in schedule(design)}
        assert all(event.data["seed"] == seeds[event.trial] for event in store.events("started"))
    assert f"trial {aborted[-1]} had not ended" in output


def test_resuming_another_design_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with policy_server(tmp_path) as policy, env_server(backend := Reach()) as env:
        process = start(policy.address, env, path, *ARMS)
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
        ran = len(backend.resets)
        cases = [
            (ARMS, "--resume goes on with them"),
            ((*ARMS, "--set", "alpha=0.2", "--resume"), "alpha was 0.05, is 0.2"),
            (("--trials", "9", "--resume"), "trials is locked as 5"),
        ]
        for words, message in cases:
            process = start(policy.address, env, path, *words)
            output, _ = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 1 and message in output
        assert len(backend.resets) == ran == 10
