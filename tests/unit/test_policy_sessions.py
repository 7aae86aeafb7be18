"""Of one session's requests only the newest counts."""

from __future__ import annotations

import pytest

from landbridge.errors import Aborted
from policy_server.sessions import Sessions, Stamp


def test_observations_in_order_are_fine_and_the_same_one_may_be_asked_about_again() -> None:
    sessions = Sessions()
    for observation in (1, 2, 2, 5):
        sessions.arrive(Stamp("robot", "episode", observation))


def test_an_observation_that_comes_after_a_newer_one_is_aborted_and_the_message_says_what_to_do() -> None:
    sessions = Sessions()
    sessions.arrive(Stamp("robot", "episode", 5))
    with pytest.raises(Aborted, match=r"observation 4 of session 'robot' came after observation 5.*ResetSession"):
        sessions.arrive(Stamp("robot", "episode", 4))
    sessions.arrive(Stamp("robot", "episode", 6))


def test_another_episode_counts_afresh() -> None:
    sessions = Sessions()
    sessions.arrive(Stamp("robot", "one", 50))
    sessions.arrive(Stamp("robot", "two", 1))


def test_a_reset_counts_afresh() -> None:
    sessions = Sessions()
    sessions.arrive(Stamp("robot", "", 50))
    sessions.forget("robot")
    sessions.arrive(Stamp("robot", "", 1))


def test_sessions_do_not_touch_each_other() -> None:
    sessions = Sessions()
    sessions.arrive(Stamp("one", "", 50))
    sessions.arrive(Stamp("two", "", 1))
    sessions.forget("two")
    with pytest.raises(Aborted):
        sessions.arrive(Stamp("one", "", 49))


def test_clients_that_do_not_count_observations_are_never_aborted() -> None:
    sessions = Sessions()
    for _ in range(3):
        sessions.arrive(Stamp("robot"))


def test_memory_is_bounded_and_the_session_unused_for_longest_is_forgotten() -> None:
    sessions = Sessions(limit=2)
    sessions.arrive(Stamp("a", "", 9))
    sessions.arrive(Stamp("b", "", 9))
    sessions.arrive(Stamp("a", "", 9))
    sessions.arrive(Stamp("c", "", 9))
    sessions.arrive(Stamp("b", "", 1))
    with pytest.raises(Aborted):
        sessions.arrive(Stamp("c", "", 1))
