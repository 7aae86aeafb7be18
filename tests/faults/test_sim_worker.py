"""What one worker's misfortune costs: its own episode, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from landbridge.env.client import EnvClient
from landbridge.env.protocol import ChunkResult
from landbridge.errors import Internal, InvalidArgument, Unavailable
from sim_server import workers
from sim_server.workers import WorkerPool

HERE = Path(__file__).parent
FINE, DIE, HANG, NAN, RAISE, SLOW, NAN_REWARD = range(7)
FAULTS = {"dies": DIE, "hangs": HANG, "produces NaN": NAN, "raises": RAISE, "gives a NaN reward": NAN_REWARD}
MakePool = Callable[..., WorkerPool]


@pytest.fixture(autouse=True)
def faulty_simulator_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``pip install`` would: an entry point of the group ``landbridge.simulators``."""
    info = tmp_path / "faulty_simulator-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-simulator\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[landbridge.simulators]\nfaulty = faulty_simulator:make\n")
    root = str(HERE.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE), root]))


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    pools: list[WorkerPool] = []

    def make(num_envs: int, *, step_timeout: float = 20.0, **options: Any) -> WorkerPool:
        pools.append(WorkerPool("faulty:any", num_envs, options, step_timeout=step_timeout))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def chunk(count: int, faults: dict[int, int] | None = None, length: int = 3) -> np.ndarray:
    """[count, length, 2]; ``faults`` strike in the middle of the environments' chunks."""
    actions = np.zeros((count, length, 2), np.float32)
    actions[:, :, 1] = 0.1
    for env_id, fault in (faults or {}).items():
        actions[env_id, length // 2, 0] = fault
    return actions


def numbers(result: ChunkResult) -> dict[str, Any]:
    named = {f"observation.{name}": value.tolist() for name, value in result.observation.items()}
    plain = ("executed", "terminated", "truncated", "abandoned", "success_once", "episode_step", "message")
    return named | {"rewards": result.rewards.tolist()} | {name: getattr(result, name) for name in plain}


def gone(pid: int) -> bool:
    """Ended; a zombie that its parent has not looked at yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_worker_that_fails_costs_one_episode_and_the_others_are_bit_identical(
    fault: int, make_pool: MakePool
) -> None:
    ids = [0, 1, 2]
    calm, struck = make_pool(3), make_pool(3, step_timeout=1.0)
    for pool in (calm, struck):
        pool.reset(ids, [7, 8, 9], {})
        before = pool.step_chunk(ids, chunk(3), True, 20.0)
    wanted = calm.step_chunk(ids, chunk(3), True, 20.0)
    got = struck.step_chunk(ids, chunk(3, {1: fault}), True, 20.0)

    assert got[1].abandoned and got[1].executed == 0 and got[1].message
    assert got[1].episode_step == 3
    for name, value in before[1].observation.items():
        assert np.array_equal(got[1].observation[name], value), "the last good observation is reported"
    for i in (0, 2):
        assert numbers(got[i]) == numbers(wanted[i])

    on = [numbers(r) for r in struck.step_chunk([0, 2], chunk(2), True, 20.0)]
    assert on == [numbers(r) for r in calm.step_chunk([0, 2], chunk(2), True, 20.0)]
    again = [pool.reset([1], [8], {})[0].observation for pool in (calm, struck)]
    assert all(np.array_equal(again[0][name], again[1][name]) for name in again[0]), "the replacement is as good"
    assert numbers(struck.step_chunk([1], chunk(1), True, 20.0)[0]) == numbers(before[1])


def test_kill_9_in_mid_chunk(make_pool: MakePool) -> None:
    pool = make_pool(2)
    pool.reset([0, 1], [1, 2], {})
    victim = pool.pids()[1]
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    slow = chunk(2, {0: SLOW, 1: SLOW})
    alive, lost = pool.step_chunk([0, 1], slow, True, 20.0)
    assert not alive.abandoned and alive.executed == 3
    assert lost.abandoned and "SIGKILL" in lost.message
    wait_until(lambda: gone(victim))


def test_kill_9_between_two_chunks(make_pool: MakePool) -> None:
    pool = make_pool(2)
    pool.reset([0, 1], [1, 2], {})
    os.kill(pool.pids()[0], signal.SIGKILL)
    lost, alive = pool.step_chunk([0, 1], chunk(2), True, 20.0)
    assert lost.abandoned and not alive.abandoned


def test_kill_9_before_a_reset_is_not_even_noticed(make_pool: MakePool) -> None:
    pool = make_pool(2)
    wanted = pool.reset([0, 1], [1, 2], {})
    os.kill(pool.pids()[0], signal.SIGKILL)
    got = pool.reset([0, 1], [1, 2], {})
    for w, g in zip(wanted, got, strict=True):
        assert np.array_equal(w.observation["state"], g.observation["state"])


def test_a_hung_worker_is_killed(make_pool: MakePool) -> None:
    pool = make_pool(1, step_timeout=1.0)
    pool.reset([0], [1], {})
    (pid,) = pool.pids()
    assert pool.step_chunk([0], chunk(1, {0: HANG}), True, 20.0)[0].abandoned
    wait_until(lambda: gone(pid))


def test_a_callers_short_deadline_is_no_reason_to_kill_a_healthy_worker(make_pool: MakePool) -> None:
    pool = make_pool(1)
    pool.reset([0], [1], {})
    assert not pool.step_chunk([0], chunk(1, {0: SLOW}), True, 0.001)[0].abandoned


def test_a_refused_reset_leaves_no_answer_behind_for_the_next_call(make_pool: MakePool) -> None:
    pool = make_pool(3)
    wanted = pool.reset([0, 1, 2], [1, 2, 3], {})
    with pytest.raises(Internal, match="unknown"):
        pool.reset([0, 1, 2], [4, 5, 6], {"nonsense": 1})
    for w, g in zip(wanted, pool.reset([0, 1, 2], [1, 2, 3], {}), strict=True):
        assert np.array_equal(w.observation["state"], g.observation["state"])


def test_an_environment_that_cannot_be_reset_says_so_and_the_others_can(make_pool: MakePool) -> None:
    pool = make_pool(2, die_at_seed=13, nan_at_seed=14)
    with pytest.raises(Unavailable, match="environment 1 lost its worker twice"):
        pool.reset([0, 1], [1, 13], {})
    with pytest.raises(Internal, match="not finite"):
        pool.reset([1], [14], {})
    assert np.isfinite(pool.reset([1], [15], {})[0].observation["state"]).all()


def test_restarts_are_bounded(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_RESTARTS", 2)
    pool = make_pool(2)
    for _ in range(3):
        pool.reset([0, 1], [1, 2], {})
        pool.step_chunk([0, 1], chunk(2, {0: DIE}), True, 20.0)
    with pytest.raises(Unavailable, match="lost 3 workers"):
        pool.reset([0], [1], {})
    assert pool.reset([1], [2], {}), "the other environment works on"


@pytest.mark.parametrize(("option", "error"), [("refuse_to_start", Internal), ("die_at_start", Unavailable)])
def test_a_simulator_that_cannot_start_says_why_and_leaves_no_process(
    option: str, error: type[Exception], make_pool: MakePool
) -> None:
    with pytest.raises(error, match="no such asset" if option == "refuse_to_start" else "SIGKILL"):
        make_pool(3, **{option: True})
    assert not children(os.getpid(), "worker_process")


def test_an_unknown_simulator_is_named(make_pool: MakePool) -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'faulty'"):
        WorkerPool("fualty:any", 1, {})


def test_close_ends_workers_even_while_they_work(make_pool: MakePool) -> None:
    pool = make_pool(2)
    pool.reset([0, 1], [1, 2], {})
    pids = pool.pids()
    thread = threading.Thread(target=pool.step_chunk, args=([0, 1], chunk(2, {0: HANG}), True, 20.0))
    thread.start()
    pool.close()
    assert all(gone(pid) for pid in pids)
    thread.join(10.0)
    assert not thread.is_alive(), "a call under way ends with the pool"


def children(parent: int, named: str) -> list[int]:
    """Living children of ``parent`` whose command line has ``named`` in it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == parent and stat[0] != "Z" and named in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_server_not_even_one_that_hangs(sent: signal.Signals) -> None:
    command = [sys.executable, "-m", "sim_server.serve", "faulty:any", "--num-envs", "3", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        pids = children(server.pid, "worker_process")
        assert len(pids) == 3
        with EnvClient(address) as client:
            session = client.open()
            session.reset(seeds=[1, 2, 3])
            stream = session.stream()
            stream.send(chunk(3, {0: HANG}))
            time.sleep(0.3)  # until it hangs; a worker that waits for requests would notice the end by itself
            server.send_signal(sent)
            assert server.wait(5.0) == (-9 if sent == signal.SIGKILL else 0)
            wait_until(lambda: all(gone(pid) for pid in pids), 5.0)
            stream.close()
    finally:
        server.kill()
        server.wait()
