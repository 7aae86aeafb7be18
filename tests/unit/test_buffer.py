"""The trajectory log: stored means stored, once, whatever ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbridge.errors import DataLoss, FailedPrecondition
from learner.buffer import Cursor, TrajectoryLog


def describe(data: bytes) -> tuple[str, int]:
    identity, _, _ = data.partition(b":")
    return identity.decode(), len(data)


def opened(folder: Path, **options: int) -> TrajectoryLog[int]:
    return TrajectoryLog(folder, describe, **options)


def fill(log: TrajectoryLog[int], first: int, count: int, size: int = 20) -> None:
    for number in range(first, first + count):
        data = f"id{number}:".encode() + bytes([number % 251]) * size
        log.append(f"id{number}", len(data), data)


def ids(log: TrajectoryLog[int]) -> list[str]:
    return [record.trajectory_id for record in log.pending()]


def test_what_was_appended_is_there_after_a_restart_oldest_first(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 3)
    before = log.pending()
    log.close()
    again = opened(tmp_path)
    assert again.pending() == before and ids(again) == ["id0", "id1", "id2"]
    assert again.knows("id1") and not again.knows("id3")
    fill(again, 3, 1)
    assert [record.sequence for record in again.pending()] == [0, 1, 2, 3]


def test_after_a_crash_what_no_checkpoint_consumed_is_pending_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 4)
    log.consume([0, 2])
    cursor = log.cursor()
    log.consume([1])  # after the checkpoint: lost with the weights it went into
    fill(log, 4, 1)
    log.close()
    again = opened(tmp_path)
    again.restore(cursor)
    assert ids(again) == ["id1", "id3", "id4"]


def test_a_checkpoint_that_names_a_missing_record_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 2)
    with pytest.raises(DataLoss, match="missing"):
        log.restore(Cursor(9, (1, 7)))


def test_a_torn_last_record_is_cut_off_and_the_log_goes_on(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 3)
    log.close()
    (path,) = tmp_path.glob("segment-*")
    whole = path.read_bytes()
    length = len(whole) // 3
    for size in range(2 * length, len(whole)):
        path.write_bytes(whole[:size])
        again = opened(tmp_path)
        assert ids(again) == ["id0", "id1"]
        fill(again, 2, 1)
        again.close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("segments", [1, 3])
def test_damage_is_said_never_skipped(tmp_path: Path, segments: int) -> None:
    log = opened(tmp_path, segment_bytes=1 if segments > 1 else 1 << 20)
    fill(log, 0, 3)
    log.close()
    path = sorted(tmp_path.glob("segment-*"))[0]
    whole = path.read_bytes()
    first_record = len(whole) if segments > 1 else len(whole) // 3
    for at in range(first_record):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(DataLoss, match="damaged at byte 0"):
            opened(tmp_path)
    path.write_bytes(whole)
    assert len(opened(tmp_path)) == 3


def test_segments_wholly_consumed_go_and_their_ids_stay_known(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=100)
    fill(log, 0, 10)
    assert len(list(tmp_path.glob("segment-*"))) > 2
    log.consume([0, 1, 2, 3, 4, 5, 7])
    cursor = log.cursor()
    assert log.compact() >= 1
    assert log.compact() == 0
    log.close()
    again = opened(tmp_path, segment_bytes=100)
    again.restore(cursor)
    assert ids(again) == ["id6", "id8", "id9"]
    assert all(again.knows(f"id{number}") for number in range(10))
    fill(again, 10, 1)
    assert again.pending()[-1].sequence == 10


def test_sequence_numbers_go_on_when_everything_was_consumed_and_deleted(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1)
    fill(log, 0, 3)
    log.consume([0, 1, 2])
    cursor = log.cursor()
    log.compact()
    log.close()
    for path in tmp_path.glob("segment-*"):
        path.unlink()
    again = opened(tmp_path)
    again.restore(cursor)
    fill(again, 3, 1)
    assert [record.sequence for record in again.pending()] == [3]


def test_two_learners_cannot_share_a_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(FailedPrecondition, match="in use"):
        opened(tmp_path)
    log.close()
    opened(tmp_path).close()


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, sync=True)
    fill(log, 0, 1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            fill(log, 1, 1)
    assert not log.knows("id1")
    fill(log, 1, 1)
    log.close()
    assert ids(opened(tmp_path)) == ["id0", "id1"]


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_buffer import describe
from learner.buffer import TrajectoryLog
log = TrajectoryLog(Path(sys.argv[1]), describe)
number = 0
while True:
    data = f"id{number}:".encode() + b"x" * 5000
    log.append(f"id{number}", len(data), data)
    print(number, flush=True)  # the acknowledgement
    number += 1
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline().strip() for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    acknowledged += child.stdout.read().split()
    child.wait(10)
    stored = ids(opened(tmp_path))
    assert len(acknowledged) >= 200
    assert stored[: len(acknowledged)] == [f"id{number}" for number in acknowledged]


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "consume", "checkpoint", "crash"]), st.integers(0, 5)), max_size=40
)


def run(log: TrajectoryLog[int], steps: list[Step], reopen: Callable[[], TrajectoryLog[int]]) -> None:
    """Against a model: the ids pending now, and those pending at the last checkpoint."""
    cursor, number = log.cursor(), 0
    pending: list[str] = []
    kept: list[str] = []
    for what, amount in steps:
        if what == "append":
            fill(log, number, amount)
            new = [f"id{i}" for i in range(number, number + amount)]
            number, pending, kept = number + amount, pending + new, kept + new
        elif what == "consume":
            log.consume([record.sequence for record in log.pending()[:amount]])
            pending = pending[amount:]
        elif what == "checkpoint":
            cursor, kept = log.cursor(), list(pending)
            log.compact()
        else:
            log.close()
            log = reopen()
            log.restore(cursor)
            pending = list(kept)
        assert ids(log) == pending
        assert all(log.knows(f"id{i}") for i in range(number))
    log.close()


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_appends_consumptions_checkpoints_and_crashes(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    run(opened(folder, segment_bytes=90), steps, lambda: opened(folder, segment_bytes=90))
