"""Leases: environments come back when their client has vanished, and only then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from landbridge.env import sessions as module
from landbridge.env.sessions import Sessions
from landbridge.errors import InvalidArgument, NotFound, ResourceExhausted


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_LEASE", 0.1)
    monkeypatch.setattr(module, "SWEEP_PERIOD", 0.05)


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    made = Sessions(3, exclusive=False)
    yield made
    made.stop()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_an_expired_lease_frees_its_environments_without_anybody_asking(sessions: Sessions) -> None:
    session = sessions.open("vanished", 2, 0.2)
    assert sessions.free == 1
    eventually(lambda: sessions.free == 3)
    with pytest.raises(NotFound), sessions.entered(session.id):
        pass


def test_every_call_renews_the_lease(sessions: Sessions) -> None:
    session = sessions.open("busy", 2, 0.4)
    for _ in range(8):
        time.sleep(0.1)
        with sessions.entered(session.id):
            pass
    assert sessions.free == 1


def test_a_call_in_flight_keeps_its_lease(sessions: Sessions) -> None:
    session = sessions.open("slow", 3, 0.1)
    with sessions.entered(session.id):
        time.sleep(0.4)
        assert sessions.free == 0
        with pytest.raises(ResourceExhausted, match="slow"):
            sessions.open("other", 1, None)
    eventually(lambda: sessions.free == 3)


def test_a_session_closed_in_mid_call_gives_back_when_the_call_ends(sessions: Sessions) -> None:
    session = sessions.open("leaving", 3, None)
    with sessions.entered(session.id):
        sessions.close(session.id)
        assert sessions.free == 0
        with pytest.raises(NotFound), sessions.entered(session.id):
            pass
    assert sessions.free == 3


@pytest.mark.parametrize("lease", [0.0, -1.0, 601.0])
def test_leases_are_bounded(sessions: Sessions, lease: float) -> None:
    with pytest.raises(InvalidArgument, match="lease"):
        sessions.open("greedy", 1, lease)
    assert sessions.free == 3


@pytest.mark.parametrize("count", [-1, 4])
def test_more_than_there_is_cannot_be_had(sessions: Sessions, count: int) -> None:
    with pytest.raises(InvalidArgument, match="3"):
        sessions.open("greedy", count, None)


def test_no_environment_is_held_twice(sessions: Sessions) -> None:
    held = [sessions.open("one", 1, None) for _ in range(3)]
    assert sorted(slot.backend_id for session in held for slot in session.slots) == [0, 1, 2]
    sessions.close(held[1].id)
    assert [slot.backend_id for slot in sessions.open("next", 0 + 1, None).slots] == [1]
