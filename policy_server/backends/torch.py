"""The torch backend: builds a module a version, and computes batches with it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from landbridge.contract import Contract
from landbridge.policies.checkpoint import architecture_hash, architecture_json, load_checkpoint
from landbridge.policies.flow import FlowPolicy
from landbridge.policies.protocol import SampleMode
from landbridge.policies.states import to_arrays, to_tensors
from landbridge.weights import State
from policy_server.backends.protocol import Answer


class TorchBackend:
    """See :class:`policy_server.backends.protocol.Backend`."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        """Load ``checkpoint``; ``threads`` bounds torch's in this process."""
        self._threads = threads
        self._bounded = threading.local()
        self._bound_threads()
        loaded = load_checkpoint(checkpoint)
        policy = loaded.policy.requires_grad_(False).eval()
        self._template = policy
        self.contract: Contract = policy.contract
        self.horizon = policy.horizon
        self.reads = policy.reads()
        self.value_reads = tuple(policy.config.critic_inputs)
        self.architecture_hash = architecture_hash(policy.architecture())
        self.architecture_json = architecture_json(policy.architecture())
        self.first_version = loaded.version
        self.first_step = loaded.training_step
        self.first_state: State = to_arrays(policy.state_dict())

    def _bound_threads(self) -> None:
        """OpenMP's bound belongs to a thread, and whichever thread waits for an answer may compute it.

        Unbound, two threads fight over a busy machine's cores, and a matrix product's rounding depends on who asks.
        """
        if not hasattr(self._bounded, "done"):
            torch.set_num_threads(self._threads)
            self._bounded.done = True

    def build(self, state: State) -> FlowPolicy:
        """A frozen module with these weights. A copy of the template: drawing initial weights would take longer."""
        module = copy.deepcopy(self._template)
        module.load_state_dict(to_tensors(state))
        return module

    def compute(
        self,
        module: FlowPolicy,
        obs: Mapping[str, np.ndarray],
        seeds: Sequence[int],
        deterministic: bool,
        with_value: bool,
    ) -> Answer:
        """One batch. Rows depend on their own observation and seed only (up to float rounding)."""
        self._bound_threads()
        tensors = {name: torch.from_numpy(array) for name, array in obs.items()}
        noise = {name: torch.from_numpy(array) for name, array in module.draw_noise(seeds).items()}
        mode = SampleMode.DETERMINISTIC if deterministic else SampleMode.STOCHASTIC
        with torch.inference_mode():
            sample = module.act(tensors, noise, mode, with_value)
        return Answer(
            actions=sample.actions.numpy(),
            log_prob=None if deterministic else sample.log_prob.numpy(),
            value=None if sample.value is None else sample.value.numpy(),
            trace={name: tensor.numpy() for name, tensor in sample.trace.items()},
        )
