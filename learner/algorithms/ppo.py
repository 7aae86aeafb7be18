"""Decoupled PPO over action chunks, whole in this file.

Three policies: behaviour μ (sampled the chunk, perhaps some versions ago), proximal π_p (the weights this update
starts from) and current π_θ. With log-probabilities aggregated over the executed steps of a chunk,

    r = π_θ / π_p,     w = min(π_p / μ, cap)           (detached; or masked above the cap)
    L_actor  = − Σ w · min(r·A, clip(r, 1−ε_low, 1+ε_high)·A) / M   −   β · Σ entropy / M
    L_critic =   Σ huber(V, return) / N

where N counts a minibatch's decisions and M those of them that are not masked. Micro-batches divide by the whole
minibatch's counts, so any partition of it gives the same gradient. With dual clip c > 1, decisions with A < 0 use
max(min(…), c·A). Sources: PPO (arXiv 1707.06347), decoupled objective (arXiv 2110.00641; AReaL, arXiv 2505.24298),
dual clip (arXiv 1912.09729).

At learning rate 0, r is exactly 1 and nothing is clipped: proximal log-probabilities are computed here, on the very
micro-batches that are trained on, before the first step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from landbridge.config import option
from landbridge.errors import LandbridgeError
from landbridge.policies.protocol import Evaluation, TrainablePolicy
from learner.algorithms.batch import DecisionBatch
from learner.algorithms.metrics import Recorder, UpdateMetrics, approximate_kl


class TrainingDiverged(LandbridgeError):
    """A loss or gradient is not finite; the weights are those from before the step."""


@dataclass(frozen=True)
class PPOConfig:
    """Options of the update. Defaults are those measured to climb on PickCube (docs/learning.md)."""

    learning_rate: float = option(5e-5, "of the actor (Adam)", minimum=0.0)
    learning_rate_half_life: float = option(
        0.0, "updates after which the actor's learning rate is half of what it was; 0: it stays", minimum=0.0
    )
    critic_learning_rate: float = option(1e-3, "of the critic (Adam)", minimum=0.0)
    critic_warmup: int = option(1, "first updates that train the critic alone", minimum=0)
    clip_low: float = option(0.2, "the ratio is clipped below at 1 - clip_low", minimum=0.0, maximum=1.0)
    clip_high: float = option(0.2, "… and above at 1 + clip_high", minimum=0.0)
    dual_clip: float = option(0.0, "bound on the loss of bad actions (> 1), 0 for none", minimum=0.0)
    aggregate: str = option("sum", "log-probabilities over a chunk's executed steps", choices=("sum", "mean"))
    weight_cap: float = option(2.0, "cap on proximal / behaviour", minimum=1.0)
    weight_mode: str = option("truncate", "what happens above the cap", choices=("truncate", "mask"))
    epochs: int = option(10, "passes over a batch at most", minimum=1)
    minibatch: int = option(1024, "decisions a gradient step at most; a batch is dealt evenly", minimum=1)
    micro_batch: int = option(0, "decisions a forward pass at most (bounds memory), 0 for the minibatch", minimum=0)
    target_kl: float = option(0.05, "stop training the actor above this approximate KL; 0 never", minimum=0.0)
    kl_check: str = option(
        "epoch", "compare after an epoch, or before every gradient step", choices=("epoch", "minibatch")
    )
    normalise_advantages: bool = option(True, "zero mean, unit variance over the batch's valid decisions")
    huber_delta: float = option(10.0, "where the value loss turns linear, 0 for squares throughout", minimum=0.0)
    value_clip: float = option(0.0, "keep values within this of the old ones, 0 for free", minimum=0.0)
    imitation_weight: float = option(
        0.0, "weight of the flow-matching loss on demonstrations (--demos) beside the policy gradient", minimum=0.0
    )
    entropy_bonus: float = option(0.0, "weight of the entropy of learned noise, a mean over steps", minimum=0.0)
    max_grad_norm: float = option(1.0, "gradient norm bound, actor and critic apart, 0 for none", minimum=0.0)
    on_nan: str = option(
        "raise", "a loss or gradient that is not finite: stop, or skip the step", choices=("raise", "skip")
    )

    def __post_init__(self) -> None:
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip {self.dual_clip}: greater than 1 (3 is usual), or 0 for none")


@dataclass(frozen=True)
class Optimizers:
    """One for the policy gradient's parameters, one for the critic's."""

    actor: torch.optim.Optimizer
    critic: torch.optim.Optimizer


def make_optimizers(policy: TrainablePolicy, config: PPOConfig) -> Optimizers:
    """Adam (ε 1e-5, as PPO uses it) with the configured learning rates."""
    return Optimizers(
        torch.optim.Adam(policy.actor_parameters(), lr=config.learning_rate, eps=1e-5),
        torch.optim.Adam(policy.critic_parameters(), lr=config.critic_learning_rate, eps=1e-5),
    )


def actor_learning_rate(config: PPOConfig, updates_done: int) -> float:
    """Of the next update. Late in training an update's noise undoes what a constant rate gains."""
    half_life = config.learning_rate_half_life
    return config.learning_rate * (0.5 ** (updates_done / half_life) if half_life > 0 else 1.0)


@dataclass(frozen=True)
class Part:
    """A micro-batch with what is fixed during an update; [n] each, no gradients.

    batch: advantages already normalised; proximal: aggregated log π_p; behaviour: aggregated log μ; weight: w; kept:
    False where the decision is masked out of the actor's loss.
    """

    batch: DecisionBatch
    proximal: Tensor
    behaviour: Tensor
    weight: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Normaliser:
    """What losses are divided by: M and N of the whole minibatch, whatever part of it is at hand."""

    actor: int
    critic: int

    @staticmethod
    def of(parts: list[Part]) -> Normaliser:
        """Counts over all micro-batches of a minibatch."""
        return Normaliser(sum(int(p.kept.sum()) for p in parts), sum(int(p.batch.valid.sum()) for p in parts))


def normalise(advantages: Tensor, valid: Tensor) -> Tensor:
    """Zero mean and unit variance over valid entries of the whole batch; one entry, or equal ones, give zeros."""
    chosen = advantages[valid]
    if chosen.numel() == 0:
        return torch.zeros_like(advantages)
    centred = advantages - chosen.mean()
    spread = chosen.std(correction=0)
    return torch.where(valid, centred / (spread + 1e-8), torch.zeros_like(advantages))


def aggregate(log_prob: Tensor, batch: DecisionBatch, how: str) -> Tensor:
    """Chunk log-probability [N] from per-step ones [N, H], over executed steps only."""
    mask = batch.step_mask()
    total = torch.where(mask, log_prob, torch.zeros_like(log_prob)).sum(1)
    return total if how == "sum" else total / mask.sum(1).clamp_min(1)


def importance(proximal: Tensor, behaviour: Tensor, valid: Tensor, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """w [N] and which decisions take part [N] bool, from aggregated log-probabilities; no gradient."""
    ratio = torch.exp((proximal - behaviour).detach().clamp(-20.0, 20.0))
    kept = valid & (ratio <= config.weight_cap) if config.weight_mode == "mask" else valid
    return ratio.clamp_max(config.weight_cap), kept


def actor_terms(log_ratio: Tensor, advantages: Tensor, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """The clipped objective per decision (to be maximised) and whether r left the clip's range, both [N]."""
    ratio = torch.exp(log_ratio)
    clipped = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip:
        bounded = torch.maximum(objective, config.dual_clip * advantages)
        objective = torch.where(advantages < 0, bounded, objective)
    return objective, (ratio != clipped)


def critic_terms(values: Tensor, batch: DecisionBatch, config: PPOConfig) -> Tensor:
    """Huber or squared value loss per decision [N], optionally clipped around the old values."""

    def loss(estimate: Tensor) -> Tensor:
        if config.huber_delta > 0:
            return functional.huber_loss(estimate, batch.returns, reduction="none", delta=config.huber_delta)
        return 0.5 * (estimate - batch.returns) ** 2

    if config.value_clip <= 0:
        return loss(values)
    near = batch.old_values + (values - batch.old_values).clamp(-config.value_clip, config.value_clip)
    return torch.maximum(loss(values), loss(near))


@dataclass(frozen=True)
class LossMetrics:
    """Of one micro-batch, detached: its share of both losses, and of the decisions kept [m] log r and clip activity."""

    actor_loss: float
    value_loss: float
    entropy: float
    log_ratio: Tensor
    clipped: Tensor


def critic_loss(values: Tensor, part: Part, config: PPOConfig, normaliser: Normaliser) -> Tensor:
    """This part's share of L_critic."""
    return _masked_sum(critic_terms(values, part.batch, config), part.batch.valid) / max(normaliser.critic, 1)


def ppo_loss(
    evaluation: Evaluation, part: Part, config: PPOConfig, normaliser: Normaliser
) -> tuple[Tensor, LossMetrics]:
    """This part's share of L_actor + L_critic; actor and critic share no parameters, so neither scales the other."""
    log_ratio = aggregate(evaluation.log_prob, part.batch, config.aggregate) - part.proximal
    objective, clipped = actor_terms(log_ratio, part.batch.advantages, config)
    count = max(normaliser.actor, 1)
    entropy = _masked_sum(aggregate(evaluation.entropy, part.batch, "mean"), part.kept) / count
    actor = -_masked_sum(part.weight * objective, part.kept) / count - config.entropy_bonus * entropy
    if evaluation.value is None:
        raise ValueError("the evaluation has no value: call evaluate(..., with_value=True)")
    critic = critic_loss(evaluation.value, part, config, normaliser)
    return actor + critic, LossMetrics(
        float(actor.detach()),
        float(critic.detach()),
        float(entropy.detach()),
        log_ratio.detach()[part.kept],
        clipped[part.kept],
    )


def _masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, torch.zeros_like(values)).sum()


def prepare(
    policy: TrainablePolicy, batch: DecisionBatch, config: PPOConfig, generator: torch.Generator
) -> list[list[Part]]:
    """Deal the batch into minibatches, and those into micro-batches; once, so that every epoch sees the same ones."""
    batch = batch.rows(batch.takes_part().nonzero().squeeze(1))
    if len(batch) == 0:
        raise ValueError("no decision has a target and an executed step: there is nothing to train on")
    if config.normalise_advantages:
        batch = dataclasses.replace(batch, advantages=normalise(batch.advantages, batch.valid))
    order = torch.randperm(len(batch), generator=generator).to(batch.executed.device)
    dealt = torch.tensor_split(order, math.ceil(len(batch) / config.minibatch))
    return [
        [_part(policy, batch.rows(rows), config) for rows in torch.split(index, config.micro_batch or len(index))]
        for index in dealt
    ]


def _part(policy: TrainablePolicy, batch: DecisionBatch, config: PPOConfig) -> Part:
    with torch.no_grad():
        log_prob = policy.evaluate(batch.obs, batch.trace, with_value=False).log_prob
        proximal = aggregate(log_prob, batch, config.aggregate)
        behaviour = aggregate(batch.behaviour_log_prob, batch, config.aggregate)
        return Part(batch, proximal, behaviour, *importance(proximal, behaviour, batch.valid, config))


def update(
    policy: TrainablePolicy,
    optimizers: Optimizers,
    batch: DecisionBatch,
    config: PPOConfig,
    generator: torch.Generator,
    *,
    updates_done: int,
    between: Callable[[], None] = lambda: None,
    imitation: Callable[[torch.Generator], Tensor] | None = None,
) -> UpdateMetrics:
    """Train ``policy`` on ``batch``. ``between`` is called after every minibatch.

    ``imitation`` gives a loss of the policy on demonstrations; with ``imitation_weight`` it joins every gradient step
    of the actor, so that what demonstrations show is kept where the reward does not speak (arXiv 1709.10087).
    ``updates_done`` counts earlier updates: while below ``critic_warmup`` the actor rests. Epochs go through the same
    minibatches in a new order. Raises TrainingDiverged (``on_nan`` = raise), ValueError where nothing has a target.
    """
    minibatches = prepare(policy, batch, config, generator)
    recorder = Recorder()
    parts = [part for minibatch in minibatches for part in minibatch]
    recorder.staleness(*(torch.cat([getattr(p, name) for p in parts]) for name in ("proximal", "behaviour", "kept")))
    recorder.batch(batch)
    rate = actor_learning_rate(config, updates_done)
    for group in optimizers.actor.param_groups:
        group["lr"] = rate
    recorder.learning_rate(rate)
    rehearse = _rehearsal(imitation, config, generator, recorder)
    actor_on = updates_done >= config.critic_warmup
    for _ in range(config.epochs):
        log_ratios: list[Tensor] = []
        for i in torch.randperm(len(minibatches), generator=generator).tolist():
            if actor_on:
                log_ratio = _step_both(policy, optimizers, minibatches[i], config, recorder, rehearse)
                log_ratios.append(log_ratio)
                if config.kl_check == "minibatch" and _too_far(approximate_kl(log_ratio), config):
                    actor_on = False
            else:
                _step_critic(policy, optimizers, minibatches[i], config, recorder)
            between()
        if log_ratios:
            kl = approximate_kl(torch.cat(log_ratios))
            recorder.epoch(kl)
            actor_on = actor_on and not _too_far(kl, config)
    return recorder.result()


def _rehearsal(
    imitation: Callable[[torch.Generator], Tensor] | None,
    config: PPOConfig,
    generator: torch.Generator,
    recorder: Recorder,
) -> Callable[[], None]:
    """Adds the gradient of the imitation loss to what the actor's parameters hold."""
    if imitation is None or not config.imitation_weight:
        return lambda: None
    given = imitation

    def add() -> None:
        loss = given(generator)
        (config.imitation_weight * loss).backward()  # type: ignore[no-untyped-call]
        recorder.imitation(float(loss.detach()))

    return add


def _too_far(kl: float, config: PPOConfig) -> bool:
    return 0 < config.target_kl < kl


def _step_both(
    policy: TrainablePolicy,
    optimizers: Optimizers,
    parts: list[Part],
    config: PPOConfig,
    recorder: Recorder,
    rehearse: Callable[[], None],
) -> Tensor:
    """One gradient step of actor and critic on one minibatch; returns log r of the decisions kept.

    With ``kl_check`` = minibatch the actor does not take the step on which the policy is found too far off.
    """
    normaliser = Normaliser.of(parts)
    _zero(optimizers)
    losses = []
    for part in parts:
        loss, metrics = ppo_loss(policy.evaluate(part.batch.obs, part.batch.trace), part, config, normaliser)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(metrics)
    rehearse()
    log_ratio = torch.cat([m.log_ratio for m in losses])
    value_loss, actor_loss = sum(m.value_loss for m in losses), sum(m.actor_loss for m in losses)
    chosen = {"actor": optimizers.actor, "critic": optimizers.critic}
    stays = config.kl_check == "minibatch" and _too_far(approximate_kl(log_ratio), config)
    if stays or normaliser.actor == 0:  # no gradient is not no step: Adam would move by its momentum
        del chosen["actor"]
    if not _step(chosen, actor_loss + value_loss, config, recorder):
        return log_ratio[:0]
    clipped = torch.cat([m.clipped for m in losses])
    recorder.actor(actor_loss, sum(m.entropy for m in losses), log_ratio, clipped)
    recorder.critic(value_loss)
    return log_ratio


def _step_critic(
    policy: TrainablePolicy, optimizers: Optimizers, parts: list[Part], config: PPOConfig, recorder: Recorder
) -> None:
    normaliser = Normaliser.of(parts)
    _zero(optimizers)
    total = 0.0
    for part in parts:
        loss = critic_loss(policy.value(part.batch.obs), part, config, normaliser)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    if _step({"critic": optimizers.critic}, total, config, recorder):
        recorder.critic(total)


def _zero(optimizers: Optimizers) -> None:
    optimizers.actor.zero_grad(set_to_none=True)
    optimizers.critic.zero_grad(set_to_none=True)


def _step(optimizers: dict[str, torch.optim.Optimizer], loss: float, config: PPOConfig, recorder: Recorder) -> bool:
    """Clip gradients and step, unless something is not finite: then raise, or return False with nothing moved."""
    norms = {}
    for name, optimizer in optimizers.items():
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norms[name] = float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or math.inf))
    if not all(math.isfinite(number) for number in (loss, *norms.values())):
        for optimizer in optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        if config.on_nan == "raise":
            raise TrainingDiverged(
                f"loss {loss}, gradient norms {norms}: the step was not taken; "
                "lower the learning rate or look at the batch's rewards and observations"
            )
        recorder.skipped()
        return False
    for optimizer in optimizers.values():
        optimizer.step()
    recorder.gradients(norms)
    return True
