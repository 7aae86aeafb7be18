"""Small networks for state observations, written for cheap inference on a CPU at batch sizes of 1 to 32.

There the cost is memory traffic and call overhead. So weights are stored [in, out] (the layout the product reads
fastest), every layer is one ``addmm``, and parameters are looked up once a chunk, not once a denoising step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

Layers = list[tuple[Tensor, Tensor]]
Velocity = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


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
        if not (torch.isfinite(self.mean).all() and torch.isfinite(self.std).all()):
            raise ValueError(f"statistics must be finite, got mean {list(mean)} and std {list(std)}")

    def forward(self, value: Tensor) -> Tensor:
        """Normalised ``value``, float32."""
        return ((value - self.mean) / self.std).clamp(-10.0, 10.0)


def time_features(times: Tensor, width: int) -> Tensor:
    """Sinusoidal features [..., width] (even) of times in [0, 1], frequencies 1 … 100 (log-spaced), float32."""
    half = width // 2
    frequencies = torch.exp(torch.linspace(0.0, math.log(100.0), half, device=times.device)) * math.pi
    angles = times[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


class Dense(nn.Module):
    """x·W + b with W [in, out]; initialised as ``nn.Linear`` (uniform in ±1/√in)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, value: Tensor) -> Tensor:
        """[B, in] → [B, out]."""
        return torch.addmm(self.bias, value, self.weight)


class MLP(nn.Module):
    """Dense–SiLU stack with a linear head; ``head_scale`` shrinks the head's initial weights."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, head_scale: float = 1.0) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        self.layers = nn.ModuleList(Dense(a, b) for a, b in itertools.pairwise(widths))
        self.head = Dense(widths[-1], outputs)
        with torch.no_grad():
            self.head.weight.mul_(head_scale)
            self.head.bias.zero_()

    def parameters_in_order(self) -> Layers:
        """(weight, bias) of every layer, the head last."""
        return [(layer.weight, layer.bias) for layer in (*self.layers, self.head)]

    def forward(self, value: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        return run_layers(value, self.parameters_in_order())[0]


def run_layers(value: Tensor, layers: Layers) -> tuple[Tensor, Tensor]:
    """Output of the last layer, and the hidden features it read."""
    for weight, bias in layers[:-1]:
        value = _silu(torch.addmm(bias, value, weight))
    weight, bias = layers[-1]
    return torch.addmm(bias, value, weight), value


def _silu(fresh: Tensor) -> Tensor:
    """SiLU of a tensor nobody else holds: in place where no gradient needs the input."""
    return functional.silu(fresh, inplace=not torch.is_grad_enabled())


class VelocityNetwork(nn.Module):
    """v(x, t, o): the first layer is split so that the observation's share is computed once a chunk.

    Inputs: observation features [B, O], noisy chunk [B, H·A], time features [..., T]; output [B, H·A].
    """

    def __init__(self, observation: int, chunk: int, time: int, hidden: Sequence[int]) -> None:
        super().__init__()
        inputs = observation + chunk + time
        # One layer in three pieces: each is scaled by the whole layer's fan-in.
        bound = 1.0 / math.sqrt(inputs)
        self.observation = Dense(observation, hidden[0])
        self.chunk = nn.Parameter(torch.empty(chunk, hidden[0]).uniform_(-bound, bound))
        self.time = nn.Parameter(torch.empty(time, hidden[0]).uniform_(-bound, bound))
        with torch.no_grad():
            self.observation.weight.uniform_(-bound, bound)
            self.observation.bias.uniform_(-bound, bound)
        self.trunk = MLP(hidden[0], hidden[1:], chunk)

    def time_share(self, features: Tensor) -> Tensor:
        """The first layer's share of time features [n, T] → [n, hidden]."""
        return features @ self.time

    def given(self, observation: Tensor) -> Velocity:
        """The network with its observation [B, O] fixed.

        The function returned takes the noisy chunk [B, H·A] and :meth:`time_share` ([hidden] or [B, hidden]), and
        returns the velocity [B, H·A] and the last hidden features [B, hidden].
        """
        embedded = self.observation(observation)
        weight, layers = self.chunk, self.trunk.parameters_in_order()

        def velocity(chunk: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
            return run_layers(_silu(torch.addmm(embedded + time, chunk, weight)), layers)

        return velocity
