"""What an update reports, and the collecting of it."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from learner.algorithms.batch import DecisionBatch


@dataclass(frozen=True)
class UpdateMetrics:
    """Of one update; names are those in metrics.jsonl. Means over gradient steps unless said otherwise.

    Fields about the actor are NaN when it took no part (critic warm-up): nothing was measured, which is not 0.
    """

    decisions: int
    """Decisions that had a target and an executed step."""
    oldest_version: int
    newest_version: int
    """Of the weights that sampled them."""
    actor_loss: float
    value_loss: float
    entropy: float
    kl: float
    """k3 estimate of KL(π_p ‖ π_θ) in the last epoch in which the actor trained."""
    actor_epochs: int
    ratio_min: float
    ratio_max: float
    """Over all epochs, decisions kept."""
    clip_fraction: float
    behaviour_gap_max: float
    """Largest |log π_p − log μ| before any step; at staleness 0 it is float rounding, below 1e-4."""
    behaviour_kl: float
    masked_fraction: float
    """Decisions whose importance weight was above the cap, with ``weight_mode`` = mask."""
    explained_variance: float
    """1 − Var(return − V_old) / Var(return); NaN where returns are all equal."""
    imitation_loss: float
    """On demonstrations; NaN where there are none."""
    actor_grad_norm: float
    critic_grad_norm: float
    skipped_steps: int
    """Gradient steps not taken because something was not finite."""
    learning_rate: float
    """The actor's."""

    def as_dict(self) -> dict[str, float]:
        """Name to number, NaNs left out (JSON has none)."""
        return {name: value for name, value in dataclasses.asdict(self).items() if not math.isnan(value)}


def approximate_kl(log_ratio: Tensor) -> float:
    """E[(r − 1) − log r], the k3 estimator of KL(π_p ‖ π_θ) from samples of π_p: never negative."""
    return float((torch.expm1(log_ratio) - log_ratio).mean()) if log_ratio.numel() else 0.0


class Recorder:
    """Collects an update's numbers as they come."""

    def __init__(self) -> None:
        self._steps: dict[str, list[float]] = defaultdict(list)
        self._once: dict[str, float] = {}
        self._ratio_min, self._ratio_max = math.inf, -math.inf
        self._versions = (0, 0)
        self._kl, self._epochs, self._skipped, self._decisions = math.nan, 0, 0, 0

    def staleness(self, proximal: Tensor, behaviour: Tensor, kept: Tensor) -> None:
        """How far behaviour and proximal policies are apart, before any step; [N] each."""
        gap = proximal - behaviour
        self._decisions = len(gap)
        self._once["behaviour_gap_max"] = float(gap.abs().max())
        self._once["behaviour_kl"] = approximate_kl(gap)
        self._once["masked_fraction"] = 1.0 - float(kept.float().mean())

    def batch(self, batch: DecisionBatch) -> None:
        """Which weights sampled the batch, and how much of its returns the critic explained before the update."""
        chosen = batch.takes_part()
        self._versions = int(batch.versions[chosen].min()), int(batch.versions[chosen].max())
        returns, values = batch.returns[chosen], batch.old_values[chosen]
        spread = float(returns.var(correction=0))
        self._once["explained_variance"] = (
            1.0 - float((returns - values).var(correction=0)) / spread if spread > 0 else math.nan
        )

    def learning_rate(self, rate: float) -> None:
        """The actor's in this update."""
        self._once["learning_rate"] = rate

    def critic(self, loss: float) -> None:
        """One gradient step of the critic."""
        self._steps["value_loss"].append(loss)

    def actor(self, loss: float, entropy: float, log_ratio: Tensor, clipped: Tensor) -> None:
        """One gradient step of the actor; the tensors hold the decisions kept."""
        self._steps["actor_loss"].append(loss)
        self._steps["entropy"].append(entropy)
        if log_ratio.numel():
            ratio = torch.exp(log_ratio)
            self._ratio_min = min(self._ratio_min, float(ratio.min()))
            self._ratio_max = max(self._ratio_max, float(ratio.max()))
            self._steps["clip_fraction"].append(float(clipped.float().mean()))

    def imitation(self, loss: float) -> None:
        """The loss on demonstrations in one gradient step of the actor."""
        self._steps["imitation_loss"].append(loss)

    def gradients(self, norms: Mapping[str, float]) -> None:
        """Gradient norms before clipping."""
        for name, norm in norms.items():
            self._steps[f"{name}_grad_norm"].append(norm)

    def skipped(self) -> None:
        """A gradient step was not taken."""
        self._skipped += 1

    def epoch(self, kl: float) -> None:
        """An epoch in which the actor trained is over."""
        self._kl = kl
        self._epochs += 1

    def result(self) -> UpdateMetrics:
        """Everything, once the update is over."""

        def mean(name: str) -> float:
            values = self._steps[name]
            return sum(values) / len(values) if values else math.nan

        return UpdateMetrics(
            decisions=self._decisions,
            oldest_version=self._versions[0],
            newest_version=self._versions[1],
            actor_loss=mean("actor_loss"),
            value_loss=mean("value_loss"),
            entropy=mean("entropy"),
            kl=self._kl,
            actor_epochs=self._epochs,
            ratio_min=self._ratio_min if math.isfinite(self._ratio_min) else math.nan,
            ratio_max=self._ratio_max if math.isfinite(self._ratio_max) else math.nan,
            clip_fraction=mean("clip_fraction"),
            behaviour_gap_max=self._once["behaviour_gap_max"],
            behaviour_kl=self._once["behaviour_kl"],
            masked_fraction=self._once["masked_fraction"],
            explained_variance=self._once["explained_variance"],
            imitation_loss=mean("imitation_loss"),
            actor_grad_norm=mean("actor_grad_norm"),
            critic_grad_norm=mean("critic_grad_norm"),
            skipped_steps=self._skipped,
            learning_rate=self._once["learning_rate"],
        )
