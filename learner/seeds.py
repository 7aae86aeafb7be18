"""Every random number of a rollout, from one seed a run.

Run seed and ticket index give an episode's seed; that gives the environment's and, with the number of the decision,
the action noise's. So an episode can be replayed from its ticket, wherever and beside whatever it ran. Mixing is
SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), written out so that no library's version matters.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

TRAINING_SEEDS = 1 << 30
"""Environment seeds of training are this and above (below 2^31): smaller ones are evaluation's, and never seen."""


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def episode_seed(run_seed: int, index: int) -> int:
    """Of the ``index``-th ticket of a run; 64 bits."""
    return _mix(_mix(run_seed & _MASK) ^ (index & _MASK))


def env_seed(seed: int) -> int:
    """What a training episode's environment is reset with; 2^30 … 2^31 − 1."""
    return TRAINING_SEEDS + (_mix(seed ^ 0xE0) % TRAINING_SEEDS)


def noise_seed(seed: int, decision: int) -> int:
    """Of the action noise of an episode's ``decision``-th chunk; 64 bits."""
    return _mix(_mix(seed ^ 0xA0) ^ decision)
