"""The decoupled PPO update: its objective, its masks, and what every option does."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from flow_parts import make_batch, make_policy, observations, sample
from torch import Tensor

from landbridge.errors import InvalidArgument
from landbridge.policies.flow import FlowPolicy, NoiseKind
from landbridge.policies.protocol import Evaluation
from learner.algorithms import ppo
from learner.algorithms.batch import DecisionBatch
from learner.algorithms.metrics import UpdateMetrics, approximate_kl
from learner.algorithms.ppo import Normaliser, Part, PPOConfig
from learner.algorithms.registry import ALGORITHMS, algorithm

FAST = PPOConfig(learning_rate=3e-4, minibatch=16, epochs=3, target_kl=0.0, critic_warmup=0)


def run(
    policy: FlowPolicy, batch: DecisionBatch, config: PPOConfig = FAST, updates_done: int = 0, seed: int = 0
) -> UpdateMetrics:
    optimizers = ppo.make_optimizers(policy, config)
    return ppo.update(policy, optimizers, batch, config, torch.Generator().manual_seed(seed), updates_done=updates_done)


def weights(policy: FlowPolicy, which: str = "actor") -> list[Tensor]:
    parameters = policy.actor_parameters() if which == "actor" else policy.critic_parameters()
    return [p.detach().clone() for p in parameters]


def moved(before: list[Tensor], after: list[Tensor]) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def toy(behaviour: list[float], advantages: list[float], valid: list[bool] | None = None) -> DecisionBatch:
    """Decisions of one step each, with no observations: for formulas."""
    count = len(behaviour)
    return DecisionBatch(
        obs={},
        trace={},
        behaviour_log_prob=torch.tensor(behaviour)[:, None],
        executed=torch.ones(count, dtype=torch.int64),
        advantages=torch.tensor(advantages),
        returns=torch.zeros(count),
        old_values=torch.zeros(count),
        valid=torch.tensor(valid or [True] * count),
        versions=torch.zeros(count, dtype=torch.int64),
    )


def actor_loss(
    current: list[float], proximal: list[float], batch: DecisionBatch, config: PPOConfig
) -> tuple[float, ppo.LossMetrics]:
    behaviour = ppo.aggregate(batch.behaviour_log_prob, batch, config.aggregate)
    new = torch.tensor(proximal)
    part = Part(batch, new, behaviour, *ppo.importance(new, behaviour, batch.valid, config))
    evaluation = Evaluation(torch.tensor(current)[:, None], torch.zeros(len(current), 1), torch.zeros(len(current)))
    loss, metrics = ppo.ppo_loss(evaluation, part, config, Normaliser.of([part]))
    return float(loss), metrics


LOG = math.log


@pytest.mark.parametrize("kind", list(NoiseKind))
@pytest.mark.parametrize("micro_batch", [0, 7])
def test_at_learning_rate_zero_the_ratio_is_exactly_one_on_every_minibatch(kind: NoiseKind, micro_batch: int) -> None:
    policy = make_policy(kind)
    batch = make_batch(policy, 50)
    config = dataclasses.replace(FAST, learning_rate=0.0, micro_batch=micro_batch)
    metrics = run(policy, batch, config)
    assert metrics.ratio_min == metrics.ratio_max == 1.0
    assert metrics.clip_fraction == 0.0 and metrics.kl == 0.0
    assert metrics.behaviour_gap_max < 1e-4, "served and recomputed log-probabilities differ by rounding only"
    assert metrics.actor_epochs == 3 and metrics.decisions == 50


def test_the_objective_clips_around_the_proximal_policy_and_weighs_by_proximal_over_behaviour() -> None:
    # r = 1.5, clipped to 1.2; w = 1.25; A = 2: −1.25·1.2·2 = −3. The ratio to behaviour, 1.875, appears nowhere.
    loss, metrics = actor_loss([LOG(1.5)], [0.0], toy([-LOG(1.25)], [2.0]), PPOConfig())
    assert loss == pytest.approx(-3.0, rel=1e-5)
    assert metrics.clipped.tolist() == [True]
    # A < 0 takes the worse of both: r·A = −3 against −2.4.
    loss, _ = actor_loss([LOG(1.5)], [0.0], toy([-LOG(1.25)], [-2.0]), PPOConfig())
    assert loss == pytest.approx(1.25 * 3.0, rel=1e-5)


def test_the_clip_is_asymmetric() -> None:
    config = PPOConfig(clip_low=0.1, clip_high=0.3)
    up, _ = actor_loss([LOG(2.0)], [0.0], toy([0.0], [1.0]), config)
    down, _ = actor_loss([LOG(0.5)], [0.0], toy([0.0], [-1.0]), config)
    assert (up, down) == (pytest.approx(-1.3, rel=1e-5), pytest.approx(0.9, rel=1e-5))


def test_dual_clip_bounds_the_loss_of_bad_actions_only() -> None:
    config = PPOConfig(dual_clip=3.0)
    assert actor_loss([LOG(10.0)], [0.0], toy([0.0], [-1.0]), PPOConfig())[0] == pytest.approx(10.0, rel=1e-5)
    assert actor_loss([LOG(10.0)], [0.0], toy([0.0], [-1.0]), config)[0] == pytest.approx(3.0, rel=1e-5)
    assert actor_loss([LOG(10.0)], [0.0], toy([0.0], [1.0]), config)[0] == pytest.approx(-1.2, rel=1e-5)
    with pytest.raises(ValueError, match="greater than 1"):
        PPOConfig(dual_clip=0.5)


def test_weights_above_the_cap_are_truncated_or_leave_numerator_and_denominator() -> None:
    batch = toy([-LOG(8.0), 0.0], [1.0, 3.0])
    truncated, _ = actor_loss([0.0, 0.0], [0.0, 0.0], batch, PPOConfig(weight_cap=2.0))
    assert truncated == pytest.approx(-(2.0 * 1.0 + 3.0) / 2, rel=1e-5)
    masked, metrics = actor_loss([0.0, 0.0], [0.0, 0.0], batch, PPOConfig(weight_cap=2.0, weight_mode="mask"))
    assert masked == pytest.approx(-3.0, rel=1e-5), "one decision over a count of one, not of two"
    assert len(metrics.log_ratio) == 1
    wide, _ = actor_loss([0.0, 0.0], [0.0, 0.0], batch, PPOConfig(weight_cap=10.0))
    assert wide == pytest.approx(-(8.0 + 3.0) / 2, rel=1e-5)


def test_importance_weights_carry_no_gradient() -> None:
    proximal = torch.zeros(2, requires_grad=True)
    weight, _ = ppo.importance(proximal, torch.tensor([-0.1, 0.2]), torch.ones(2, dtype=torch.bool), PPOConfig())
    assert not weight.requires_grad


def test_invalid_decisions_weigh_nothing_even_when_they_hold_nonsense() -> None:
    alone, _ = actor_loss([0.1], [0.0], toy([0.0], [2.0]), PPOConfig())
    batch = toy([0.0, math.nan], [2.0, math.nan], [True, False])
    loss, _ = actor_loss([0.1, math.nan], [0.0, math.nan], batch, PPOConfig())
    assert loss == pytest.approx(alone)


def test_an_invalid_decision_has_no_part_in_the_value_loss() -> None:
    batch = dataclasses.replace(toy([0.0] * 3, [0.0] * 3, [True, False, True]), returns=torch.tensor([1.0, 50.0, 3.0]))
    fixed = torch.zeros(3)
    part = Part(batch, fixed, fixed, fixed, batch.valid)
    loss = ppo.critic_loss(torch.zeros(3), part, PPOConfig(huber_delta=0.0), Normaliser.of([part]))
    assert float(loss) == (0.5 * 1.0 + 0.5 * 9.0) / 2


def test_log_probabilities_are_taken_over_executed_steps() -> None:
    batch = dataclasses.replace(
        toy([0.0, 0.0], [1.0, 1.0]), behaviour_log_prob=torch.zeros(2, 4), executed=torch.tensor([2, 4])
    )
    log_prob = torch.tensor([[1.0, 2.0, 50.0, math.nan], [1.0, 1.0, 1.0, 1.0]])
    assert ppo.aggregate(log_prob, batch, "sum").tolist() == [3.0, 4.0]
    assert ppo.aggregate(log_prob, batch, "mean").tolist() == [1.5, 1.0]


def test_aggregation_by_mean_shrinks_the_ratio() -> None:
    policy = make_policy()
    batch = make_batch(policy, 64)
    spreads = {}
    for how in ("sum", "mean"):
        metrics = run(make_policy(), batch, dataclasses.replace(FAST, aggregate=how))
        spreads[how] = metrics.ratio_max - metrics.ratio_min
    assert 0 < spreads["mean"] < spreads["sum"]


def test_advantages_are_normalised_over_valid_entries_of_the_whole_batch() -> None:
    advantages, valid = torch.tensor([1.0, 3.0, 1e6, 5.0]), torch.tensor([True, True, False, True])
    made = ppo.normalise(advantages, valid)
    assert made[2] == 0.0
    assert float(made[valid].mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(made[valid].std(correction=0)) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("advantages", [[4.0], [2.0, 2.0]])
def test_one_advantage_or_equal_ones_normalise_to_zero_and_not_to_nan(advantages: list[float]) -> None:
    assert not ppo.normalise(torch.tensor(advantages), torch.ones(len(advantages), dtype=torch.bool)).any()
    assert not ppo.normalise(torch.tensor(advantages), torch.zeros(len(advantages), dtype=torch.bool)).any()


def test_advantages_are_normalised_only_when_asked() -> None:
    policy, generator = make_policy(), torch.Generator()
    batch = dataclasses.replace(make_batch(policy, 20), advantages=torch.full((20,), 5.0))
    for wanted, number in ((True, 0.0), (False, 5.0)):
        parts = ppo.prepare(policy, batch, dataclasses.replace(FAST, normalise_advantages=wanted), generator)
        assert all(float(a) == number for minibatch in parts for part in minibatch for a in part.batch.advantages)


def gradients(parts: list[int], weight_mode: str) -> list[Tensor]:
    """Of the whole loss over one minibatch of 40 cut into ``parts``; old samples, partly above the cap."""
    policy = make_policy(NoiseKind.NOISE)
    batch = make_batch(policy, 40)
    shift = torch.linspace(-1.5, 1.5, 40)[:, None] / 4
    batch = dataclasses.replace(batch, behaviour_log_prob=batch.behaviour_log_prob - shift)
    valid = batch.valid.clone()
    valid[[3, 4, 5, 30]] = False
    batch = dataclasses.replace(batch, valid=valid)
    config = PPOConfig(weight_cap=1.2, weight_mode=weight_mode, entropy_bonus=0.1, clip_low=0.05, clip_high=0.05)
    pieces = [ppo._part(policy, batch.rows(index), config) for index in torch.split(torch.arange(40), parts)]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.01)  # away from r = 1, so that clips bite
    normaliser = Normaliser.of(pieces)
    assert 0 < normaliser.actor <= normaliser.critic == 36
    for piece in pieces:
        ppo.ppo_loss(policy.evaluate(piece.batch.obs, piece.batch.trace), piece, config, normaliser)[0].backward()
    return [p.grad for p in policy.parameters() if p.grad is not None]


@pytest.mark.parametrize("weight_mode", ["truncate", "mask"])
@pytest.mark.parametrize("parts", [[20, 20], [1, 39], [7, 3, 30], [4, 2, 34]])
def test_any_partition_into_micro_batches_gives_the_same_gradient(parts: list[int], weight_mode: str) -> None:
    whole, cut = gradients([40], weight_mode), gradients(parts, weight_mode)
    assert len(whole) == len(cut) > 10
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_micro_batches_train_to_the_same_weights() -> None:
    ends = []
    for micro_batch in (0, 5):
        policy = make_policy()
        run(policy, make_batch(policy, 48), dataclasses.replace(FAST, micro_batch=micro_batch, epochs=1))
        ends.append(weights(policy))
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)


def test_a_batch_is_dealt_evenly_and_every_decision_once() -> None:
    policy = make_policy()
    config = dataclasses.replace(FAST, minibatch=16, micro_batch=6)
    dealt = ppo.prepare(policy, make_batch(policy, 33), config, torch.Generator())
    assert [sum(len(p.batch) for p in minibatch) for minibatch in dealt] == [11, 11, 11], "no minibatch of one"
    assert [len(p.batch) for p in dealt[0]] == [6, 5]
    states = torch.cat([p.batch.obs["state"] for minibatch in dealt for p in minibatch])
    assert torch.equal(states.sort(0).values, observations(33)["state"].sort(0).values)


def test_decisions_without_target_or_executed_steps_change_nothing() -> None:
    clean, soiled = make_policy(), make_policy()
    batch = make_batch(clean, 30)
    more = batch.rows(torch.cat([torch.arange(30), torch.arange(4)]))
    for field, values in {
        "valid": torch.tensor([False, False, True, True]),
        "executed": torch.tensor([4, 4, 0, 0]),
        "advantages": torch.tensor([math.nan, 9.0, 9.0, 1e9]),
        "returns": torch.full((4,), math.nan),
        "versions": torch.zeros(4, dtype=torch.int64),
    }.items():
        more = dataclasses.replace(more, **{field: torch.cat([getattr(batch, field), values])})
    run(clean, batch)
    metrics = run(soiled, more)
    assert metrics.decisions == 30 and (metrics.oldest_version, metrics.newest_version) == (7, 7)
    for one, other in zip(weights(clean), weights(soiled), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="nothing to train on"):
        run(soiled, dataclasses.replace(more, valid=torch.zeros(34, dtype=torch.bool)))


def test_training_makes_good_actions_likelier_and_bad_ones_less_likely() -> None:
    policy = make_policy()
    batch = make_batch(policy, 128)
    batch = dataclasses.replace(batch, advantages=torch.where(torch.arange(128) % 2 == 0, 1.0, -1.0))
    before = policy.evaluate(batch.obs, batch.trace, with_value=False).log_prob.detach()
    run(policy, batch, dataclasses.replace(FAST, epochs=5))
    after = policy.evaluate(batch.obs, batch.trace, with_value=False).log_prob.detach()
    change = ppo.aggregate(after - before, batch, "sum")
    assert float(change[::2].mean()) > 0.01 and float(change[1::2].mean()) < -0.01


def test_the_critic_learns_its_returns() -> None:
    policy = make_policy()
    batch = make_batch(policy, 128)
    batch = dataclasses.replace(batch, returns=batch.obs["state"][:, 0])
    config = dataclasses.replace(FAST, critic_learning_rate=1e-2, epochs=20)
    first, second = run(policy, batch, config), None
    second = run(policy, dataclasses.replace(batch, old_values=policy.value(batch.obs).detach()), config)
    assert first.explained_variance < 0.5 < 0.9 < second.explained_variance
    assert second.value_loss < 0.1 * first.value_loss


def test_warm_up_trains_the_critic_alone() -> None:
    policy = make_policy()
    batch, config = make_batch(policy, 40), dataclasses.replace(FAST, critic_warmup=2)
    actor, critic = weights(policy), weights(policy, "critic")
    for done in (0, 1):
        metrics = run(policy, batch, config, updates_done=done)
        assert metrics.actor_epochs == 0 and math.isnan(metrics.actor_loss) and "kl" not in metrics.as_dict()
    assert not moved(actor, weights(policy)) and moved(critic, weights(policy, "critic"))
    run(policy, batch, config, updates_done=2)
    assert moved(actor, weights(policy))


def test_the_kl_stop_ends_the_actors_epochs_and_not_the_critics() -> None:
    policy = make_policy()
    batch = make_batch(policy, 64)
    config = dataclasses.replace(FAST, learning_rate=3e-3, epochs=6)
    free = run(make_policy(), batch, config)
    assert free.actor_epochs == 6
    count: list[int] = []
    optimizers = ppo.make_optimizers(policy, config)
    stopped = ppo.update(
        policy,
        optimizers,
        batch,
        dataclasses.replace(config, target_kl=1e-4),
        torch.Generator().manual_seed(0),
        updates_done=0,
        between=lambda: count.append(1),
    )
    assert stopped.actor_epochs == 1 and stopped.kl > 1e-4
    assert len(count) == 6 * 4, "the critic went on"
    assert optimizers.critic.state[policy.critic_parameters()[0]]["step"] == 24
    assert optimizers.actor.state[policy.actor_parameters()[0]]["step"] == 4


def test_the_kl_check_before_every_step_stops_within_the_epoch() -> None:
    policy = make_policy()
    config = dataclasses.replace(FAST, learning_rate=3e-3, epochs=6, target_kl=1e-4, kl_check="minibatch")
    optimizers = ppo.make_optimizers(policy, config)
    batch = make_batch(policy, 64)
    metrics = ppo.update(policy, optimizers, batch, config, torch.Generator().manual_seed(0), updates_done=0)
    assert metrics.actor_epochs == 1
    assert optimizers.actor.state[policy.actor_parameters()[0]]["step"] == 1, "the second step was found too far off"
    assert optimizers.critic.state[policy.critic_parameters()[0]]["step"] == 24


def test_the_kl_estimate_is_k3() -> None:
    log_ratio = torch.tensor([0.3, -0.2, 0.0])
    wanted = sum(math.exp(x) - 1 - x for x in (0.3, -0.2, 0.0)) / 3
    assert approximate_kl(log_ratio) == pytest.approx(wanted, rel=1e-4)
    assert approximate_kl(torch.zeros(0)) == 0.0


@pytest.mark.parametrize("what", ["returns", "advantages"])
def test_a_loss_that_is_not_finite_stops_with_the_weights_as_they_were(what: str) -> None:
    policy = make_policy()
    bad = torch.full((20,), math.nan)
    batch = dataclasses.replace(make_batch(policy, 20), **{what: bad})
    actor, critic = weights(policy), weights(policy, "critic")
    with pytest.raises(ppo.TrainingDiverged, match="the step was not taken"):
        run(policy, batch, dataclasses.replace(FAST, minibatch=64))
    assert not moved(actor, weights(policy)) and not moved(critic, weights(policy, "critic"))


def test_or_the_step_is_skipped_and_counted() -> None:
    policy = make_policy()
    batch = make_batch(policy, 32)
    returns = batch.returns.clone()
    returns[5] = math.inf
    config = dataclasses.replace(FAST, on_nan="skip", epochs=2)
    metrics = run(policy, dataclasses.replace(batch, returns=returns), config)
    assert metrics.skipped_steps == 2, "one of two minibatches, in each of two epochs"
    assert all(bool(torch.isfinite(w).all()) for w in weights(policy) + weights(policy, "critic"))
    assert math.isfinite(metrics.actor_loss) and math.isfinite(metrics.value_loss)


def test_a_minibatch_whose_every_decision_is_masked_does_not_move_the_actor() -> None:
    policy = make_policy()
    batch = make_batch(policy, 20)
    config = dataclasses.replace(FAST, weight_mode="mask", epochs=1, minibatch=64)
    optimizers = ppo.make_optimizers(policy, config)
    ppo.update(policy, optimizers, batch, config, torch.Generator(), updates_done=0)
    actor = weights(policy)
    far = dataclasses.replace(batch, behaviour_log_prob=batch.behaviour_log_prob - 5.0)
    metrics = ppo.update(policy, optimizers, far, config, torch.Generator(), updates_done=1)
    assert metrics.masked_fraction == 1.0
    assert not moved(actor, weights(policy)), "Adam's momentum is not a gradient"


def test_gradients_are_clipped_for_actor_and_critic_apart() -> None:
    policy = make_policy()
    batch = dataclasses.replace(make_batch(policy, 16), returns=torch.full((16,), 1000.0))
    config = dataclasses.replace(FAST, epochs=1, minibatch=64, huber_delta=0.0, max_grad_norm=0.5)
    metrics = run(policy, batch, config)
    assert metrics.critic_grad_norm > 50 > metrics.actor_grad_norm, "norms are reported from before the clip"

    def norm(which: str) -> float:
        parameters = policy.actor_parameters() if which == "actor" else policy.critic_parameters()
        return float(torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm())

    assert norm("critic") == pytest.approx(0.5, rel=1e-3)
    assert 0 < norm("actor") <= 0.5 * 1.001
    run(policy, batch, dataclasses.replace(config, max_grad_norm=0.0))
    assert norm("critic") > 50


def test_the_value_loss_is_huber_or_squared_and_clipped_around_old_values() -> None:
    batch = dataclasses.replace(toy([0.0, 0.0], [0.0, 0.0]), returns=torch.tensor([0.0, 0.0]))
    values = torch.tensor([1.0, 4.0])
    assert ppo.critic_terms(values, batch, PPOConfig(huber_delta=2.0)).tolist() == [0.5, 2.0 * (4.0 - 1.0)]
    assert ppo.critic_terms(values, batch, PPOConfig(huber_delta=0.0)).tolist() == [0.5, 8.0]
    old = dataclasses.replace(batch, old_values=torch.tensor([2.0, 4.0]))
    clipped = ppo.critic_terms(values, old, PPOConfig(huber_delta=0.0, value_clip=0.5))
    assert clipped.tolist() == [0.5 * 1.5**2, 8.0], "1.0 may not count as better than 2.0 − 0.5"


def test_the_entropy_bonus_widens_learned_noise() -> None:
    entropies = []
    for bonus in (0.0, 1.0):
        policy = make_policy(NoiseKind.NOISE)
        batch = dataclasses.replace(make_batch(policy, 32), advantages=torch.zeros(32))
        run(policy, batch, dataclasses.replace(FAST, entropy_bonus=bonus, learning_rate=1e-3, epochs=5))
        entropies.append(float(policy.evaluate(batch.obs, batch.trace).entropy.detach().mean()))
    assert entropies[1] > entropies[0] + 0.01


def test_learning_rates_reach_their_optimizers() -> None:
    made = ppo.make_optimizers(make_policy(), PPOConfig(learning_rate=1e-5, critic_learning_rate=1e-2))
    assert made.actor.param_groups[0]["lr"] == 1e-5 and made.critic.param_groups[0]["lr"] == 1e-2


def test_the_actors_learning_rate_halves_and_the_critics_stays() -> None:
    policy = make_policy()
    batch, halving = make_batch(policy, 40), dataclasses.replace(FAST, learning_rate_half_life=10.0)
    optimizers = ppo.make_optimizers(policy, halving)
    for done, rate in ((0, 3e-4), (10, 1.5e-4), (25, 3e-4 * 2**-2.5)):
        generator = torch.Generator().manual_seed(0)
        metrics = ppo.update(policy, optimizers, batch, halving, generator, updates_done=done)
        assert metrics.learning_rate == optimizers.actor.param_groups[0]["lr"] == pytest.approx(rate)
        assert optimizers.critic.param_groups[0]["lr"] == halving.critic_learning_rate
    assert run(policy, batch, FAST, updates_done=25).learning_rate == 3e-4


def test_imitation_pulls_the_actor_towards_demonstrations_with_its_weight_and_leaves_the_critic() -> None:
    def trained(weight: float) -> tuple[FlowPolicy, UpdateMetrics, float]:
        policy = make_policy()
        config = dataclasses.replace(FAST, imitation_weight=weight, learning_rate=3e-3, minibatch=64, epochs=20)
        shown = policy.to_physical(torch.full((16, policy.horizon, 3), 0.5))
        demos, everything = observations(16), torch.ones(16, policy.horizon, dtype=torch.bool)

        def loss(generator: torch.Generator) -> Tensor:
            return policy.flow_matching_loss(demos, shown, everything, generator)

        still = dataclasses.replace(make_batch(policy, 40), advantages=torch.zeros(40))
        optimizers = ppo.make_optimizers(policy, config)
        generator = torch.Generator().manual_seed(0)
        metrics = ppo.update(policy, optimizers, still, config, generator, updates_done=0, imitation=loss)
        return policy, metrics, float(loss(torch.Generator().manual_seed(1)).detach())

    (plain, unmoved, before), (pulled, metrics, after) = trained(0.0), trained(1.0)
    assert "imitation_loss" not in unmoved.as_dict() and metrics.imitation_loss > 0.0
    assert not moved(weights(plain), weights(make_policy())) and after < 0.9 * before
    assert not moved(weights(plain, "critic"), weights(pulled, "critic"))


def test_the_same_seed_trains_to_the_same_weights() -> None:
    ends = []
    for seed in (3, 3, 4):
        policy = make_policy()
        run(policy, make_batch(policy, 40), seed=seed)
        ends.append(weights(policy))
    assert not moved(ends[0], ends[1]) and moved(ends[0], ends[2])


def test_old_samples_are_reported_as_such() -> None:
    policy = make_policy()
    batch = make_batch(policy, 40)
    batch = dataclasses.replace(
        batch,
        behaviour_log_prob=batch.behaviour_log_prob + 0.1,
        executed=torch.full((40,), 4),
        versions=torch.arange(40),
    )
    metrics = run(policy, batch)
    assert metrics.behaviour_gap_max == pytest.approx(0.4, abs=1e-4)
    assert metrics.behaviour_kl == pytest.approx(math.expm1(-0.4) + 0.4, abs=1e-4)
    assert (metrics.oldest_version, metrics.newest_version) == (0, 39)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"advantages": torch.zeros(4, 1)}, r"advantages is \[N\]"),
        ({"returns": torch.zeros(3)}, "returns has 3 rows, executed has 4"),
        ({"obs": {"state": torch.zeros(5, 6)}}, r"obs\['state'\] has 5 rows"),
        ({"valid": torch.ones(4)}, "valid is bool"),
        ({"behaviour_log_prob": torch.zeros(4)}, r"behaviour_log_prob is \[N, H\]"),
    ],
)
def test_a_batch_whose_tensors_would_broadcast_is_refused(change: dict[str, object], message: str) -> None:
    batch = make_batch(make_policy(), 4)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(batch, **change)  # type: ignore[arg-type]


def test_a_loss_needs_the_value() -> None:
    policy = make_policy()
    batch = make_batch(policy, 4)
    part = ppo._part(policy, batch, FAST)
    evaluation = policy.evaluate(batch.obs, sample(policy, 4).trace, with_value=False)
    with pytest.raises(ValueError, match="with_value=True"):
        ppo.ppo_loss(evaluation, part, FAST, Normaliser.of([part]))


def test_algorithms_are_found_by_name() -> None:
    assert algorithm("ppo").config is PPOConfig
    assert set(ALGORITHMS) == {made.name for made in ALGORITHMS.values()}
    with pytest.raises(InvalidArgument, match=r"no algorithm 'pppo'; there are \['ppo'\]"):
        algorithm("pppo")
