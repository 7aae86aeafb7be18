"""What a backend offers the server: a contract, modules made of weights, and batches computed with a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from landbridge.contract import Contract
from landbridge.weights import State


@dataclass(frozen=True)
class Answer:
    """Results for the rows of a batch: actions [B, H, A]; log_prob [B, H], value [B] or None; trace {name: [B, …]}."""

    actions: np.ndarray
    log_prob: np.ndarray | None
    value: np.ndarray | None
    trace: Mapping[str, np.ndarray]


class Backend(Protocol):
    """One policy architecture. ``compute`` is called by one thread at a time, ``build`` by any."""

    contract: Contract
    horizon: int
    reads: tuple[str, ...]
    """Observation tensors the actor needs …"""
    value_reads: tuple[str, ...]
    """… and those the critic needs."""
    architecture_hash: str
    architecture_json: str
    first_version: int
    first_step: int
    first_state: State

    def build(self, state: State) -> Any:
        """A module with these weights; independent of every other version's."""
        ...

    def compute(
        self, module: Any, obs: Mapping[str, np.ndarray], seeds: Sequence[int], deterministic: bool, with_value: bool
    ) -> Answer:
        """Compute one batch with ``module``."""
        ...
