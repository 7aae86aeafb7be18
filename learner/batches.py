"""From trajectories to what an algorithm trains on: rewards as the learner wants them, values, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from landbridge.config import option
from landbridge.policies.protocol import TrainablePolicy
from landbridge.tensors import Array
from learner.advantages import Targets, chunk_rewards, gae
from learner.algorithms.batch import DecisionBatch
from learner.trajectories import Trajectory


@dataclass(frozen=True)
class RewardConfig:
    """How the environment's reward becomes the learner's."""

    scale: float = option(1.0, "factor on the environment's reward")
    potential: bool = option(
        False,
        "take the reward at the end of each decision for a potential and learn from its differences: progress pays, "
        "waiting does not",
    )
    success_bonus: float = option(0.0, "added to the last decision of an episode that ends in success")
    step_penalty: float = option(0.0, "subtracted at every decision: what finishes sooner is better")


@dataclass(frozen=True)
class ReturnConfig:
    """Discounting and advantage estimation."""

    gamma: float = option(
        0.95, "discount of one whole chunk; a shorter one is discounted less", minimum=0.0, maximum=1.0
    )
    lam: float = option(0.95, "λ of generalised advantage estimation", minimum=0.0, maximum=1.0)


def decision_rewards(trajectory: Trajectory, config: RewardConfig, gamma_step: float) -> tuple[Array, Array]:
    """Reward [T] and discount [T] of every decision.

    With ``potential``: scale·(φ_t − φ_{t−1}), φ_t the reward of the decision's last evaluated step (the one before
    where none was evaluated). φ before the first decision counts as 0: its true value is a function of the initial
    observation, which the critic takes off again.
    """
    steps = np.where(trajectory.evaluated, trajectory.rewards, 0.0)
    rewards, discounts = chunk_rewards(steps, trajectory.executed, gamma_step)
    if config.potential:
        rewards = np.diff(_potential(trajectory), prepend=0.0)
    rewards = config.scale * rewards - config.step_penalty
    if trajectory.success_at_end:
        rewards[-1] += config.success_bonus
    return rewards, discounts


def _potential(trajectory: Trajectory) -> Array:
    inside = np.arange(trajectory.rewards.shape[1]) < trajectory.executed[:, None]
    judged = trajectory.evaluated & inside
    last = judged.shape[1] - 1 - judged[:, ::-1].argmax(1)
    found = np.where(judged.any(1), trajectory.rewards[np.arange(len(judged)), last].astype(np.float64), np.nan)
    current = 0.0
    for t in range(len(found)):
        current = found[t] = current if np.isnan(found[t]) else found[t]
    return found


def make_batch(
    policy: TrainablePolicy, trajectories: Sequence[Trajectory], rewards: RewardConfig, returns: ReturnConfig
) -> DecisionBatch:
    """All decisions of ``trajectories``, in their order; values are those of the critic as it is now."""
    observations = {
        name: [np.asarray(t.observation[name]) for t in trajectories] for name in trajectories[0].observation
    }
    with torch.no_grad():
        values = policy.value({n: _tensor(np.concatenate(arrays)) for n, arrays in observations.items()}).numpy()
    ends = np.cumsum([len(t) + 1 for t in trajectories])
    targets, old_values = [], []
    for trajectory, own in zip(trajectories, np.split(values, ends[:-1]), strict=True):
        targets.append(_targets(trajectory, own, rewards, returns, policy.horizon))
        old_values.append(own[:-1])
    return DecisionBatch(
        obs={name: _tensor(np.concatenate([a[:-1] for a in arrays])) for name, arrays in observations.items()},
        trace={n: _joined(trajectories, lambda t, n=n: t.trace[n]) for n in trajectories[0].trace},
        behaviour_log_prob=_joined(trajectories, lambda t: t.log_prob),
        executed=_joined(trajectories, lambda t: t.executed),
        advantages=_tensor(np.concatenate([t.advantages for t in targets])),
        returns=_tensor(np.concatenate([t.returns for t in targets])),
        old_values=_tensor(np.concatenate(old_values)),
        valid=_tensor(np.concatenate([t.valid for t in targets])),
        versions=_joined(trajectories, lambda t: t.versions),
    )


def _targets(
    trajectory: Trajectory, values: Array, rewards: RewardConfig, returns: ReturnConfig, horizon: int
) -> Targets:
    earned, discounts = decision_rewards(trajectory, rewards, returns.gamma ** (1.0 / horizon))
    return gae(earned, discounts, values[:-1], float(values[-1]), trajectory.end, returns.lam)


def _joined(trajectories: Sequence[Trajectory], get: Any) -> torch.Tensor:
    return _tensor(np.concatenate([get(t) for t in trajectories]))


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array)


def behaviour_gap(policy: TrainablePolicy, batch: DecisionBatch, version: int) -> float | None:
    """Largest |served − recomputed| log-probability of an executed step, of decisions made by ``version`` itself.

    ``policy`` must still be that version. Anything above float rounding (about 3e-5) is a bug in one of the two
    paths. None where no decision is so fresh.
    """
    rows = ((batch.versions == version) & batch.takes_part()).nonzero().squeeze(1)
    if len(rows) == 0:
        return None
    fresh = batch.rows(rows)
    with torch.no_grad():
        recomputed = policy.evaluate(fresh.obs, fresh.trace, with_value=False).log_prob
    gap = (recomputed - fresh.behaviour_log_prob).abs()
    return float(torch.where(fresh.step_mask(), gap, torch.zeros_like(gap)).max())
