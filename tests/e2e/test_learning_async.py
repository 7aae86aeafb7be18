"""Asynchronous training by the command line: imitation, rollouts across hot swaps, evaluation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from learning_parts import (
    EPISODE_STEPS,
    json_lines,
    landbridge,
    pendulum_contract,
    pendulum_policy,
    processes,
    start_policy,
    start_sim,
    write_checkpoint,
)

from landbridge.contract_codec import contract_to_json
from landbridge.intervals import Rate
from landbridge.policies.checkpoint import load_checkpoint
from landbridge.policies.flow import FlowPolicy
from landbridge.policies.protocol import SampleMode
from landbridge.policy.client import PolicyClient
from landbridge.v1 import learner_pb2 as pb
from learner.buffer import TrajectoryLog
from learner.seeds import noise_seed
from learner.serve import layout_of
from learner.trajectories import Trajectory, describe, from_message

ETA, UPDATES = 2, 32


def run(*words: object) -> str:
    done = subprocess.run(landbridge(*words), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def recomputed(policy: FlowPolicy, made: Trajectory, decision: int) -> tuple[np.ndarray, np.ndarray]:
    """The chunk and log-probabilities that ``policy`` gives for a decision, from the episode's seed alone."""
    noise = {n: torch.from_numpy(a) for n, a in policy.draw_noise([noise_seed(made.seed, decision)]).items()}
    state = torch.from_numpy(np.array(made.observation["state"][decision : decision + 1]))
    with torch.no_grad():
        sample = policy.act({"state": state}, noise, SampleMode.STOCHASTIC)
    return sample.actions[0].numpy(), sample.log_prob[0].numpy()


def test_hot_swaps_under_way_fail_nobody_mix_nothing_and_keep_samples_fresh(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with processes(tmp_path / "logs") as group:
        checkpoint = write_checkpoint(tmp_path / "start")
        policy, sim = start_policy(group, checkpoint, "--keep", 100).address, start_sim(group, 4).address
        words = ["--policy", policy, "--env", sim, "--checkpoint", checkpoint, "--run-dir", run_dir, "--port", 0]
        words += ["--batch", 6, "--max-staleness", ETA, "--stop.updates", UPDATES, "--archive-every", 1]
        words += ["--ppo.epochs", 2, "--ppo.minibatch", 16, "--ppo.learning-rate", 1e-3, "--worker.groups", 2]
        words += ["--exploration.half-life", 8, "--exploration.final", 0.1]  # every version has a noise of its own
        output = run("learn", "rl", *words)
        with PolicyClient(policy) as client:
            assert client.info().current_version == UPDATES
        evaluated = tmp_path / "eval.json"
        words = ["--policy", policy, "--env", sim, "--episodes", 7, "--version", 5, "--out", evaluated]
        printed = json.loads(run("learn", "eval", *words))
        again = json.loads(run("learn", "eval", *words[:-2], "--envs", 1))
    check_output(output)
    check_swaps(run_dir)
    check_staleness(run_dir)
    check_every_decision_is_of_the_version_it_names(run_dir)
    check_evaluation(printed, again, json.loads(evaluated.read_text()))


def check_output(output: str) -> None:
    lines = [line for line in output.splitlines() if line.startswith("update")]
    assert len(lines) == UPDATES
    for word in ("version", "success", "staleness", "steps/s", "KL"):
        assert word in lines[-1]


def check_swaps(run_dir: Path) -> None:
    swaps = json_lines(run_dir / "swaps.jsonl")
    assert [swap["version"] for swap in swaps] == list(range(UPDATES + 1))
    assert all(swap["attempts"] == 1 for swap in swaps)
    # Episodes are released for one reason only: training was over.
    worker_log = (run_dir / "logs" / "worker-0.log").read_text()
    assert "WARNING" not in worker_log and "Traceback" not in worker_log


def check_staleness(run_dir: Path) -> None:
    lines = json_lines(run_dir / "metrics.jsonl")
    assert len(lines) == UPDATES and max(line["staleness_max"] for line in lines) <= ETA
    histogram = [sum(line.get(f"staleness_{s}", 0) for line in lines) for s in range(ETA + 1)]
    assert sum(histogram) == sum(line["batch_decisions"] for line in lines) and histogram[1] > 0
    assert all(line.get("behaviour_gap", 0.0) < 1e-4 for line in lines)


def check_every_decision_is_of_the_version_it_names(run_dir: Path) -> None:
    versions = {int(p.name): load_checkpoint(p).policy for p in (run_dir / "versions").iterdir()}
    versions[0] = pendulum_policy()
    stds = [float(versions[v].sde[1, 2]) for v in range(UPDATES + 1)]
    assert stds == sorted(stds, reverse=True) and stds[8] == pytest.approx(stds[0] * 0.25 / 0.4)
    log, layout = TrajectoryLog(run_dir / "trajectories", describe), layout_of(versions[0])
    made = [from_message(pb.Trajectory.FromString(r.data), layout, UPDATES) for r in log.pending()]
    log.close()
    assert len(made) >= UPDATES * 6
    assert any(len(set(t.versions.tolist())) > 1 for t in made), "some episode went on across a swap"
    for one in made:
        assert (np.diff(one.versions) >= 0).all()
        for decision, version in enumerate(one.versions.tolist()):
            actions, log_prob = recomputed(versions[version], one, decision)
            np.testing.assert_allclose(one.actions[decision], actions, rtol=0, atol=1e-5)
            np.testing.assert_allclose(one.log_prob[decision], log_prob, rtol=0, atol=1e-4)


def check_evaluation(printed: dict, again: dict, written: dict) -> None:  # type: ignore[type-arg]
    assert printed["versions"] == [5] and printed["episodes"] == 7 and printed["mean_steps"] == EPISODE_STEPS
    assert (printed["low"], printed["high"]) == Rate(printed["successes"], 7).interval()
    assert again["mean_return"] == pytest.approx(printed["mean_return"], abs=1e-3), "however many environments"
    assert [episode["seed"] for episode in written["per_episode"]] == list(range(1_000_000, 1_000_007))
    assert "per_episode" not in printed


def test_imitation_writes_a_checkpoint_that_copies_its_demonstrations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (400, 3)).astype(np.float32)
    np.savez(
        tmp_path / "demos.npz",
        contract=np.array(json.dumps(contract_to_json(pendulum_contract()))),
        obs_state=states,
        actions=(1.5 * states[:, :1]).astype(np.float32),
        lengths=np.full(40, 10),
    )
    words = ["--demos", tmp_path / "demos.npz", "--out", tmp_path / "sft", "--sft.steps", 600, "--episodes", 30]
    output = run("learn", "sft", *words, "--policy.horizon", 1, "--policy.hidden", "32,32", "--sft.learning-rate", 5e-3)
    assert "30 demonstrations, 300 steps" in output
    loaded = load_checkpoint(tmp_path / "sft")
    assert loaded.version == 0 and loaded.extra["demonstrations"] == 30
    noise = {n: torch.from_numpy(a) for n, a in loaded.policy.draw_noise(range(100)).items()}
    with torch.no_grad():
        chosen = loaded.policy.act({"state": torch.from_numpy(states[:100])}, noise, SampleMode.DETERMINISTIC)
    assert float((chosen.actions[:, 0] - 1.5 * torch.from_numpy(states[:100, :1])).abs().mean()) < 0.3
