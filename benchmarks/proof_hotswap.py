"""Hot swaps of the demo's policy in a server process, under clients that never pause.

Counted: requests that failed, and answers that do not reproduce from the weights of the version they name.
Run: ``python -m benchmarks.proof_hotswap``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from benchmarks import results
from benchmarks.policies import flow_policy
from landbridge.contract import Contract, TensorSpec
from landbridge.errors import LandbridgeError
from landbridge.policies.checkpoint import architecture_hash, save_checkpoint
from landbridge.policies.protocol import SampleMode
from landbridge.policies.states import to_arrays
from landbridge.policy.client import InferResult, PolicyClient
from landbridge.process import ProcessGroup

CONTRACT = Contract((TensorSpec("state", (24,)),), TensorSpec("action", (4,), low=(-1.0,), high=(1.0,)), 20.0)
TOLERANCE = 1e-5
"""Float rounding between batch shapes; two versions differ by more than 1e-2."""

Answered = tuple[int, InferResult]


def observation(seed: int) -> dict[str, np.ndarray]:
    """1 to 8 rows."""
    rng = np.random.default_rng(seed)
    return {"state": rng.standard_normal((1 + seed % 8, 24)).astype(np.float32)}


def ask(address: str, first: int, stop: threading.Event, answers: list[Answered], failures: list[str]) -> None:
    """One client: request after request on a stream."""
    with PolicyClient(address) as client:
        stream = client.stream()
        seed = first
        while not stop.is_set():
            seed += 1
            try:
                answers.append((seed, stream.infer(observation(seed), deterministic=False)))
            except LandbridgeError as error:
                failures.append(str(error))
                stream = client.stream()
        stream.close()


def mixed(answers: list[Answered]) -> int:
    """Answers that differ from what the version they name computes."""
    count = 0
    by_version: dict[int, list[Answered]] = {}
    for item in answers:
        by_version.setdefault(item[1].version, []).append(item)
    for version, own in by_version.items():
        policy = flow_policy(CONTRACT, weights=version)
        for seed, answer in own:
            obs = {name: torch.from_numpy(value) for name, value in observation(seed).items()}
            noise = {name: torch.from_numpy(value) for name, value in policy.draw_noise(answer.seeds).items()}
            with torch.inference_mode():
                expected = policy.act(obs, noise, SampleMode.STOCHASTIC).actions.numpy()
            count += float(np.abs(expected - answer.actions).max()) > TOLERANCE
    return count


def main() -> int:
    """Measure and write ``hotswap-spine``; exit status 1 when a request failed or an answer was mixed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--period", type=float, default=0.2, help="seconds between swaps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    answers: list[Answered] = []
    failures: list[str] = []
    flips = []
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ProcessGroup() as group, ThreadPoolExecutor(args.clients) as pool:
        checkpoint = save_checkpoint(Path(folder) / "p", flow_policy(CONTRACT, 0), version=0, training_step=0)
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "landbridge.cli",
            "policy",
            "serve",
            "--checkpoint",
            checkpoint,
            "--port",
            "0",
        ]
        address = group.start("policy", command).wait_serving(60.0)
        try:
            for index in range(args.clients):
                pool.submit(ask, address, index * 10_000_000, stop, answers, failures)
            with PolicyClient(address) as pusher:
                for version in range(1, args.swaps + 1):
                    policy = flow_policy(CONTRACT, version)
                    reply = pusher.push_weights(
                        to_arrays(policy.state_dict()),
                        version=version,
                        architecture_hash=architecture_hash(policy.architecture()),
                    )
                    flips.append(reply.flip_seconds)
                    time.sleep(args.period)
        finally:
            stop.set()
    wrong = mixed(answers)
    results.write(
        "hotswap-spine",
        figure="failed + mixed responses while versions were swapped under load",
        value=len(failures) + wrong,
        unit="responses",
        failed=len(failures),
        mixed=wrong,
        responses=len(answers),
        swaps=args.swaps,
        versions_seen=len({answer.version for _, answer in answers}),
        flip_microseconds_median=1e6 * statistics.median(flips),
    )
    return 0 if not failures and not wrong and answers else 1


if __name__ == "__main__":
    raise SystemExit(main())
