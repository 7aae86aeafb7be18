"""Success of a served policy on fixed seeds, with an interval."""

from __future__ import annotations

import collections
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from landbridge.config import option
from landbridge.env.client import EnvClient, Evaluation
from landbridge.errors import InvalidArgument, Unavailable
from landbridge.intervals import Rate
from landbridge.policy.client import PolicyClient
from learner.rollout import Assignment, Episode, Group, GroupOptions, run_groups
from learner.seeds import TRAINING_SEEDS
from learner.worker import WorkerConfig, check_fit, group_sizes

_TRIES = 3


@dataclass(frozen=True)
class EvalConfig:
    """Options of ``landbridge learn eval``."""

    policy: str = option(help="HOST:PORT of a policy server")
    env: str = option(help="HOST:PORT of an environment server")
    episodes: int = option(200, "episodes, one a seed", minimum=1)
    seed0: int = option(1_000_000, "environment seed of the first; the others follow", minimum=0)
    version: int | None = option(None, "weights to evaluate; none: whatever is current")
    stochastic: bool = option(False, "explore as in training; default: the deterministic policy")
    envs: int = option(0, "environments to use; 0: all that are free", minimum=0)
    groups: int = option(2, "groups they are split into", minimum=1)
    evaluation: str = option(
        "chunk_end", "steps on which success is looked at, as in training", choices=("chunk_end", "every_step")
    )
    timeout: float = option(60.0, "seconds a chunk or an inference may take", minimum=0.1)
    out: Path | None = option(None, "write the result here as JSON, one entry an episode included")

    def __post_init__(self) -> None:
        if self.seed0 + self.episodes > TRAINING_SEEDS:
            raise ValueError(f"seeds from {TRAINING_SEEDS} on are training's: choose smaller ones")


class _Seeds:
    """Work: one episode a seed; a lost one is run again, a few times."""

    def __init__(self, seeds: range, progress: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._todo = collections.deque((seed, 1) for seed in seeds)
        self._tries: dict[int, int] = {}
        self._open = len(seeds)
        self._progress = progress
        self.results: dict[int, dict[str, Any]] = {}

    def next(self, count: int, idle: bool) -> list[Assignment]:
        """See :class:`learner.rollout.Work`."""
        with self._lock:
            taken = [self._todo.popleft() for _ in range(min(count, len(self._todo)))]
            self._tries.update(taken)
        return [Assignment(str(seed), seed, seed) for seed, _ in taken]

    def over(self) -> bool:
        """See :class:`learner.rollout.Work`."""
        with self._lock:
            return not self._todo

    def done(self, episode: Episode) -> None:
        """See :class:`learner.rollout.Work`."""
        if episode.end.name == "ABANDONED":
            self.lost(episode.assignment, "abandoned")
            return
        once, at_end = episode.success
        rows = [(answer, step, row) for answer, step, row in episode.decisions]
        with self._lock:
            self.results[episode.assignment.env_seed] = {
                "seed": episode.assignment.env_seed,
                "success_once": once,
                "success_at_end": at_end,
                "return": float(sum(np.where(s.evaluated[r], s.rewards[r], 0.0).sum() for _, s, r in rows)),
                "steps": int(sum(s.executed[r] for _, s, r in rows)),
                "end": episode.end.name.lower(),
                "versions": sorted({a.version for a, _, _ in rows}),
            }
            count = len(self.results)
        self._progress(count)

    def lost(self, assignment: Assignment, reason: str) -> None:
        """See :class:`learner.rollout.Work`."""
        with self._lock:
            seed, tries = assignment.env_seed, self._tries[assignment.env_seed]
            if tries < _TRIES and reason != "stopped":
                self._todo.append((seed, tries + 1))


def evaluate(config: EvalConfig, progress: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Run all episodes; the result as ``landbridge learn eval`` prints it, and ``per_episode`` on top."""
    stopped = threading.Event()
    seeds = range(config.seed0, config.seed0 + config.episodes)
    work = _Seeds(seeds, progress)
    with PolicyClient(config.policy) as policy, EnvClient(config.env, config.timeout) as env:
        info = policy.info(wait=True)
        check_fit(info, env)
        if config.version is not None and config.version not in info.held_versions:
            held = list(info.held_versions)
            raise InvalidArgument(f"version {config.version} is not held; there are {held}", field="version")
        count = min(config.envs or config.episodes, config.episodes)
        sizes = group_sizes(WorkerConfig(envs=count, groups=config.groups), env.info().free_envs, info.max_rows)
        options = [
            GroupOptions(
                num_envs=size,
                reads=info.reads,
                deterministic=not config.stochastic,
                version=config.version,
                evaluation=cast("Evaluation", config.evaluation),
                timeout=config.timeout,
                name="eval",
            )
            for size in sizes
        ]
        run_groups([Group(env, policy, work, own, stopped.is_set) for own in options], stopped.set)
    episodes = [work.results[seed] for seed in seeds if seed in work.results]
    if len(episodes) < config.episodes:
        raise Unavailable(f"{config.episodes - len(episodes)} of {config.episodes} episodes were lost {_TRIES} times")
    result = _summary(config, episodes)
    if config.out is not None:
        config.out.parent.mkdir(parents=True, exist_ok=True)
        config.out.write_text(json.dumps(result, indent=1))
    return result


def _summary(config: EvalConfig, episodes: list[dict[str, Any]]) -> dict[str, Any]:
    rate = Rate(sum(e["success_once"] for e in episodes), len(episodes))
    low, high = rate.interval()
    return {
        "success": rate.value,
        "low": low,
        "high": high,
        "successes": rate.successes,
        "episodes": rate.trials,
        "success_at_end": sum(e["success_at_end"] for e in episodes) / len(episodes),
        "mean_return": float(np.mean([e["return"] for e in episodes])),
        "mean_steps": float(np.mean([e["steps"] for e in episodes])),
        "versions": sorted({v for e in episodes for v in e["versions"]}),
        "seed0": config.seed0,
        "deterministic": not config.stochastic,
        "per_episode": episodes,
    }
