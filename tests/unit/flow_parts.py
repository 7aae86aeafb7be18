"""A small contract and policies for the tests of flow policies and of what trains them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from landbridge.contract import Contract, Quantity, Segment, TensorSpec, Unit
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, NoiseKind, Statistics
from landbridge.policies.protocol import ActionSample, SampleMode
from learner.algorithms.batch import DecisionBatch

torch.set_num_threads(1)

CONTRACT = Contract(
    observation=(
        TensorSpec(
            "state",
            (6,),
            segments=(Segment("tcp", 0, 3, Quantity.EE_POSITION, Unit.METRE, frame="base"),),
        ),
        TensorSpec("privileged", (2,), privileged=True),
    ),
    action=TensorSpec("action", (3,), low=(-0.1, -0.1, 0.0), high=(0.1, 0.1, 0.08)),
    control_rate_hz=20.0,
    task="toy",
)
STATISTICS = Statistics(
    {"state": ([0.1] * 6, [0.5] * 6), "privileged": ([0.0] * 2, [1.0] * 2)},
    action_offset=[0.0, 0.0, 0.04],
    action_scale=[0.1, 0.1, 0.04],
)


def make_policy(noise: NoiseKind = NoiseKind.SDE_HYBRID, seed: int = 0, **options: Any) -> FlowPolicy:
    """An untrained policy whose weights are large enough for velocities to matter."""
    torch.manual_seed(seed)
    config = FlowPolicyConfig(noise=noise, **({"hidden": (32, 32), "critic_hidden": (32,)} | options))
    policy = FlowPolicy(CONTRACT, config, STATISTICS)
    with torch.no_grad():
        for parameter in policy.actor_parameters():
            parameter.mul_(2.0)
    return policy


def observations(count: int, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "state": torch.randn(count, 6, generator=generator),
        "privileged": torch.randn(count, 2, generator=generator),
    }


def noise_for(policy: FlowPolicy, seeds: Iterable[int]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(rows) for name, rows in policy.draw_noise(list(seeds)).items()}


def sample(policy: FlowPolicy, count: int, mode: SampleMode = SampleMode.STOCHASTIC) -> ActionSample:
    """Chunks for ``observations(count)`` with the seeds 0 … count − 1."""
    with torch.no_grad():
        return policy.act(observations(count), noise_for(policy, range(count)), mode, with_value=True)


def make_batch(policy: FlowPolicy, count: int, seed: int = 2) -> DecisionBatch:
    """Decisions sampled by ``policy`` with made-up advantages; between 1 and H steps of each executed."""
    generator = torch.Generator().manual_seed(seed)
    drawn = sample(policy, count)
    assert drawn.value is not None
    return DecisionBatch(
        obs=observations(count),
        trace=drawn.trace,
        behaviour_log_prob=drawn.log_prob,
        executed=torch.randint(1, policy.horizon + 1, (count,), generator=generator),
        advantages=torch.randn(count, generator=generator),
        returns=torch.randn(count, generator=generator),
        old_values=drawn.value,
        valid=torch.ones(count, dtype=torch.bool),
        versions=torch.full((count,), 7),
    )
