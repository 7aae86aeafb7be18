"""Advantages over decisions, against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from learner.advantages import End, chunk_rewards, gae


def targets(end: End, final_value: float = 10.0) -> tuple[list[float], list[float], list[bool]]:
    """Three decisions, discount ½ each, λ = ½: r = 1, 2, 4 and V = 3, 2, 1."""
    made = gae(np.array([1.0, 2.0, 4.0]), np.full(3, 0.5), np.array([3.0, 2.0, 1.0]), final_value, end, 0.5)
    return made.advantages.tolist(), made.returns.tolist(), made.valid.tolist()


def test_termination_leaves_nothing_beyond_it() -> None:
    # δ₂ = 4 − 1 = 3;   δ₁ = 2 + ½·1 − 2 = ½;   δ₀ = 1 + ½·2 − 3 = −1
    # A₂ = 3;   A₁ = ½ + ¼·3 = 1.25;   A₀ = −1 + ¼·1.25 = −0.6875
    assert targets(End.TERMINATED) == ([-0.6875, 1.25, 3.0], [2.3125, 3.25, 4.0], [True] * 3)


@pytest.mark.parametrize("end", [End.TRUNCATED, End.CUT])
def test_truncation_bootstraps_from_the_final_observation(end: End) -> None:
    # δ₂ = 4 + ½·10 − 1 = 8;   A₂ = 8;   A₁ = ½ + ¼·8 = 2.5;   A₀ = −1 + ¼·2.5 = −0.375
    assert targets(end) == ([-0.375, 2.5, 8.0], [2.625, 4.5, 9.0], [True] * 3)


def test_no_target_reaches_through_an_abandoned_decision() -> None:
    # A₂ has no target;   A₁ = δ₁ = ½ (it ends at V₂);   A₀ = −1 + ¼·½ = −0.875
    assert targets(End.ABANDONED) == ([-0.875, 0.5, 0.0], [2.125, 2.5, 0.0], [True, True, False])


@pytest.mark.parametrize("end", [End.TERMINATED, End.ABANDONED])
def test_the_final_value_is_not_read_where_the_episode_has_no_continuation(end: End) -> None:
    assert targets(end, float("nan")) == targets(end, 0.0)


def test_an_abandoned_episode_of_one_decision_has_no_target_at_all() -> None:
    made = gae(np.array([1.0]), np.array([0.9]), np.array([0.5]), 7.0, End.ABANDONED, 0.95)
    assert made.valid.tolist() == [False] and made.advantages.tolist() == made.returns.tolist() == [0.0]


def test_rewards_of_a_chunk_are_those_of_its_executed_steps() -> None:
    # γ = ½. Whole chunk: 1 + ½ + ¼·2 + ⅛·8 = 3, γ⁴. Episode over after two steps of the second: 4 + ½·2 = 5, γ².
    rewards = np.array([[1.0, 1.0, 2.0, 8.0], [4.0, 2.0, 100.0, np.nan]])
    total, discount = chunk_rewards(rewards, np.array([4, 2]), 0.5)
    assert total.tolist() == [3.0, 5.0]
    assert discount.tolist() == [0.0625, 0.25]


def test_an_episode_that_ends_in_mid_chunk_is_discounted_by_the_steps_it_had() -> None:
    # Truncated after one step of the second chunk (γ = ½): r = (1 + ½, 2), discounts (¼, ½), V = (1, 4), V_final = 6.
    # δ₁ = 2 + ½·6 − 4 = 1;   δ₀ = 1.5 + ¼·4 − 1 = 1.5;   λ = 1: A₀ = 1.5 + ¼·1 = 1.75
    total, discount = chunk_rewards(np.array([[1.0, 1.0], [2.0, 50.0]]), np.array([2, 1]), 0.5)
    made = gae(total, discount, np.array([1.0, 4.0]), 6.0, End.TRUNCATED, 1.0)
    assert made.advantages.tolist() == [1.75, 1.0]
    assert made.returns.tolist() == [2.75, 5.0]


def test_lambda_one_is_the_discounted_return_and_lambda_zero_the_one_step_error() -> None:
    rng = np.random.default_rng(0)
    rewards, values, discounts = rng.normal(size=6), rng.normal(size=6), rng.uniform(0.8, 1.0, 6)
    whole = gae(rewards, discounts, values, 2.0, End.TRUNCATED, 1.0)
    expected, following = np.zeros(6), 2.0
    for t in range(5, -1, -1):
        expected[t] = following = rewards[t] + discounts[t] * following
    np.testing.assert_allclose(whole.returns, expected, rtol=1e-6)
    step = gae(rewards, discounts, values, 2.0, End.TRUNCATED, 0.0)
    np.testing.assert_allclose(step.returns, rewards + discounts * np.append(values[1:], 2.0), rtol=1e-6)


def test_ends_are_numbered_as_on_the_wire() -> None:
    from landbridge.v1 import learner_pb2

    wire = learner_pb2.Trajectory.End
    assert {end.value: f"END_{end.name}" for end in End} == {n: wire.Name(n) for n in wire.values() if n}


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="equal and > 0"):
        gae(np.ones(2), np.ones(2), np.ones(3), 0.0, End.CUT, 0.9)
    with pytest.raises(ValueError, match="equal and > 0"):
        gae(np.ones(0), np.ones(0), np.ones(0), 0.0, End.CUT, 0.9)
    with pytest.raises(ValueError, match="needed"):
        chunk_rewards(np.ones((2, 4)), np.array([4]), 0.9)
    with pytest.raises(ValueError, match="executed steps 5 to 5 of a chunk of 4"):
        chunk_rewards(np.ones((1, 4)), np.array([5]), 0.9)
