"""What an algorithm trains on: N decisions from many trajectories, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DecisionBatch:
    """N decisions. All tensors share the leading axis N.

    obs: {name: [N, …]}; trace: {name: [N, …]} as sampled; behaviour_log_prob [N, H] as served;
    executed [N] int64, steps of the chunk really executed; advantages, returns, old_values [N] float32;
    valid [N] bool, False where a decision has no target.
    """

    obs: Mapping[str, Tensor]
    trace: Mapping[str, Tensor]
    behaviour_log_prob: Tensor
    executed: Tensor
    advantages: Tensor
    returns: Tensor
    old_values: Tensor
    valid: Tensor

    def __len__(self) -> int:
        return len(self.executed)

    def rows(self, index: Tensor) -> DecisionBatch:
        """The decisions at ``index``."""
        return DecisionBatch(
            {name: value[index] for name, value in self.obs.items()},
            {name: value[index] for name, value in self.trace.items()},
            *(
                getattr(self, name)[index]
                for name in (
                    "behaviour_log_prob",
                    "executed",
                    "advantages",
                    "returns",
                    "old_values",
                    "valid",
                )
            ),
        )

    def step_mask(self) -> Tensor:
        """[N, H] bool: chunk steps that were executed, of valid decisions."""
        horizon = self.behaviour_log_prob.shape[1]
        return (torch.arange(horizon)[None, :] < self.executed[:, None]) & self.valid[:, None]
