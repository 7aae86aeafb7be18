"""The log keeps what it was told, refuses what contradicts it, and says what is left to do."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from landbridge.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from robot_bridge.campaign.design import Design, schedule
from robot_bridge.campaign.store import Store

DESIGN = Design(arms={"sft": 0, "rl": 3}, trials=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "run" / "c.sqlite", write=True) as opened:
        yield opened


def test_events_come_back_in_order_and_readers_see_them_at_once(store: Store) -> None:
    store.append("started", 1, 1, seed=7)
    store.append("decision", 1, 1, version=3)
    with Store(store.path) as reader:
        assert [(e.kind, e.trial, e.attempt, e.data) for e in reader.events()] == [
            ("started", 1, 1, {"seed": 7}),
            ("decision", 1, 1, {"version": 3}),
        ]
        assert [e.kind for e in reader.events("decision", 1)] == ["decision"]


def test_every_commit_waits_for_the_disk(store: Store) -> None:
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_trial_has_one_result(store: Store) -> None:
    store.append("finished", 1, 1, success=True)
    with pytest.raises(AlreadyExists, match="finished"):
        store.append("finished", 1, 2, success=False)


def test_a_locked_design_stays(store: Store) -> None:
    assert store.lock(DESIGN) == store.lock(dataclasses.replace(DESIGN, env="elsewhere:1")) == DESIGN.digest()
    with pytest.raises(FailedPrecondition, match="trials was 2, is 3"):
        store.lock(dataclasses.replace(DESIGN, trials=3))
    assert store.design(DESIGN.policy, DESIGN.env) == DESIGN


def test_a_design_changed_in_the_file_is_noticed(store: Store) -> None:
    store.lock(DESIGN)
    store._db.execute("UPDATE events SET data = replace(data, '0.05', '0.20')")
    with pytest.raises(FailedPrecondition, match="digest"):
        store.design()


def test_trials_without_an_end_are_aborted_and_remain(store: Store) -> None:
    store.lock(DESIGN)
    first, second, *others = schedule(DESIGN)
    store.append("started", first.number, 1)
    store.append("finished", first.number, 1, success=True)
    store.append("started", second.number, 1)
    assert store.abort_unfinished("gone") == [second.number]
    assert store.abort_unfinished("gone") == []
    assert store.attempts(second.number) == 1
    assert store.remaining(DESIGN) == [second, *others]


def test_endpoints_may_not_change_between_sessions(store: Store) -> None:
    store.connected(env="cell", architecture="abc")
    store.connected(env="cell", architecture="abc")
    assert len(list(store.events("connected"))) == 1
    with pytest.raises(FailedPrecondition, match=r"env was cell, is arm$"):
        store.connected(env="arm", architecture="abc")


def test_one_process_writes_at_a_time(store: Store) -> None:
    with pytest.raises(Aborted, match="another process"):
        Store(store.path, write=True)
    path = store.path
    store.close()
    Store(path, write=True).close()


def test_files_that_are_no_campaigns_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.sqlite"):
        Store(tmp_path / "none.sqlite")
    (tmp_path / "text").write_text("no database at all, just text of some length" * 40)
    with pytest.raises(FailedPrecondition, match="not a campaign"):
        Store(tmp_path / "text")
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(FailedPrecondition, match="not a campaign"):
        Store(tmp_path / "other.sqlite")
