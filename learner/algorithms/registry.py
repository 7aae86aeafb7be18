"""Algorithms by name: what a configuration file may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from landbridge.errors import InvalidArgument
from learner.algorithms import ppo
from learner.algorithms.metrics import UpdateMetrics


@dataclass(frozen=True)
class Algorithm:
    """Configuration schema, ``make_optimizers(policy, config)`` and ``update(...)`` with :func:`ppo.update`'s form."""

    name: str
    config: type[Any]
    make_optimizers: Callable[..., Any]
    update: Callable[..., UpdateMetrics]


ALGORITHMS = {"ppo": Algorithm("ppo", ppo.PPOConfig, ppo.make_optimizers, ppo.update)}


def algorithm(name: str) -> Algorithm:
    """The algorithm called ``name``; InvalidArgument lists those there are."""
    if name not in ALGORITHMS:
        raise InvalidArgument(f"no algorithm {name!r}; there are {sorted(ALGORITHMS)}", field="algorithm")
    return ALGORITHMS[name]
