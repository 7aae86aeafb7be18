"""Versions: staged, verified, flipped, kept, rolled back; what is wrong changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from landbridge.errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, LandbridgeError, NotFound
from landbridge.v1 import weights_pb2
from landbridge.weights import State, changed, iter_buckets, make_manifest
from policy_server.weights import Held, Retention, WeightStore

HASH = "a" * 64


def state(version: int) -> dict[str, Any]:
    return {"w": np.full(4, version, np.float32), "fixed": np.ones(2, np.float32)}


def make_store(**retention: Any) -> WeightStore[State]:
    """A store whose modules are the states themselves."""
    return WeightStore(lambda s: s, Held(0, state(0), state(0)), HASH, Retention(**retention))


def push(store: WeightStore[State], version: int, contents: State | None = None, **options: Any) -> Held[State]:
    contents = state(version) if contents is None else contents
    manifest = make_manifest(contents, **({"version": version, "architecture_hash": HASH} | options))
    return store.push(manifest, iter_buckets(contents))[0]


def held(store: WeightStore[State]) -> list[int]:
    return store.versions()


def test_a_push_is_served_at_once_or_held_until_activated() -> None:
    store = make_store()
    push(store, 1)
    assert store.current.version == 1 and store.current.module["w"][0] == 1
    push(store, 2, activate=False)
    assert store.current.version == 1 and held(store) == [0, 1, 2]
    assert store.activate(2) == 1
    assert store.current.version == 2


def test_rolling_back_needs_no_second_push() -> None:
    store = make_store()
    push(store, 1)
    assert store.activate(0) == 1
    assert store.current.version == 0 and store.current.module["w"][0] == 0


def test_a_module_keeps_its_weights_whatever_is_pushed_later() -> None:
    store = make_store()
    first = push(store, 1)
    push(store, 2)
    assert first.module["w"].tolist() == [1] * 4


def test_the_newest_are_kept_and_the_current_one_always() -> None:
    store = make_store(keep=3)
    for version in range(1, 6):
        push(store, version)
    assert held(store) == [3, 4, 5]
    store.activate(3)
    for version in range(6, 9):
        push(store, version, activate=False)
    assert held(store) == [3, 6, 7, 8]


def test_what_has_just_been_staged_is_not_the_first_to_go() -> None:
    store = make_store(keep=1)
    push(store, 9)
    push(store, 5, activate=False)
    assert held(store) == [5, 9]


def test_a_version_that_a_request_named_stays() -> None:
    store = make_store(keep=2)
    push(store, 1)
    assert store.get(1).version == 1
    for version in range(2, 8):
        push(store, version)
    assert held(store) == [1, 6, 7]
    assert [(h.version, pinned) for h, pinned in store.list()] == [(1, True), (6, False), (7, False)]


def test_a_pin_ends_some_time_after_the_last_use() -> None:
    store = make_store(keep=2, pin_seconds=0.0)
    store.get(0)
    for version in range(1, 4):
        push(store, version)
    assert held(store) == [2, 3]


def test_a_client_that_names_every_version_does_not_pin_them_all() -> None:
    store = make_store(keep=2, max_pinned=3)
    for version in range(1, 20):
        push(store, version)
        store.get(version)
    assert held(store) == [16, 17, 18, 19]


def test_some_versions_never_go() -> None:
    store = make_store(keep=2, always=(1,))
    for version in range(1, 6):
        push(store, version)
    assert held(store) == [1, 4, 5]


def test_an_unknown_version_is_not_found_and_what_is_held_is_listed() -> None:
    store = make_store()
    push(store, 1)
    for call in (store.get, store.activate):
        with pytest.raises(NotFound, match=r"version 7 is not held; held are \[0, 1\]"):
            call(7)
    assert store.current.version == 1


def test_changes_are_put_on_their_base() -> None:
    store = make_store()
    push(store, 1)
    part = changed(state(2), state(1))
    assert set(part) == {"w"}
    made = push(store, 2, part, base_version=1)
    assert made.state["w"].tolist() == [2] * 4 and made.state["fixed"].tolist() == [1, 1]


def test_the_base_is_the_version_named_whatever_is_current() -> None:
    store = make_store()
    push(store, 1, state(1) | {"fixed": np.full(2, 7, np.float32)})
    made = push(store, 2, {"w": state(2)["w"]}, base_version=0)
    assert made.state["fixed"].tolist() == [1, 1]


def test_the_same_version_with_the_same_contents_is_accepted_again() -> None:
    store = make_store()
    push(store, 1)
    push(store, 2)
    assert push(store, 1).version == 1
    assert store.current.version == 1


class Broken:
    """A push gone wrong."""

    def __init__(self, error: type[LandbridgeError], contents: State | None = None, **options: Any) -> None:
        self.error, self.contents, self.options = error, contents, options

    def run(self, store: WeightStore[State]) -> None:
        contents = state(2) if self.contents is None else self.contents
        flip, cut = self.options.pop("flip", False), self.options.pop("cut", False)
        manifest = make_manifest(contents, **({"version": 2, "architecture_hash": HASH} | self.options))

        def buckets() -> Iterator[weights_pb2.WeightsBucket]:
            for bucket in list(iter_buckets(contents))[: -1 if cut else None]:
                if flip:
                    bucket.data = bucket.data[:-1] + b"\xff"
                yield bucket

        with pytest.raises(self.error):
            store.push(manifest, buckets())


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(Broken(FailedPrecondition, architecture_hash="b" * 64), id="architecture"),
        pytest.param(Broken(FailedPrecondition, base_version=77), id="base not held"),
        pytest.param(Broken(DataLoss, flip=True), id="checksum"),
        pytest.param(Broken(DataLoss, cut=True), id="missing bytes"),
        pytest.param(Broken(DataLoss, {"w": np.ones(4, np.float32)}), id="missing tensor"),
        pytest.param(Broken(InvalidArgument, state(2) | {"x": np.ones(1)}), id="unknown tensor"),
        pytest.param(Broken(InvalidArgument, state(2) | {"w": np.ones(5, np.float32)}), id="shape"),
        pytest.param(Broken(InvalidArgument, state(2) | {"w": np.ones(4)}), id="dtype"),
        pytest.param(Broken(InvalidArgument, version=-1), id="negative version"),
        pytest.param(Broken(AlreadyExists, state(9), version=1), id="other contents"),
    ],
)
def test_whatever_is_wrong_with_a_push_changes_nothing(broken: Broken) -> None:
    store = make_store()
    before = push(store, 1)
    broken.run(store)
    assert store.current is before and held(store) == [0, 1]
    assert store.current.module["w"].tolist() == [1] * 4


def test_weights_that_do_not_build_change_nothing() -> None:
    def build(made: State) -> State:
        raise RuntimeError("no such layer")

    store = WeightStore(build, Held(0, state(0), state(0)), HASH, Retention())
    with pytest.raises(RuntimeError):
        push(store, 1)
    assert store.current.version == 0 and held(store) == [0]


def test_a_push_that_is_slow_to_arrive_holds_nobody_up() -> None:
    store, arrived, go_on = make_store(), threading.Event(), threading.Event()

    def slow() -> Iterator[weights_pb2.WeightsBucket]:
        arrived.set()
        assert go_on.wait(10)
        yield from iter_buckets(state(1))

    thread = threading.Thread(
        target=lambda: store.push(make_manifest(state(1), version=1, architecture_hash=HASH), slow())
    )
    thread.start()
    assert arrived.wait(10)
    push(store, 2)
    assert store.current.version == 2
    go_on.set()
    thread.join(10)
    assert held(store) == [0, 1, 2]
