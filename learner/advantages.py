"""Generalised advantage estimation over decisions (one decision = one action chunk).

For decision t with reward r_t (summed over its executed steps, discounted within the chunk) and discount
γ_t (γ to the number of executed steps):

    δ_t = r_t + γ_t·V_{t+1} − V_t
    A_t = δ_t + γ_t·λ·A_{t+1}
    return_t = A_t + V_t

and at the last decision: terminated → V = 0 beyond it; truncated or cut → V of the final observation; abandoned →
that decision has no target at all (it is masked), and nothing before it bootstraps through it: its predecessor's
target ends at V of the abandoned decision's own observation. Source: Schulman et al., arXiv 1506.02438; chunked
discount as in πRL (arXiv 2510.25889).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np


class End(enum.Enum):
    """How a trajectory ended; values are ``Trajectory.End`` of learner.proto."""

    TERMINATED = 1
    TRUNCATED = 2
    ABANDONED = 3
    CUT = 4


@dataclass(frozen=True)
class Targets:
    """[T] each: advantages and returns float32; valid False where a decision has no target."""

    advantages: np.ndarray
    returns: np.ndarray
    valid: np.ndarray


def gae(
    rewards: np.ndarray, discounts: np.ndarray, values: np.ndarray, final_value: float, end: End, lam: float
) -> Targets:
    """Targets of one trajectory; ``rewards``, ``discounts``, ``values`` are [T]; ``final_value`` is V(final obs).

    ``final_value`` is read where the trajectory was truncated or cut, and only there.
    """
    count = len(rewards)
    if not (len(discounts) == len(values) == count and count > 0):
        raise ValueError(f"rewards {count}, discounts {len(discounts)}, values {len(values)}: equal and > 0 needed")
    valid = np.ones(count, bool)
    if end is End.ABANDONED:
        valid[-1] = False
    following = np.append(values[1:], final_value if end in (End.TRUNCATED, End.CUT) else 0.0)
    advantages = np.zeros(count, np.float64)
    running = 0.0
    for t in range(count - 1, -1, -1):
        if not valid[t]:
            continue  # `running` stays 0: its predecessor bootstraps from this decision's own value
        delta = rewards[t] + discounts[t] * following[t] - values[t]
        running = delta + discounts[t] * lam * running
        advantages[t] = running
    returns = np.where(valid, advantages + values, 0.0)
    return Targets(advantages.astype(np.float32), returns.astype(np.float32), valid)


def chunk_rewards(rewards: np.ndarray, executed: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Per-decision rewards and discounts from per-step ones.

    ``rewards`` [T, C], ``executed`` [T] steps really executed, ``gamma`` per step. Returns r [T] = Σ γ^i·r_i over
    executed steps, and γ^executed [T], float64. What stands beyond the executed steps is never read.
    """
    if rewards.ndim != 2 or executed.shape != rewards.shape[:1]:
        raise ValueError(f"rewards {rewards.shape}, executed {executed.shape}: [T, C] and [T] needed")
    if len(executed) and not 0 <= executed.min() <= executed.max() <= rewards.shape[1]:
        raise ValueError(f"executed steps {executed.min()} to {executed.max()} of a chunk of {rewards.shape[1]}")
    steps = np.arange(rewards.shape[1])
    inside = np.where(steps[None, :] < executed[:, None], rewards, 0.0)
    return (inside * gamma**steps).sum(1), gamma ** executed.astype(np.float64)
