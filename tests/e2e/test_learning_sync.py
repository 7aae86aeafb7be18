"""With staleness 0 the services train exactly as a loop in one process does, on the same seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from learning_parts import (
    EPISODE_STEPS,
    json_lines,
    landbridge,
    pendulum_policy,
    processes,
    start_policy,
    start_sim,
    write_checkpoint,
)

from landbridge.config import load
from landbridge.policies.checkpoint import load_checkpoint
from landbridge.policies.flow import FlowPolicy
from landbridge.policies.protocol import SampleMode
from landbridge.process import ProcessGroup
from landbridge.v1 import learner_pb2 as pb
from learner.advantages import End
from learner.algorithms.registry import algorithm
from learner.buffer import TrajectoryLog
from learner.config import LearnConfig
from learner.seeds import env_seed, episode_seed, noise_seed
from learner.serve import layout_of
from learner.train import Model, train_on
from learner.trajectories import Trajectory, describe, from_message
from sim_server.adapters import make_env

BATCH, UPDATES, SEED = 6, 4, 11
SETTINGS = {
    "batch": BATCH,
    "max_staleness": 0,
    "seed": SEED,
    "stop.updates": UPDATES,
    "ppo.epochs": 2,
    "ppo.minibatch": 10,
    "ppo.learning_rate": 1e-3,
    "reward.scale": 0.1,
    "reward.step_penalty": 0.02,
}


def run_services(folder: Path, **settings: object) -> Path:
    """Policy server, sim server, learner and worker as processes; returns the run's folder."""
    flags = [word for key, value in (SETTINGS | settings).items() for word in ("--" + key.replace("_", "-"), value)]
    with processes(folder / "logs") as group:
        checkpoint = write_checkpoint(folder / "start")
        servers = start_policy(group, checkpoint).address, start_sim(group, 6).address
        return run_learner(group, folder, checkpoint, *servers, *flags)


def run_learner(group: ProcessGroup, folder: Path, checkpoint: Path, policy: str, env: str, *flags: object) -> Path:
    words = ("--policy", policy, "--env", env, "--checkpoint", checkpoint, "--run-dir", folder / "run", "--port", 0)
    learner = group.start("learner", landbridge("learn", "rl", *words, *flags))
    assert learner.wait(90) == 0, learner.tail()
    return folder / "run"


def trained_on(run: Path) -> list[Trajectory]:
    """What the learner trained on, in that order."""
    log, layout = TrajectoryLog(run / "trajectories", describe), layout_of(pendulum_policy())
    records = {record.sequence: record for record in log.pending()}
    log.close()
    order = [sequence for line in json_lines(run / "consumed.jsonl") for sequence in line["trained"]]
    return [from_message(pb.Trajectory.FromString(records[s].data), layout, 1000) for s in order]


def loop_in_process() -> tuple[list[Trajectory], FlowPolicy]:
    """Reset, act, step, train: no services, no versions, no workers."""
    overrides = [f"{key}={value}" for key, value in SETTINGS.items()]
    config = load(LearnConfig, None, ["policy=nobody:1", "checkpoint=nowhere", *overrides])
    env, policy = make_env("gymnasium:Pendulum-v1", {"max_episode_steps": EPISODE_STEPS}), pendulum_policy()
    ppo = algorithm("ppo")
    model = Model(policy, ppo, config.ppo, ppo.make_optimizers(policy, config.ppo), torch.Generator().manual_seed(SEED))
    made: list[Trajectory] = []
    for update in range(UPDATES):
        batch = [episode(env, policy, index, update) for index in range(update * BATCH, (update + 1) * BATCH)]
        made += batch
        train_on(model, batch, update, config)
    env.close()
    return made, policy


def episode(env: object, policy: FlowPolicy, index: int, version: int) -> Trajectory:
    seed = episode_seed(SEED, index)
    observations = [env.reset(env_seed(seed), {}).observation["state"]]  # type: ignore[attr-defined]
    samples, results = [], []
    while not (results and (results[-1].terminated or results[-1].truncated)):
        noise = {n: torch.from_numpy(a) for n, a in policy.draw_noise([noise_seed(seed, len(results))]).items()}
        with torch.no_grad():
            sample = policy.act({"state": torch.from_numpy(observations[-1])[None]}, noise, SampleMode.STOCHASTIC)
        samples.append(sample)
        results.append(env.step_chunk(sample.actions[0].numpy(), True))  # type: ignore[attr-defined]
        observations.append(results[-1].observation["state"])
    count = len(results)
    return Trajectory(
        id=str(index),
        ticket=f"t-{index}",
        worker_id="",
        observation={"state": np.stack(observations)},
        trace={name: torch.cat([s.trace[name] for s in samples]).numpy() for name in samples[0].trace},
        log_prob=torch.cat([s.log_prob for s in samples]).numpy(),
        actions=torch.cat([s.actions for s in samples]).numpy(),
        rewards=np.stack([r.rewards for r in results]),
        evaluated=np.stack([r.evaluated for r in results]),
        executed=np.array([r.executed for r in results]),
        versions=np.full(count, version),
        end=End.TERMINATED if results[-1].terminated else End.TRUNCATED,
        success_once=results[-1].success_once,
        success_at_end=results[-1].success_at_end,
        seed=seed,
        episode_id="",
    )


Compare = Callable[[np.ndarray, np.ndarray], None]


def assert_same(services: Trajectory, loop: Trajectory, compare: Compare) -> None:
    assert (services.seed, services.end) == (loop.seed, loop.end)
    assert services.versions.tolist() == loop.versions.tolist()
    assert services.executed.tolist() == loop.executed.tolist()
    for name in ("log_prob", "actions", "rewards", "evaluated"):
        compare(getattr(services, name), getattr(loop, name))
    compare(services.observation["state"], loop.observation["state"])
    for name in loop.trace:
        compare(services.trace[name], loop.trace[name])


def test_one_environment_trains_bit_for_bit_as_the_loop_does(tmp_path: Path) -> None:
    run = run_services(tmp_path, **{"worker.envs": 1})
    loop, policy = loop_in_process()
    services = trained_on(run)
    assert len(services) == len(loop) == BATCH * UPDATES
    for one, other in zip(services, loop, strict=True):
        assert_same(one, other, np.testing.assert_array_equal)
    trained = load_checkpoint(run / "checkpoint" / "policy")
    assert (trained.version, trained.training_step) == (UPDATES, UPDATES)
    start = pendulum_policy().state_dict()
    for name, tensor in policy.state_dict().items():
        assert torch.equal(trained.policy.state_dict()[name], tensor), name
    assert any(not torch.equal(start[p], policy.state_dict()[p]) for p in start), "it did train"


def test_many_environments_run_the_same_episodes_up_to_rounding(tmp_path: Path) -> None:
    run = run_services(tmp_path, **{"worker.envs": 6, "worker.groups": 2})
    loop, _ = loop_in_process()
    services = trained_on(run)
    assert [t.seed for t in services] == [t.seed for t in loop]
    for one, other in zip(services, loop, strict=True):
        assert_same(one, other, lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2e-3))
    for line in json_lines(run / "metrics.jsonl"):
        assert line["staleness_max"] == 0
        assert line["behaviour_gap"] < 1e-4, "served and recomputed log-probabilities are of one policy"


@pytest.mark.parametrize("envs", [3])
def test_at_learning_rate_0_the_ratio_is_1_and_nothing_is_clipped_over_the_wire(tmp_path: Path, envs: int) -> None:
    run = run_services(tmp_path, **{"worker.envs": envs, "ppo.learning_rate": 0, "ppo.critic_warmup": 0})
    lines = json_lines(run / "metrics.jsonl")
    assert len(lines) == UPDATES
    for line in lines:
        assert line["ratio_min"] == line["ratio_max"] == 1.0
        assert line["clip_fraction"] == 0.0 and line["kl"] == 0.0
        assert line["behaviour_gap"] < 1e-4
