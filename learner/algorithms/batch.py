"""What an algorithm trains on: N decisions from many trajectories, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DecisionBatch:
    """N decisions. All tensors share the leading axis N.

    obs: {name: [N, …]}; trace: {name: [N, …]} as sampled; behaviour_log_prob [N, H] as served;
    executed [N] int64, steps of the chunk really executed; advantages, returns, old_values [N] float32;
    valid [N] bool, False where a decision has no target; versions [N] int64, the weights that sampled it.
    """

    obs: Mapping[str, Tensor]
    trace: Mapping[str, Tensor]
    behaviour_log_prob: Tensor
    executed: Tensor
    advantages: Tensor
    returns: Tensor
    old_values: Tensor
    valid: Tensor
    versions: Tensor

    def __post_init__(self) -> None:
        if self.behaviour_log_prob.dim() != 2:
            raise ValueError(f"behaviour_log_prob is [N, H], got {list(self.behaviour_log_prob.shape)}")
        for name, value in self._tensors():
            if len(value) != len(self.executed):
                raise ValueError(f"{name} has {len(value)} rows, executed has {len(self.executed)}")
        for name in ("executed", "advantages", "returns", "old_values", "valid", "versions"):
            # [N, 1] beside [N] would broadcast to [N, N] in a loss, without an error.
            if getattr(self, name).dim() != 1:
                raise ValueError(f"{name} is [N], got {list(getattr(self, name).shape)}")
        if self.valid.dtype != torch.bool:
            raise ValueError(f"valid is bool, got {self.valid.dtype}")

    def _tensors(self) -> list[tuple[str, Tensor]]:
        found: list[tuple[str, Tensor]] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                found.append((field.name, value))
            else:
                found += [(f"{field.name}[{name!r}]", tensor) for name, tensor in value.items()]
        return found

    def __len__(self) -> int:
        return len(self.executed)

    def rows(self, index: Tensor) -> DecisionBatch:
        """The decisions at ``index`` [n] int64."""

        def take(value: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
            if isinstance(value, Tensor):
                return value[index]
            return {name: tensor[index] for name, tensor in value.items()}

        return DecisionBatch(**{f.name: take(getattr(self, f.name)) for f in dataclasses.fields(self)})  # type: ignore[arg-type]

    def takes_part(self) -> Tensor:
        """[N] bool: decisions that have a target and of which something was executed."""
        return self.valid & (self.executed > 0)

    def step_mask(self) -> Tensor:
        """[N, H] bool: chunk steps that were executed, of valid decisions."""
        steps = torch.arange(self.behaviour_log_prob.shape[1], device=self.executed.device)
        return (steps[None, :] < self.executed[:, None]) & self.valid[:, None]
