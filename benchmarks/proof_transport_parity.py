"""The same policy on the same seeds over gRPC and in one process: actions and episodes must be identical.

Run: ``python -m benchmarks.proof_transport_parity``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks import results
from benchmarks.policies import flow_policy
from landbridge.contract import Contract
from landbridge.env.client import EnvClient
from landbridge.policies.checkpoint import save_checkpoint
from landbridge.policies.flow import FlowPolicy
from landbridge.policies.protocol import SampleMode
from landbridge.policy.client import PolicyClient
from landbridge.process import ProcessGroup
from sim_server.adapters import make_env

Episode = list[tuple[np.ndarray, np.ndarray, float]]
"""(actions [H, A], observation after them, reward) of each decision."""


def noise_seed(episode: int, decision: int) -> int:
    """One seed a decision, the same on both sides."""
    return episode * 100_000 + decision


def in_process(env_id: str, policy: FlowPolicy, episodes: int, mode: SampleMode) -> list[Episode]:
    """Policy and environment called directly."""
    env, made = make_env(f"gymnasium:{env_id}", {}), []
    for episode in range(episodes):
        observation, done = env.reset(episode, {}).observation, False
        steps: Episode = []
        while not done:
            obs = {"state": torch.from_numpy(observation["state"].copy())[None]}
            drawn = policy.draw_noise([noise_seed(episode, len(steps))])
            with torch.inference_mode():
                actions = policy.act(obs, {n: torch.from_numpy(v) for n, v in drawn.items()}, mode).actions[0].numpy()
            result = env.step_chunk(actions, True)
            observation, done = result.observation, result.terminated or result.truncated
            steps.append((actions, observation["state"], float(result.rewards.sum())))
        made.append(steps)
    env.close()
    return made


def over_grpc(env_id: str, checkpoint: Path, episodes: int, mode: SampleMode) -> list[Episode]:
    """The same through a policy server and a simulator server, processes both."""
    command = [sys.executable, "-m", "landbridge.cli"]
    made = []
    with ProcessGroup() as group:
        sim = group.start("sim", [*command, "sim", "serve", f"gymnasium:{env_id}", "--num-envs", "1", "--port", "0"])
        server = group.start("policy", [*command, "policy", "serve", "--checkpoint", checkpoint, "--port", "0"])
        addresses = sim.wait_serving(60.0), server.wait_serving(60.0)
        with EnvClient(addresses[0]) as env, env.open(1) as session, PolicyClient(addresses[1]) as policy:
            for episode in range(episodes):
                observation, done = session.reset(seeds=[episode]).observation, False
                steps: Episode = []
                while not done:
                    answer = policy.infer(
                        observation,
                        deterministic=mode is SampleMode.DETERMINISTIC,
                        seeds=[noise_seed(episode, len(steps))],
                    )
                    result = session.step_chunk(answer.actions)
                    observation, done = result.observation, bool(result.done[0])
                    steps.append((answer.actions[0], observation["state"][0], float(result.rewards.sum())))
                made.append(steps)
    return made


def compare(one: list[Episode], other: list[Episode]) -> float:
    """Largest absolute action difference; infinite where episodes differ in length, observation or reward."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        if len(a) != len(b):
            return float("inf")
        for (actions, observation, reward), (actions2, observation2, reward2) in zip(a, b, strict=True):
            largest = max(largest, float(np.abs(actions - actions2).max()))
            if not np.array_equal(observation, observation2) or reward != reward2:
                return float("inf")
    return largest


def contract_of(env_id: str) -> Contract:
    """What the environment offers."""
    env = make_env(f"gymnasium:{env_id}", {})
    env.close()
    return env.contract


def main() -> int:
    """Measure and write ``transport-parity``; exit status 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    worst, decisions = 0.0, 0
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        policy = flow_policy(contract_of(env_id), weights=1)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = save_checkpoint(Path(folder) / "policy", policy, version=0, training_step=0)
            for mode in SampleMode:
                direct = in_process(env_id, policy, args.episodes, mode)
                worst = max(worst, compare(direct, over_grpc(env_id, checkpoint, args.episodes, mode)))
                decisions += sum(map(len, direct))
    results.write(
        "transport-parity",
        figure="largest absolute action difference, gRPC against in process; episodes compared bit for bit",
        value=worst,
        unit="action",
        decisions=decisions,
        environments=["CartPole-v1", "Pendulum-v1"],
    )
    return 0 if worst == 0.0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
