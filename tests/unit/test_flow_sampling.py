"""The sampler's arithmetic: marginals, schedule, log-probabilities, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from landbridge.policies.sampling import (
    draw_rows,
    gaussian_entropy,
    gaussian_log_prob,
    hybrid_table,
    sde_schedule,
)

MEANS, SPREAD, WEIGHTS = torch.tensor([-1.5, 1.0]), 0.3, torch.tensor([0.3, 0.7])
COUNT, STEPS, LEVEL = 20_000, 100, 0.5


def velocity(x: Tensor, t: float) -> Tensor:
    """E[ε − x₀ | x_t] of the mixture, in closed form."""
    variance = ((1 - t) * SPREAD) ** 2 + t**2
    gap = x[:, None] - (1 - t) * MEANS
    posterior = torch.softmax(torch.log(WEIGHTS) - gap**2 / (2 * variance), 1)
    data = MEANS + (1 - t) * SPREAD**2 / variance * gap
    return (posterior * (t / variance * gap - data)).sum(1)


def wasserstein_to_data(samples: Tensor) -> float:
    """W1 to the mixture: mean distance between sorted samples and as many quantiles."""
    grid = torch.linspace(-4, 4, 200_001, dtype=torch.float64)
    cdf = (WEIGHTS * 0.5 * (1 + torch.erf((grid[:, None] - MEANS) / (SPREAD * math.sqrt(2))))).sum(1)
    index = torch.searchsorted(cdf, (torch.arange(len(samples), dtype=torch.float64) + 0.5) / len(samples))
    quantiles = grid[index.clamp_max(len(grid) - 1)]
    return float((samples.double().sort().values - quantiles).abs().mean())


def start() -> Tensor:
    """Noise at its quantiles, so that what is measured is the sampler's error and not that of the draw."""
    uniform = (torch.arange(COUNT, dtype=torch.float64) + 0.5) / COUNT
    return torch.special.ndtri(uniform).float()


def run_ode() -> Tensor:
    x = start()
    for k in range(STEPS):
        x = x - velocity(x, 1 - k / STEPS) / STEPS
    return x


def run_sde() -> Tensor:
    schedule, x, generator = sde_schedule(STEPS, LEVEL), start(), torch.Generator().manual_seed(0)
    for k in range(STEPS):
        mean = schedule.x_scale[k] * x + schedule.v_scale[k] * velocity(x, float(schedule.times[k]))
        x = mean + schedule.std[k] * torch.randn(COUNT, generator=generator)
    return x


def run_as_printed() -> Tensor:
    """The SDE with noise at τ = 0 in the drift's time, and σ written for time in the other direction."""
    x, generator, delta = start(), torch.Generator().manual_seed(0), 1 / STEPS
    for k in range(STEPS):
        tau = k / STEPS
        sigma = LEVEL * math.sqrt(tau / (1 - tau))
        v = -velocity(x, 1 - tau)
        correction = sigma**2 / (2 * max(tau, delta)) * (x + (1 - tau) * v)
        x = x + delta * (v + correction) + sigma * math.sqrt(delta) * torch.randn(COUNT, generator=generator)
    return x


def test_flow_sde_keeps_the_marginals_of_the_ode() -> None:
    ode, sde = wasserstein_to_data(run_ode()), wasserstein_to_data(run_sde())
    assert ode < 0.02
    assert sde < 0.03
    assert not torch.allclose(run_ode(), run_sde(), atol=0.1), "it is noised all the same"


def test_mixing_two_time_conventions_does_not() -> None:
    assert wasserstein_to_data(run_as_printed()) > 0.3


def test_std_of_four_steps_at_level_one_half() -> None:
    assert sde_schedule(4, 0.5).std.tolist() == pytest.approx([0.5, 0.433, 0.25, 0.144], abs=5e-4)


def test_a_step_is_the_formula() -> None:
    schedule, x, v = sde_schedule(5, 0.7), 0.3, -1.1
    for k, t in enumerate((1.0, 0.8, 0.6, 0.4, 0.2)):
        sigma = 0.7 * math.sqrt(t / (1 - t if t < 1 else 0.2))
        mean = x - 0.2 * v - sigma**2 * 0.2 / (2 * t) * (x + (1 - t) * v)
        assert float(schedule.times[k]) == pytest.approx(t)
        assert float(schedule.x_scale[k] * x + schedule.v_scale[k] * v) == pytest.approx(mean, rel=1e-5)
        assert float(schedule.std[k]) == pytest.approx(sigma * math.sqrt(0.2), rel=1e-5)


def test_hybrid_coefficients_are_the_sdes_at_the_chosen_step_and_the_odes_elsewhere() -> None:
    schedule = sde_schedule(3, 0.4)
    table = hybrid_table(torch.stack([schedule.x_scale, schedule.v_scale, schedule.std], 1), schedule.delta)
    for chosen in range(3):
        for step in range(3):
            wanted = (
                [schedule.x_scale[step], schedule.v_scale[step], schedule.std[step]]
                if step == chosen
                else [1.0, -schedule.delta, 0.0]
            )
            assert table[chosen, :, step].tolist() == pytest.approx([float(w) for w in wanted])


@pytest.mark.parametrize("level", [0.0, -0.1, math.nan, math.inf])
def test_a_std_of_zero_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="learns nothing"):
        sde_schedule(4, level)


def test_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one denoising step"):
        sde_schedule(0, 0.5)


def test_log_probabilities_and_entropies_are_those_of_torch_distributions() -> None:
    value, mean = torch.randn(50), torch.randn(50)
    std = torch.rand(50) + 0.05
    normal = torch.distributions.Normal(mean, std)
    torch.testing.assert_close(gaussian_log_prob(value, mean, std), normal.log_prob(value))
    torch.testing.assert_close(gaussian_entropy(std), normal.entropy())


def test_a_row_of_noise_is_the_philox_stream_of_its_seed() -> None:
    seeds = [3, 2**64 - 1, 0]
    normals, choices = draw_rows(seeds, 10, 4)
    for row, seed in enumerate(seeds):
        bits = np.random.Philox(key=seed)
        assert np.array_equal(normals[row], np.random.Generator(bits).standard_normal(10, np.float32))
        assert choices[row] == bits.random_raw() % 4


def test_rows_of_noise_do_not_depend_on_their_neighbours() -> None:
    together, steps = draw_rows([11, 5, 99], 33, 4)
    for row, seed in enumerate([11, 5, 99]):
        alone, step = draw_rows([seed], 33, 4)
        assert np.array_equal(together[row], alone[0]) and steps[row] == step[0]


def test_noise_is_standard_normal_and_steps_are_uniform() -> None:
    normals, steps = draw_rows(range(4000), 8, 4)
    assert abs(normals.mean()) < 0.03 and abs(normals.std() - 1) < 0.03
    assert np.abs(np.bincount(steps, minlength=4) - 1000).max() < 150
    assert abs(np.corrcoef(normals[:-1, 0], normals[1:, 0])[0, 1]) < 0.06, "neighbouring seeds are unrelated"


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_are_64_bits(seed: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        draw_rows([seed], 4, 4)


def test_no_seeds_give_no_rows() -> None:
    normals, steps = draw_rows([], 4, 4)
    assert normals.shape == (0, 4) and steps.shape == (0,)
