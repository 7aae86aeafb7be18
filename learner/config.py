"""Settings of training: ``landbridge learn rl`` takes each as a flag or from a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landbridge.config import option
from landbridge.policies.flow import FlowPolicyConfig
from learner.algorithms.ppo import PPOConfig
from learner.algorithms.registry import ALGORITHMS
from learner.batches import ReturnConfig, RewardConfig
from learner.sft import SFTConfig
from learner.worker import WorkerConfig


@dataclass(frozen=True)
class StopConfig:
    """When training is over: at the first of these that is reached; 0 means never for that reason."""

    updates: int = option(0, "optimizer updates", minimum=0)
    env_steps: int = option(0, "environment steps", minimum=0)
    minutes: float = option(0.0, "of this process's time in training", minimum=0.0)


@dataclass(frozen=True)
class ExplorationConfig:
    """How the noise of Flow-SDE changes: a(u) = final + (a(0) − final) · 2^(−u / half_life) after u updates."""

    half_life: float = option(
        0.0, "updates in which the noise level comes half the way to final; 0: it stays", minimum=0.0
    )
    final: float = option(0.2, "noise level it tends to", minimum=0.01)

    def level(self, first: float, updates: int) -> float:
        """a after ``updates`` updates of a run that began with a = ``first``."""
        return self.final + (first - self.final) * 0.5 ** (updates / self.half_life) if self.half_life else first


@dataclass(frozen=True)
class LearnConfig:
    """Options of ``landbridge learn rl``."""

    policy: tuple[str, ...] = option(help="HOST:PORT of the policy servers; each gets every version")
    env: tuple[str, ...] = option(
        (), "HOST:PORT of environment servers to run a rollout worker for; none: start `landbridge learn worker` apart"
    )
    checkpoint: Path | None = option(None, "where to start from: the folder that `landbridge learn sft` wrote")
    demos: Path | None = option(None, "demonstrations to keep close to, as far as ppo.imitation_weight says")
    run_dir: Path = option(Path("runs/rl"), "where metrics, checkpoints and the trajectory log go")
    resume: bool = option(False, "go on from run-dir's last checkpoint; --checkpoint is then not read")
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50053, "port, 0 for any free one", minimum=0, maximum=65535)
    seed: int = option(0, "of episodes, action noise and minibatches", minimum=0)
    algorithm: str = option("ppo", "how to update", choices=tuple(sorted(ALGORITHMS)))
    batch: int = option(256, "B, trajectories an update", minimum=1)
    decisions_per_update: int = option(
        0, "an update takes fewer than B trajectories when they make so many decisions; 0: always B", minimum=0
    )
    max_staleness: int = option(1, "η, versions a sample may be behind; 0 is synchronous training", minimum=0)
    max_concurrent: int = option(1024, "trajectories under way at once", minimum=1)
    max_buffered: int = option(0, "trajectories stored and not trained on; 0: as many as η allows", minimum=0)
    ticket_lease: float = option(300.0, "seconds an episode may take before its ticket comes back", minimum=0.1)
    sync: bool = option(False, "trajectories survive a power cut, not only a crash (fsync before acknowledging)")
    push: str = option("changed", "what is pushed to policy servers", choices=("full", "changed"))
    publish_timeout: float = option(120.0, "seconds a policy server may be gone before training stops", minimum=0.1)
    keep_weights: int = option(4, "newest versions GetWeights can hand out", minimum=1)
    checkpoint_every: int = option(1, "updates between checkpoints", minimum=1)
    archive_every: int = option(0, "updates between policies kept for later (run-dir/versions); 0: none", minimum=0)
    threads: int = option(1, "torch's threads", minimum=1)
    worker_restarts: int = option(10, "times a worker that died is started again, all workers together", minimum=0)
    stop: StopConfig = option(StopConfig())
    exploration: ExplorationConfig = option(ExplorationConfig())
    reward: RewardConfig = option(RewardConfig())
    returns: ReturnConfig = option(ReturnConfig())
    worker: WorkerConfig = option(WorkerConfig())
    ppo: PPOConfig = option(PPOConfig())

    def __post_init__(self) -> None:
        if not self.policy:
            raise ValueError("policy: name at least one policy server")
        if self.checkpoint is None and not self.resume:
            raise ValueError("checkpoint: say where to start from, or --resume a run")
        if (self.demos is not None) != (self.ppo.imitation_weight > 0):
            raise ValueError("demos and ppo.imitation_weight go together: give both or neither")
        if 0 < self.max_buffered < self.batch:
            raise ValueError(f"max_buffered {self.max_buffered}: a batch of {self.batch} would never fill")

    @property
    def algorithm_config(self) -> Any:
        """The settings of the algorithm chosen."""
        return getattr(self, self.algorithm)

    @property
    def buffer_limit(self) -> int:
        """Trajectories in the log at most: those in training, and what admission lets in meanwhile."""
        return self.max_buffered or (self.max_staleness + 2) * self.batch


@dataclass(frozen=True)
class ImitateConfig:
    """Options of ``landbridge learn sft``."""

    demos: Path = option(help="file that `landbridge sim demos` wrote")
    out: Path = option(help="folder for the checkpoint")
    episodes: int = option(0, "use the first so many demonstrations; 0: all", minimum=0)
    action_scale: tuple[float, ...] = option(
        (), "half the range of each action that normalises it; none: the contract's bounds"
    )
    policy: FlowPolicyConfig = option(FlowPolicyConfig())
    sft: SFTConfig = option(SFTConfig())
