"""Rewards, values and targets of trajectories side by side."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from learner_parts import POLICY, trajectory

from learner.advantages import End
from learner.batches import ReturnConfig, RewardConfig, behaviour_gap, decision_rewards, make_batch

PLAIN = RewardConfig()
F32 = np.float32


def rewards_of(config: RewardConfig, gamma_step: float = 1.0, **changes: object) -> list[float]:
    return decision_rewards(trajectory(**changes), config, gamma_step)[0].tolist()


def test_a_decision_earns_the_discounted_rewards_of_its_executed_steps() -> None:
    made = trajectory(rewards=np.array([[1, 2], [3, 4], [5, 100]], F32), executed=np.array([2, 2, 1]))
    rewards, discounts = decision_rewards(made, RewardConfig(scale=10.0), 0.5)
    assert rewards.tolist() == [20.0, 50.0, 50.0]
    assert discounts.tolist() == [0.25, 0.25, 0.5]


def test_rewards_of_steps_that_were_not_evaluated_do_not_count() -> None:
    evaluated = np.array([[False, True]] * 3)
    assert rewards_of(PLAIN, rewards=np.array([[9, 1], [9, 2], [9, 3]], F32), evaluated=evaluated) == [1, 2, 3]


def test_potential_pays_progress_between_decision_ends() -> None:
    levels = np.array([[0.0, 0.5], [0.9, 0.25], [0.5, 1.0]], F32)
    assert rewards_of(RewardConfig(scale=4.0, potential=True), rewards=levels) == [2.0, -1.0, 3.0]


@pytest.mark.parametrize("executed", [0, 1])
def test_potential_stays_where_a_decision_was_not_evaluated(executed: int) -> None:
    """The last chunk was cut short before its evaluated step: what stands there is never read."""
    made = {
        "rewards": np.array([[0, 0.5], [0, 0.75], [0, 99]], F32),
        "evaluated": np.array([[False, True]] * 3),
        "executed": np.array([2, 2, executed]),
    }
    assert rewards_of(RewardConfig(potential=True), **made) == [0.5, 0.25, 0.0]


def test_success_pays_once_at_the_end_and_every_decision_costs() -> None:
    config = RewardConfig(scale=0.0, success_bonus=3.0, step_penalty=0.5)
    assert rewards_of(config, success_once=True, success_at_end=True) == [-0.5, -0.5, 2.5]
    assert rewards_of(config, success_once=True, success_at_end=False) == [-0.5, -0.5, -0.5]


def test_a_batch_lays_decisions_end_to_end_with_values_of_the_critic() -> None:
    one, two = trajectory(decisions=3, seed=1), trajectory(decisions=2, seed=9, version=4)
    batch = make_batch(POLICY, [one, two], PLAIN, ReturnConfig())
    assert len(batch) == 5 and batch.versions.tolist() == [0, 0, 0, 4, 4]
    with torch.no_grad():
        expected = POLICY.value({"state": torch.from_numpy(two.observation["state"])})
    torch.testing.assert_close(batch.old_values[3:], expected[:-1])
    assert np.array_equal(batch.obs["state"][:3].numpy(), one.observation["state"][:-1])
    assert all(np.array_equal(batch.trace[n][3:].numpy(), two.trace[n]) for n in two.trace)


@pytest.mark.parametrize("end", list(End))
def test_each_way_to_end_has_its_own_target(end: End) -> None:
    made = trajectory(decisions=2, end=end)
    batch = make_batch(POLICY, [made], PLAIN, ReturnConfig(gamma=0.81, lam=1.0))
    with torch.no_grad():
        values = POLICY.value({"state": torch.from_numpy(made.observation["state"])}).double().numpy()
    chunk = 1.0 + 0.9  # two steps of reward 1, γ per step = √0.81
    last = {End.TERMINATED: chunk, End.TRUNCATED: chunk + 0.81 * values[2], End.CUT: chunk + 0.81 * values[2]}
    if end is End.ABANDONED:
        assert batch.valid.tolist() == [True, False]
        expected = [chunk + 0.81 * values[1]]
    else:
        assert batch.valid.tolist() == [True, True]
        expected = [chunk + 0.81 * last[end], last[end]]
    np.testing.assert_allclose(batch.returns.numpy()[: len(expected)], expected, rtol=1e-5)


def test_served_and_recomputed_log_probabilities_agree() -> None:
    batch = make_batch(POLICY, [trajectory(decisions=7, version=3), trajectory(version=2)], PLAIN, ReturnConfig())
    gap = behaviour_gap(POLICY, batch, 3)
    assert gap is not None and gap < 1e-5
    assert behaviour_gap(POLICY, batch, 9) is None


def test_a_gap_in_one_executed_step_shows() -> None:
    made = trajectory(decisions=4)
    log_prob = made.log_prob.copy()
    log_prob[2, 1] += 0.25
    wrong = dataclasses.replace(made, log_prob=log_prob)
    gap = behaviour_gap(POLICY, make_batch(POLICY, [wrong], PLAIN, ReturnConfig()), 0)
    assert gap == pytest.approx(0.25, abs=1e-5)
    unseen = dataclasses.replace(wrong, executed=np.array([2, 2, 1, 2]))
    gap = behaviour_gap(POLICY, make_batch(POLICY, [unseen], PLAIN, ReturnConfig()), 0)
    assert gap is not None and gap < 1e-5
