"""What a policy offers to the server that acts with it and to the learner that trains it.

The same module runs in both places. ``act`` draws a chunk and keeps what is needed to recompute its
log-probability; ``evaluate`` recomputes it. Two properties follow and are tested: with unchanged weights the
ratio of the two is 1 up to float rounding between batch shapes, and with one code path on the same batch it is
exactly 1.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from landbridge.contract import Contract


class SampleMode(enum.Enum):
    """How a chunk is drawn."""

    DETERMINISTIC = "deterministic"
    """Evaluation: the ODE of a flow policy, arg-max of a token policy. The initial noise still varies."""
    STOCHASTIC = "stochastic"
    """Exploration, with a log-probability."""


@dataclass
class ActionSample:
    """A batch of action chunks.

    actions: [B, H, A] float32, in the contract's physical units, not clipped.
    log_prob: [B, H] float32, summed over action dimensions and noised denoising steps; zeros when deterministic.
    value: [B] float32, or None where the critic's inputs were not given or not asked for.
    trace: what :meth:`Policy.evaluate` needs to recompute ``log_prob``; tensors with leading axis B.
    """

    actions: Tensor
    log_prob: Tensor
    value: Tensor | None
    trace: dict[str, Tensor]


@dataclass
class Evaluation:
    """Recomputed on the learner: log_prob [B, H], entropy [B, H] (of the noised Gaussians), value [B] or None."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor | None


class Policy(Protocol):
    """A policy over action chunks of length ``horizon``."""

    contract: Contract
    horizon: int

    def draw_noise(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Everything random about ``act``, one row a seed; a row depends on its own seed alone."""
        ...

    def act(
        self,
        obs: Mapping[str, Tensor],
        noise: Mapping[str, Tensor],
        mode: SampleMode,
        with_value: bool = False,
    ) -> ActionSample:
        """Draw chunks for ``obs`` ({name: [B, …]})."""
        ...

    def evaluate(self, obs: Mapping[str, Tensor], trace: Mapping[str, Tensor], with_value: bool = True) -> Evaluation:
        """Log-probability, entropy and value of the sample that ``trace`` describes, with gradients."""
        ...

    def value(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Critic alone: [B]."""
        ...

    def architecture(self) -> dict[str, Any]:
        """JSON-able description from which the module can be rebuilt; its hash guards weight pushes."""
        ...


class TrainablePolicy(Policy, Protocol):
    """A policy whose actor and critic share no parameters."""

    def actor_parameters(self) -> list[nn.Parameter]:
        """Everything the policy gradient moves."""
        ...

    def critic_parameters(self) -> list[nn.Parameter]:
        """The value function's parameters."""
        ...
