"""Publishing to real policy servers: changed tensors, restarts, rollbacks, and who hears of it when."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from learning_parts import json_lines
from policy_parts import HASH, assert_is_of_its_version, observation, serving, state_of, write_checkpoint

from landbridge.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable
from landbridge.policy.client import PolicyClient
from learner.publish import Announcements, Published, Publisher
from policy_server.options import PolicyServeConfig
from policy_server.serve import build


def publisher(folder: Path, *addresses: str, **options: object) -> tuple[Publisher, Announcements]:
    announcements = Announcements(keep=2)
    made = Publisher(addresses, HASH, announcements, folder / "swaps.jsonl", **{"timeout": 20.0, **options})  # type: ignore[arg-type]
    made.check_servers(20.0)
    return made, announcements


def version(number: int) -> Published:
    return Published(number, 10 * number, state_of(number))


def test_every_server_serves_a_version_before_it_is_announced(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (one, _), serving(tmp_path / "b") as (two, _):
        made, announcements = publisher(tmp_path, one.address, two.address)
        made.publish(version(0))
        seen: list[tuple[int, int]] = []
        watcher = threading.Thread(
            target=lambda: seen.extend(
                (one.store.current.version, two.store.current.version) for _ in announcements.after(0, 20.0)
            )
        )
        watcher.start()
        made.publish(version(1))
        watcher.join(20.0)
        assert seen == [(1, 1)]
        for server in (one, two):
            with PolicyClient(server.address) as client:
                answer = client.infer(observation(2), seeds=[1, 2])
                assert answer.version == 1
                assert_is_of_its_version(answer, observation(2))


def test_only_changed_tensors_travel_and_the_swap_log_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        made, _ = publisher(tmp_path, server.address)
        first = version(0)
        made.publish(first)
        name = sorted(first.state)[0]
        state = {**first.state, name: first.state[name] + np.float32(1)}
        made.publish(Published(1, 10, state))
        full, part = json_lines(tmp_path / "swaps.jsonl")
        assert (full["version"], full["full"], full["bytes"]) == (0, True, sum(a.nbytes for a in first.state.values()))
        assert (part["version"], part["full"], part["tensors"], part["bytes"]) == (1, False, 1, state[name].nbytes)
        assert part["server"] == server.address and part["push_seconds"] > 0 and part["time"] > full["time"]
        held = server.store.get(1).state
        assert all(np.array_equal(held[key], state[key]) for key in state)


def test_full_pushes_are_full(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        made, _ = publisher(tmp_path, server.address, mode="full")
        for number in range(2):
            made.publish(version(number))
        assert [line["full"] for line in json_lines(tmp_path / "swaps.jsonl")] == [True, True]


def test_a_server_restarted_between_two_versions_gets_the_next_one_whole(tmp_path: Path) -> None:
    made, port = None, 0
    for restart in range(2):
        server = build(PolicyServeConfig(checkpoint=write_checkpoint(tmp_path / "checkpoint"), port=port))
        port = int(server.start().rpartition(":")[2])
        if made is None:
            made, _ = publisher(tmp_path, server.address)
        made.publish(version(1 + restart))
        assert server.store.current.version == 1 + restart
        server.stop(0.0)
    assert [line["full"] for line in json_lines(tmp_path / "swaps.jsonl")] == [True, True]


def test_healing_gives_a_restarted_server_the_newest_and_leaves_a_rollback_alone(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    server = build(PolicyServeConfig(checkpoint=checkpoint, port=0))
    address = server.start()
    made, _ = publisher(tmp_path, address)
    for number in (1, 2):
        made.publish(version(number))
    server.store.activate(1)
    assert made.heal() == [] and server.store.current.version == 1
    server.stop(0.0)
    assert made.heal() == [], "gone: nothing to be done yet"
    again = build(PolicyServeConfig(checkpoint=checkpoint, port=int(address.rpartition(":")[2])))
    again.start()
    try:
        while not (healed := made.heal()):
            time.sleep(0.05)  # until the connection is made again
        assert healed == [address] and again.store.current.version == 2
        assert made.heal() == []
    finally:
        again.stop(0.0)


def test_a_server_that_stays_away_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        made, announcements = publisher(tmp_path, server.address, timeout=1.0)
        server.stop(0.0)
        with pytest.raises(Unavailable, match=server.address):
            made.publish(version(1))
        with pytest.raises(NotFound):
            announcements.get(None)


def test_another_architecture_is_refused_before_anything_is_pushed(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        made = Publisher((server.address,), "0" * 64, Announcements(1), tmp_path / "swaps.jsonl")
        with pytest.raises(FailedPrecondition, match="architecture"):
            made.check_servers(20.0)


def test_a_version_number_with_other_contents_is_an_error(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        made, _ = publisher(tmp_path, server.address)
        with pytest.raises(AlreadyExists):
            made.publish(Published(0, 0, state_of(5)))


def test_announcements_keep_the_newest_few() -> None:
    announcements = Announcements(keep=2)
    for number in range(4):
        announcements.add(Published(number, number, {}))
    assert announcements.get(None).version == 3 and announcements.get(2).version == 2
    with pytest.raises(NotFound, match=r"\[2, 3\]"):
        announcements.get(0)
    assert [p.version for p in announcements.after(2, 0.0)] == [3]
    announcements.close()
    assert announcements.after(3, 20.0) == [] and announcements.closed
