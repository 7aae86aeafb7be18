"""A policy call over InferStream beside openpi's websocket client: same 301 KB up, same answer, one run, in turns.

Neither side computes anything: both servers answer a constant chunk; what is compared is the way there and back.
Run: ``python -m benchmarks.policy_stream_vs_openpi``.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

from benchmarks import results
from landbridge.contract import Contract, TensorSpec
from landbridge.policy.client import PolicyClient
from landbridge.process import ProcessGroup, announce_ready, watch_parent
from landbridge.weights import State
from policy_server.backends.protocol import Answer
from policy_server.options import PolicyServeConfig
from policy_server.serve import build

HORIZON, ACTION = 50, 7
IMAGE = (224, 224, 3)


class ConstantBackend:
    """Answers zeros at once; see ``policy_server.backends.protocol.Backend``."""

    contract = Contract(
        observation=(
            TensorSpec("base_image", IMAGE, "uint8"),
            TensorSpec("wrist_image", IMAGE, "uint8"),
            TensorSpec("state", (8,)),
        ),
        action=TensorSpec("action", (ACTION,)),
        control_rate_hz=20.0,
    )
    horizon = HORIZON
    reads: tuple[str, ...] = ("base_image", "wrist_image", "state")
    value_reads: tuple[str, ...] = ()
    architecture_hash = "0" * 64
    architecture_json = "{}"
    first_version = 0
    first_step = 0

    def __init__(self) -> None:
        self.first_state: State = {}

    def build(self, state: State) -> Any:
        """No module is needed."""
        return None

    def compute(
        self, module: Any, obs: Mapping[str, np.ndarray], seeds: Sequence[int], deterministic: bool, with_value: bool
    ) -> Answer:
        """Zeros for every row."""
        return Answer(np.zeros((len(seeds), HORIZON, ACTION), np.float32), None, None, {})


def serve_constant() -> None:
    """The landbridge side's server process."""
    watch_parent()
    server = build(PolicyServeConfig(checkpoint=results.ROOT, port=0), ConstantBackend())
    server.start()
    announce_ready(server.address)
    time.sleep(3600)


@contextlib.contextmanager
def openpi_call(pixels: np.ndarray, state: np.ndarray) -> Iterator[Callable[[], None]]:
    """A call of openpi's own client."""
    command = [sys.executable, "-m", "benchmarks.openpi_peer", "--horizon", str(HORIZON), "--action", str(ACTION)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=results.ROOT) as process:
        try:
            assert process.stdout is not None
            client = WebsocketClientPolicy("127.0.0.1", int(process.stdout.readline()))
            observation = {
                "observation/exterior_image_1_left": pixels,
                "observation/wrist_image_left": pixels,
                "observation/state": state,
            }

            def call() -> None:
                assert client.infer(observation)["actions"].shape == (HORIZON, ACTION)

            yield call
        finally:
            process.kill()


@contextlib.contextmanager
def landbridge_calls(pixels: np.ndarray, state: np.ndarray) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """A streamed and a unary call of ours."""
    observation = {"base_image": pixels[None], "wrist_image": pixels[None], "state": state[None]}
    with ProcessGroup() as group:
        address = group.start(
            "policy", [sys.executable, "-m", "benchmarks.policy_stream_vs_openpi", "--serve"], cwd=results.ROOT
        ).wait_serving(60.0)
        with PolicyClient(address) as client, client.stream() as stream:

            def streamed() -> None:
                assert stream.infer(observation, seeds=(1,)).actions.shape == (1, HORIZON, ACTION)

            def unary() -> None:
                assert client.infer(observation, seeds=(1,)).actions.shape == (1, HORIZON, ACTION)

            yield streamed, unary


def measure(calls: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, in turns, so that the machine's moods meet all alike."""
    for call in calls.values():
        for _ in range(50):
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begun)
    return times


def main() -> None:
    """Measure and write ``policy-stream-vs-openpi``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve_constant()
    rng = np.random.default_rng(0)
    pixels, state = rng.integers(0, 255, IMAGE, np.uint8), rng.standard_normal(8).astype(np.float32)
    with openpi_call(pixels, state) as openpi, landbridge_calls(pixels, state) as (streamed, unary):
        times = measure({"openpi": openpi, "stream": streamed, "unary": unary}, args.rounds)
    p50 = {name: statistics.median(values) for name, values in times.items()}
    p99 = {name: statistics.quantiles(values, n=100)[98] for name, values in times.items()}
    results.write(
        "policy-stream-vs-openpi",
        figure="p50 of InferStream over p50 of openpi-client, 301 KB up",
        value=p50["stream"] / p50["openpi"],
        unit="ratio",
        peer="openpi-client 0.1.2 with a minimal websockets server",
        ratio=p50["stream"] / p50["openpi"],
        p50_microseconds={name: round(1e6 * value, 1) for name, value in p50.items()},
        p99_microseconds={name: round(1e6 * value, 1) for name, value in p99.items()},
        unary_ratio=p50["unary"] / p50["openpi"],
        rounds=args.rounds,
    )
    return None


if __name__ == "__main__":
    main()
