"""What the tests of the policy server share: a small real policy, a server in this process, a way to hold it up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landbridge.contract import Contract, TensorSpec
from landbridge.policies.checkpoint import architecture_hash, save_checkpoint
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, Statistics
from landbridge.policies.protocol import SampleMode
from landbridge.policies.states import to_arrays
from landbridge.policy.client import InferResult
from landbridge.weights import Array
from policy_server.backends.protocol import Answer
from policy_server.backends.torch import TorchBackend
from policy_server.options import PolicyServeConfig
from policy_server.serve import PolicyServer, build

torch.set_num_threads(1)

CONTRACT = Contract(
    observation=(TensorSpec("state", (6,)), TensorSpec("privileged", (2,), privileged=True)),
    action=TensorSpec("action", (3,), low=(-0.1, -0.1, 0.0), high=(0.1, 0.1, 0.08)),
    control_rate_hz=20.0,
    task="toy",
)
STATISTICS = Statistics(
    {"state": ([0.0] * 6, [1.0] * 6), "privileged": ([0.0] * 2, [1.0] * 2)}, [0.0, 0.0, 0.04], [0.1, 0.1, 0.04]
)
CONFIG = FlowPolicyConfig(hidden=(32, 32), critic_hidden=(16,), critic_inputs=("state", "privileged"))
TIMEOUT = 20.0


def make_policy(version: int, config: FlowPolicyConfig = CONFIG) -> FlowPolicy:
    """The policy of that version: other weights, far enough from any other version's that a mixture shows."""
    torch.manual_seed(version)
    return FlowPolicy(CONTRACT, config, STATISTICS)


def state_of(version: int) -> dict[str, Array]:
    return to_arrays(make_policy(version).state_dict())


HASH = architecture_hash(make_policy(0).architecture())


def write_checkpoint(folder: Path, version: int = 0) -> Path:
    return save_checkpoint(folder, make_policy(version), version=version, training_step=version * 10)


def observation(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"state": np.random.default_rng(seed).standard_normal((rows, 6)).astype(np.float32)}


def computed_here(
    policy: FlowPolicy, obs: Mapping[str, np.ndarray], seeds: Sequence[int], deterministic: bool = True
) -> np.ndarray:
    """The actions [rows, horizon, action] that the policy gives in this process, without any server."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in obs.items()}
    noise = {name: torch.from_numpy(array) for name, array in policy.draw_noise(seeds).items()}
    mode = SampleMode.DETERMINISTIC if deterministic else SampleMode.STOCHASTIC
    with torch.no_grad():
        return policy.act(tensors, noise, mode).actions.numpy()


def assert_is_of_its_version(answer: InferResult, obs: Mapping[str, np.ndarray], deterministic: bool = True) -> None:
    """Every row of ``answer`` is what the weights of the version it names compute from its seeds."""
    expected = computed_here(make_policy(answer.version), obs, answer.seeds, deterministic)
    np.testing.assert_allclose(answer.actions, expected, rtol=0, atol=1e-6)


class HeldUp(TorchBackend):
    """The real backend, which computes only while :attr:`gate` is open; says what batches it computed."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint, threads=1)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        """Released once for every batch that is begun."""
        self.batches: list[int] = []

    def compute(
        self,
        module: FlowPolicy,
        obs: Mapping[str, np.ndarray],
        seeds: Sequence[int],
        deterministic: bool,
        with_value: bool,
    ) -> Answer:
        self.batches.append(len(seeds))
        self.entered.release()
        assert self.gate.wait(TIMEOUT), "the test left the gate closed"
        return super().compute(module, obs, seeds, deterministic, with_value)

    def close_gate(self) -> None:
        self.gate.clear()
        while self.entered.acquire(blocking=False):
            pass

    def wait_entered(self) -> None:
        """Until a batch is being computed (and stands before the gate)."""
        assert self.entered.acquire(timeout=TIMEOUT), "no batch was begun"


@contextlib.contextmanager
def serving(folder: Path, **options: Any) -> Iterator[tuple[PolicyServer, HeldUp]]:
    """A policy server in this process, over real gRPC, on a checkpoint of version 0 in ``folder``."""
    backend = HeldUp(write_checkpoint(folder / "checkpoint"))
    server = build(PolicyServeConfig(checkpoint=folder / "checkpoint", port=0, **options), backend)
    server.start()
    try:
        yield server, backend
    finally:
        backend.gate.set()
        server.stop(0.2)
