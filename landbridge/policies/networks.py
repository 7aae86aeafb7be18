"""Small networks for state observations, written for cheap inference on a CPU at batch sizes of 1 to 32."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normaliser(nn.Module):
    """(x − mean) / std of one observation tensor [..., n], clipped to ±10; statistics are buffers."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], floor: float = 1e-3) -> None:
        """``mean`` and ``std`` have the tensor's width; a std below ``floor`` (a constant) counts as ``floor``."""
        super().__init__()
        if len(mean) != len(std):
            raise ValueError(f"statistics of different widths: mean has {len(mean)}, std has {len(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).clamp_min(floor))

    def forward(self, value: Tensor) -> Tensor:
        """Normalised ``value``, float32."""
        return ((value - self.mean) / self.std).clamp(-10.0, 10.0)


def time_features(times: Tensor, width: int) -> Tensor:
    """Sinusoidal features [..., width] of times in [0, 1], frequencies 1 … 100 (log-spaced), float32."""
    half = width // 2
    frequencies = torch.exp(torch.linspace(0.0, math.log(100.0), half)) * math.pi
    angles = times[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


class MLP(nn.Module):
    """Linear–SiLU stack with a linear head; ``head_scale`` shrinks the head's initial weights."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, head_scale: float = 1.0) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(widths[-1], outputs)
        with torch.no_grad():
            self.head.weight.mul_(head_scale)
            self.head.bias.zero_()

    def forward(self, value: Tensor) -> Tensor:
        """[..., inputs] → [..., outputs]."""
        for layer in self.layers:
            value = functional.silu(layer(value))
        return self.head(value)  # type: ignore[no-any-return]


class VelocityNetwork(nn.Module):
    """v(x, t, o): the first layer is split so that the observation's share is computed once a chunk.

    Inputs: observation features [B, O], noisy chunk [B, H·A], time features [..., T]; output [B, H·A].
    """

    def __init__(self, observation: int, chunk: int, time: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.observation = nn.Linear(observation, hidden[0])
        self.chunk = nn.Linear(chunk, hidden[0], bias=False)
        self.time = nn.Linear(time, hidden[0], bias=False)
        self.trunk = MLP(hidden[0], hidden[1:], chunk)

    def embed(self, observation: Tensor) -> Tensor:
        """The observation's share of the first layer [B, hidden]."""
        return self.observation(observation)  # type: ignore[no-any-return]

    def forward(self, embedded: Tensor, chunk: Tensor, time: Tensor) -> Tensor:
        """Velocity [B, H·A] from :meth:`embed`'s output, the chunk and ``self.time(features)``."""
        return self.trunk(functional.silu(embedded + self.chunk(chunk) + time))  # type: ignore[no-any-return]
