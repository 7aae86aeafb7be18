"""Record a scripted expert's successful episodes from a running environment endpoint.

The file is an ``.npz`` without pickles: ``contract`` (its JSON), ``actions`` [S, A], ``lengths`` [E] with Σ = S, one
``obs_NAME`` [S, …] for every observation, and ``seeds`` [E], ``success`` [E]. Episodes lie end to end; an observation
is the one its action was chosen from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from landbridge.config import option
from landbridge.contract import Contract
from landbridge.contract_codec import contract_to_json
from landbridge.env.client import EnvClient, EnvSession
from landbridge.errors import FailedPrecondition
from sim_server.experts import MAX_STEP, Expert, make_expert

OBSERVATION = "state"
"""The tensor experts read."""


@dataclass(frozen=True)
class DemoConfig:
    """Options of ``landbridge sim demos``."""

    episodes: int = option(30, "successful episodes to record", minimum=1)
    out: Path = option(Path("demos.npz"), "file to write")
    num_envs: int = option(0, "environments to use; 0: all that are free", minimum=0)
    first_seed: int = option(0, "seed of the first episode tried, the others follow", minimum=0)
    max_tries: int = option(0, "episodes to try at most; 0: four times as many as wanted", minimum=0)
    timeout: float = option(60.0, "seconds one call may take", minimum=0.1)


@dataclass
class _Episode:
    seed: int
    expert: Expert
    observations: list[dict[str, np.ndarray]]
    actions: list[np.ndarray]
    success: bool = False


def record(address: str, config: DemoConfig, progress: Callable[[str], None]) -> Path:
    """Drive the endpoint at ``address`` until enough episodes succeeded; returns the file written."""
    with EnvClient(address, config.timeout) as client:
        info = client.info(wait=True)
        expert_for(info.contract)  # is there one? Say so before anything is opened
        wanted = min(config.num_envs or max(1, info.free_envs), config.episodes)
        with client.open(wanted, name="demos") as session:
            kept = _collect(session, info.contract, config, progress)
    _write(config.out, info.contract, kept)
    progress(f"{len(kept)} episodes, {sum(len(e.actions) for e in kept)} steps in {config.out}")
    return config.out


def expert_for(contract: Contract) -> Expert:
    """The task's expert, asking for no more than the contract allows: what is clipped would be recorded unclipped."""
    return make_expert(contract.task, min(MAX_STEP, float(contract.action.bounds()[1].flat[0])))


def _collect(
    session: EnvSession, contract: Contract, config: DemoConfig, progress: Callable[[str], None]
) -> list[_Episode]:
    """Episodes by ascending seed, so that the file does not depend on the number of environments."""
    limit = config.max_tries or 4 * config.episodes
    done: dict[int, _Episode] = {}
    tried = 0
    succeeded = 0
    while succeeded < config.episodes:
        count = min(session.num_envs, limit - tried)
        if count <= 0:
            raise FailedPrecondition(
                f"{tried} episodes tried, {succeeded} of {config.episodes} wanted succeeded; "
                "allow more with --max-tries, or look at the expert"
            )
        seeds = [config.first_seed + tried + i for i in range(count)]
        for episode in _run_side_by_side(session, contract, seeds):
            done[episode.seed] = episode
        tried += count
        succeeded = sum(e.success for e in done.values())
        progress(f"{min(succeeded, config.episodes)}/{config.episodes} succeeded, {tried} tried")
    return [done[seed] for seed in sorted(done) if done[seed].success][: config.episodes]


def _run_side_by_side(session: EnvSession, contract: Contract, seeds: list[int]) -> list[_Episode]:
    """One episode in each of the first ``len(seeds)`` environments; lost ones count as failed."""
    episodes = [_Episode(seed, expert_for(contract), [], []) for seed in seeds]
    running = list(range(len(seeds)))
    observation = session.reset(running, seeds).observation
    while running:
        action = np.stack([episodes[i].expert.act(observation[OBSERVATION][k]) for k, i in enumerate(running)])
        action = action.astype(np.float32)
        for k, i in enumerate(running):
            episodes[i].observations.append({name: value[k] for name, value in observation.items()})
            episodes[i].actions.append(action[k])
        step = session.step(action, running)
        for k, i in enumerate(running):
            episodes[i].success = bool(step.success_at_end[k]) and not step.abandoned[k]
        going_on = [k for k in range(len(running)) if not step.done[k]]
        observation = {name: value[going_on] for name, value in step.observation.items()}
        running = [running[k] for k in going_on]
    return episodes


def _write(path: Path, contract: Contract, episodes: list[_Episode]) -> None:
    names = [spec.name for spec in contract.observation]
    arrays: dict[str, Any] = {
        f"obs_{name}": np.stack([o[name] for e in episodes for o in e.observations]) for name in names
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:  # savez would add .npz to another ending
        np.savez_compressed(
            file,
            contract=np.array(json.dumps(contract_to_json(contract))),
            actions=np.stack([a for e in episodes for a in e.actions]),
            lengths=np.array([len(e.actions) for e in episodes], np.int64),
            seeds=np.array([e.seed for e in episodes], np.int64),
            success=np.array([e.success for e in episodes], bool),
            **arrays,
        )
