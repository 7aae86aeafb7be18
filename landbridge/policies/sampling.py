"""The arithmetic of flow sampling: time grid, ODE and SDE steps, Gaussian log-probabilities.

Conventions (flow matching): x_t = (1 − t)·x₀ + t·ε, v = ε − x₀; t runs from 1 (noise) to 0 (action) in K steps of
δ = 1/K. The SDE with the same marginals (Flow-GRPO, arXiv 2505.05470, in this time direction):

    σ_t = a·√(t / (1 − t))            (at t = 1 the denominator is δ)
    ε̂   = x + (1 − t)·v
    mean = x − δ·v − (σ_t²·δ / 2t)·ε̂,    std = σ_t·√δ

Read literally, the equations printed in πRL (arXiv 2510.25889) mix two time conventions and do not keep the
marginals; ``tests/unit/test_flow_sampling.py`` shows both on a Gaussian mixture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Schedule:
    """Per-step constants of a K-step sampler, each [K] float32; index 0 is the step that starts at t = 1."""

    times: Tensor
    delta: float
    std: Tensor
    """Standard deviation of the stochastic step."""
    x_scale: Tensor
    """mean = x_scale·x + v_scale·v of the stochastic step."""
    v_scale: Tensor

    def table(self) -> Tensor:
        """[K, 3]: x_scale, v_scale, std."""
        return torch.stack([self.x_scale, self.v_scale, self.std], 1)


def sde_schedule(steps: int, noise_level: float) -> Schedule:
    """Constants for K = ``steps`` and a = ``noise_level``; std = 0 is refused (ratio 1, silent non-learning)."""
    if steps < 1:
        raise ValueError(f"at least one denoising step is needed, {steps} were asked for")
    if not 0 < noise_level < math.inf:
        raise ValueError(
            f"noise level {noise_level}: a stochastic sampler with std 0 has ratio 1 and learns nothing; use > 0"
        )
    delta = 1.0 / steps
    times = 1.0 - torch.arange(steps, dtype=torch.float64) * delta
    denominator = torch.where(times >= 1.0, torch.full_like(times, delta), 1.0 - times)
    sigma = noise_level * torch.sqrt(times / denominator)
    drift = sigma**2 * delta / (2.0 * times)
    return Schedule(
        times=times.float(),
        delta=delta,
        std=(sigma * math.sqrt(delta)).float(),
        x_scale=(1.0 - drift).float(),
        v_scale=(-delta - drift * (1.0 - times)).float(),
    )


def hybrid_table(sde: Tensor, delta: float) -> Tensor:
    """Coefficients [K, 3, K] of the hybrid sampler: row c is for samples whose stochastic step is c.

    ``sde`` [K, 3] holds x_scale, v_scale and std. Row c has those at step c and the ODE's (1, −δ, 0) elsewhere, so
    every step of every sample is x ← x_scale·x + v_scale·v + std·ε.
    """
    steps = len(sde)
    ode = torch.tensor([1.0, -delta, 0.0], dtype=sde.dtype).expand(steps, steps, 3)
    chosen = torch.eye(steps, dtype=torch.bool)[:, :, None]
    return torch.where(chosen, sde[None], ode).transpose(1, 2).contiguous()


def gaussian_log_prob(value: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Element-wise log N(value; mean, std²) in float32 (float64 stays)."""
    return -0.5 * (((value - mean) / std) ** 2 + _LOG_2PI) - torch.log(std)


def gaussian_entropy(std: Tensor) -> Tensor:
    """Element-wise entropy of N(·, std²)."""
    return 0.5 * (1.0 + _LOG_2PI) + torch.log(std)


def draw_rows(seeds: Sequence[int], normals: int, choices: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normals [B, ``normals``] float32 and uniform integers [B] in [0, ``choices``), a row a seed.

    A row is the stream of ``np.random.Philox(key=seed)`` and depends on its seed alone. One generator is re-keyed for
    each row: building one a row costs twice as much, most of it entropy nobody uses. Seeds are 64-bit unsigned.
    """
    bits = np.random.Philox(key=0)
    start = bits.state
    key = start["state"]["key"]
    generator = np.random.Generator(bits)
    drawn = np.empty((len(seeds), normals), np.float32)
    raw = np.empty(len(seeds), np.uint64)
    for row, seed in enumerate(seeds):
        key[0] = _checked_seed(seed)
        bits.state = start
        generator.standard_normal(dtype=np.float32, out=drawn[row])
        raw[row] = bits.random_raw()
    return drawn, (raw % np.uint64(choices)).astype(np.int64)


def _checked_seed(seed: int) -> int:
    value = int(seed)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"seed {value}: a 64-bit unsigned integer is needed")
    return value
