"""Decoupled PPO over action chunks, whole in this file.

Three policies: behaviour μ (sampled the chunk, perhaps some versions ago), proximal π_p (the weights this update
starts from) and current π_θ. With log-probabilities aggregated over the executed steps of a chunk,

    r = π_θ / π_p,     w = min(π_p / μ, cap)           (detached; or masked above the cap)
    L_actor  = − Σ w · min(r·A, clip(r, 1−ε_low, 1+ε_high)·A) / M
    L_critic =   Σ huber(V, return) / N_valid

where M counts the decisions that are valid and not masked, over the whole batch: any partition into micro-batches
gives the same gradient. With dual clip c > 1, decisions with A < 0 use max(min(…), c·A). Sources: PPO
(arXiv 1707.06347), decoupled objective (arXiv 2110.00641; AReaL, arXiv 2505.24298), dual clip (arXiv 1912.09729).

At learning rate 0, r is exactly 1 and nothing is clipped: proximal log-probabilities are computed here, on the very
minibatches that are trained on, before the first step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from landbridge.config import option
from landbridge.errors import LandbridgeError
from learner.algorithms.batch import DecisionBatch


class TrainingDiverged(LandbridgeError):
    """A loss or gradient is not finite; the weights are those from before the step."""


@dataclass(frozen=True)
class PPOConfig:
    """Options of the update. Defaults are those measured to climb on PickCube (docs/learning.md)."""

    clip_low: float = option(0.2, "the ratio is clipped below at 1 - clip_low", minimum=0.0, maximum=1.0)
    clip_high: float = option(0.2, "… and above at 1 + clip_high", minimum=0.0)
    dual_clip: float = option(0.0, "bound on the loss of bad actions (> 1), 0 for none", minimum=0.0)
    aggregate: str = option("sum", "log-probabilities over a chunk's executed steps", choices=("sum", "mean"))
    weight_cap: float = option(2.0, "cap on proximal / behaviour", minimum=1.0)
    weight_mode: str = option("truncate", "what happens above the cap", choices=("truncate", "mask"))
    epochs: int = option(10, "passes over a batch at most", minimum=1)
    minibatch: int = option(1024, "decisions a gradient step", minimum=1)
    target_kl: float = option(0.05, "stop the actor's epochs above this approximate KL; 0 never", minimum=0.0)
    normalise_advantages: bool = option(True, "zero mean, unit variance over the batch's valid decisions")
    huber_delta: float = option(10.0, "where the value loss turns linear", minimum=0.0)
    value_clip: float = option(0.0, "keep values within this of the old ones, 0 for free", minimum=0.0)
    entropy_bonus: float = option(0.0, "weight of the entropy of learned noise", minimum=0.0)
    max_grad_norm: float = option(1.0, "gradient norm bound, actor and critic apart", minimum=0.0)


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
    ratio = torch.exp((proximal - behaviour).clamp(-20.0, 20.0))
    kept = valid & (ratio <= config.weight_cap) if config.weight_mode == "mask" else valid
    return ratio.clamp_max(config.weight_cap), kept


def actor_terms(log_ratio: Tensor, advantages: Tensor, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """The clipped objective per decision (to be maximised) and whether the clip was active, both [N]."""
    ratio = torch.exp(log_ratio)
    clipped = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip > 1.0:
        bounded = torch.maximum(objective, config.dual_clip * advantages)
        objective = torch.where(advantages < 0, bounded, objective)
    return objective, (ratio != clipped)


def critic_terms(values: Tensor, batch: DecisionBatch, config: PPOConfig) -> Tensor:
    """Huber value loss per decision [N], optionally clipped around the old values."""

    def loss(estimate: Tensor) -> Tensor:
        if config.huber_delta > 0:
            return functional.huber_loss(estimate, batch.returns, reduction="none", delta=config.huber_delta)
        return 0.5 * (estimate - batch.returns) ** 2

    if config.value_clip <= 0:
        return loss(values)
    near = batch.old_values + (values - batch.old_values).clamp(-config.value_clip, config.value_clip)
    return torch.maximum(loss(values), loss(near))


def update(
    policy: Any,
    actor_optimizer: torch.optim.Optimizer,
    critic_optimizer: torch.optim.Optimizer,
    batch: DecisionBatch,
    config: PPOConfig,
    generator: torch.Generator,
    *,
    train_actor: bool = True,
    between: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Train ``policy`` on ``batch`` and return metrics. ``between`` is called after every minibatch.

    Rows are dealt into minibatches once; epochs go through them in a new order. So proximal and current
    log-probabilities see identical batches, and rounding cannot tell them apart.
    """
    advantages = normalise(batch.advantages, batch.valid) if config.normalise_advantages else batch.advantages
    parts = torch.split(torch.randperm(len(batch), generator=generator), config.minibatch)
    minibatches = [batch.rows(index) for index in parts]
    scaled = [advantages[index] for index in parts]
    with torch.no_grad():
        proximal = [_log_prob(policy, part, config) for part in minibatches]
    behaviour = [aggregate(part.behaviour_log_prob, part, config.aggregate) for part in minibatches]
    weights = [
        importance(new, old, part.valid, config)
        for new, old, part in zip(proximal, behaviour, minibatches, strict=True)
    ]
    metrics = _Metrics(config)
    metrics.staleness(proximal, behaviour, weights, minibatches)
    actor_on = train_actor
    for _ in range(config.epochs):
        divergence = []
        for i in torch.randperm(len(parts), generator=generator).tolist():
            part, (weight, kept) = minibatches[i], weights[i]
            metrics.critic(_critic_step(policy, critic_optimizer, part, config))
            if actor_on:
                log_ratio = _actor_step(
                    policy, actor_optimizer, part, proximal[i], scaled[i], weight, kept, config, metrics
                )
                divergence.append(log_ratio)
            between()
        if actor_on:
            kl = _approximate_kl(torch.cat(divergence))
            metrics.epoch(kl)
            actor_on = not (0 < config.target_kl < kl)
    return metrics.result()


def _log_prob(policy: Any, part: DecisionBatch, config: PPOConfig) -> Tensor:
    return aggregate(policy.evaluate(part.obs, part.trace, with_value=False).log_prob, part, config.aggregate)


def _actor_step(
    policy: Any,
    optimizer: torch.optim.Optimizer,
    part: DecisionBatch,
    proximal: Tensor,
    advantages: Tensor,
    weight: Tensor,
    kept: Tensor,
    config: PPOConfig,
    metrics: _Metrics,
) -> Tensor:
    """One gradient step on one minibatch; returns log-ratios of the decisions that took part."""
    evaluation = policy.evaluate(part.obs, part.trace, with_value=False)
    log_ratio = aggregate(evaluation.log_prob, part, config.aggregate) - proximal
    objective, clipped = actor_terms(log_ratio, advantages, config)
    count = kept.sum().clamp_min(1)
    loss = -(weight * objective * kept).sum() / count
    if config.entropy_bonus:
        entropy = aggregate(evaluation.entropy, part, "mean")
        loss = loss - config.entropy_bonus * (entropy * kept).sum() / count
    _step(optimizer, loss, config.max_grad_norm)
    chosen = log_ratio.detach()[kept]
    metrics.actor(float(loss.detach()), chosen, clipped[kept])
    return chosen


def _critic_step(policy: Any, optimizer: torch.optim.Optimizer, part: DecisionBatch, config: PPOConfig) -> float:
    terms = critic_terms(policy.value(part.obs), part, config)
    loss = (terms * part.valid).sum() / part.valid.sum().clamp_min(1)
    _step(optimizer, loss, config.max_grad_norm)
    return float(loss.detach())


def _step(optimizer: torch.optim.Optimizer, loss: Tensor, max_norm: float) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm if max_norm > 0 else math.inf)
    if not (torch.isfinite(loss) and torch.isfinite(norm)):
        optimizer.zero_grad(set_to_none=True)
        raise TrainingDiverged(
            f"loss {float(loss)}, gradient norm {float(norm)}: the step was not taken; "
            "lower the learning rate or look at the batch's rewards and observations"
        )
    optimizer.step()


def _approximate_kl(log_ratio: Tensor) -> float:
    """E[(r − 1) − log r], the k3 estimator of KL(π_p ‖ π_θ): never negative."""
    return float((torch.expm1(log_ratio) - log_ratio).mean()) if log_ratio.numel() else 0.0


class _Metrics:
    """Collects what an update reports; names are those in metrics.jsonl."""

    def __init__(self, config: PPOConfig) -> None:
        self._config = config
        self._sums: dict[str, list[float]] = defaultdict(list)
        self._fixed: dict[str, float] = {}
        self._ratio_min, self._ratio_max = math.inf, 0.0

    def staleness(
        self,
        proximal: list[Tensor],
        behaviour: list[Tensor],
        weights: list[tuple[Tensor, Tensor]],
        parts: Iterable[DecisionBatch],
    ) -> None:
        """How far behaviour and proximal policies are apart, before any step."""
        valid = torch.cat([part.valid for part in parts])
        gap = (torch.cat(proximal) - torch.cat(behaviour))[valid]
        kept = torch.cat([kept for _, kept in weights])
        self._fixed["behaviour_gap_max"] = float(gap.abs().max()) if gap.numel() else 0.0
        self._fixed["behaviour_kl"] = _approximate_kl(gap)
        self._fixed["masked_fraction"] = 1.0 - float(kept.sum()) / max(int(valid.sum()), 1)

    def critic(self, loss: float) -> None:
        self._sums["value_loss"].append(loss)

    def actor(self, loss: float, log_ratio: Tensor, clipped: Tensor) -> None:
        self._sums["actor_loss"].append(loss)
        if log_ratio.numel():
            ratio = torch.exp(log_ratio)
            self._ratio_min = min(self._ratio_min, float(ratio.min()))
            self._ratio_max = max(self._ratio_max, float(ratio.max()))
            self._sums["clip_fraction"].append(float(clipped.float().mean()))

    def epoch(self, kl: float) -> None:
        self._fixed["kl"] = kl
        self._fixed["actor_epochs"] = self._fixed.get("actor_epochs", 0.0) + 1

    def result(self) -> dict[str, float]:
        means = {name: sum(values) / len(values) for name, values in self._sums.items()}
        if self._ratio_max > 0:
            means |= {"ratio_min": self._ratio_min, "ratio_max": self._ratio_max}
        return means | self._fixed
