"""Policies that proofs run with: the architecture the demo trains, with weights made from a number."""

from __future__ import annotations

import torch

from landbridge.contract import Contract
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, Statistics


def flow_policy(contract: Contract, weights: int, horizon: int = 4) -> FlowPolicy:
    """A 3x256 flow policy for ``contract``; another number, other weights."""
    torch.manual_seed(weights)
    observed = {spec.name: spec.shape[0] for spec in contract.observation}
    low, high = contract.action.bounds()
    statistics = Statistics(
        {name: ([0.0] * width, [1.0] * width) for name, width in observed.items()},
        (0.5 * (low + high)).tolist(),
        (0.5 * (high - low)).tolist(),
    )
    return FlowPolicy(contract, FlowPolicyConfig(horizon=horizon, critic_inputs=tuple(observed)), statistics)
