"""A rollout worker: a client of learner, policy server and simulator. Its own process; torch is not needed."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from landbridge import compatibility
from landbridge.config import option
from landbridge.contract import TensorSpec
from landbridge.env.client import EnvClient, Evaluation
from landbridge.errors import FailedPrecondition, LandbridgeError, ResourceExhausted, Unavailable
from landbridge.learning.client import LearnerClient
from landbridge.policy.client import PolicyClient, PolicyDescription
from learner.advantages import End
from learner.rollout import Assignment, Episode, Group, GroupOptions, run_groups
from learner.seeds import env_seed
from learner.submit import Submitter
from learner.trajectories import Trajectory, to_message

log = logging.getLogger(__name__)

_IDLE_WAIT = 1.0
"""Seconds one request for tickets may wait when there is nothing else to do."""
_BUSY_PAUSE = 0.05
"""Seconds before a busy group asks again after it was given none."""
_CLOSE_SECONDS = 1.5


@dataclass(frozen=True)
class WorkerConfig:
    """Settings of rollout workers."""

    envs: int = option(0, "environments a worker takes; 0: all that are free", minimum=0)
    groups: int = option(2, "groups they are split into: one simulates while the other infers", minimum=1)
    evaluation: str = option(
        "chunk_end",
        "steps on which reward, success and termination are computed: cheaper at chunk ends only",
        choices=("chunk_end", "every_step"),
    )
    timeout: float = option(60.0, "seconds a chunk or an inference may take", minimum=0.1)
    patience: float = option(
        300.0, "seconds a server may be gone (restarting) before its episodes, or the worker, give up", minimum=0.0
    )
    max_unacknowledged: int = option(256, "trajectories sent and not acknowledged before rollouts wait", minimum=1)


@dataclass(frozen=True)
class WorkerArguments:
    """Options of ``landbridge learn worker``."""

    learner: str = option(help="HOST:PORT of the learner")
    policy: str = option(help="HOST:PORT of a policy server")
    env: str = option(help="HOST:PORT of an environment server")
    name: str = option("", "who this is, in the learner's records; default: a random one")
    worker: WorkerConfig = option(WorkerConfig())


class TicketWork:
    """Episodes by the learner's tickets; finished ones go to the learner."""

    def __init__(self, client: LearnerClient, submitter: Submitter, name: str, patience: float) -> None:
        self._client, self._submitter, self._name, self._patience = client, submitter, name, patience
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._finished = False
        self._ask_again = 0.0
        self._heard = time.monotonic()

    def next(self, count: int, idle: bool) -> list[Assignment]:
        """See :class:`learner.rollout.Work`."""
        if not idle and time.monotonic() < self._ask_again:
            return []
        try:
            answer = self._client.acquire(self._name, count, _IDLE_WAIT if idle else 0.0)
        except LandbridgeError as error:
            if time.monotonic() - self._heard > self._patience:
                raise Unavailable(f"the learner at {self._client.address} stayed away: {error}") from error
            self._ask_again = time.monotonic() + _IDLE_WAIT
            if idle:
                time.sleep(_IDLE_WAIT)
            return []
        self._heard = time.monotonic()
        self._finished = self._finished or answer.finished
        if not answer.tickets:
            self._ask_again = time.monotonic() + _BUSY_PAUSE
        return [Assignment(ticket.id, ticket.seed, env_seed(ticket.seed)) for ticket in answer.tickets]

    def over(self) -> bool:
        """See :class:`learner.rollout.Work`."""
        return self._finished

    def done(self, episode: Episode) -> None:
        """See :class:`learner.rollout.Work`."""
        if episode.end is End.ABANDONED and len(episode.decisions) == 1:
            self.lost(episode.assignment, "abandoned")  # its only decision has no target
            return
        with self._lock:
            number = next(self._numbers)
        self._submitter.put(to_message(as_trajectory(episode, f"{self._name}-{number}", self._name)))

    def lost(self, assignment: Assignment, reason: str) -> None:
        """See :class:`learner.rollout.Work`."""
        try:
            self._client.release(assignment.key, reason)
        except LandbridgeError as error:
            log.info("ticket %s will come back when its lease ends: %s", assignment.key, error)


def as_trajectory(episode: Episode, identity: str, worker: str) -> Trajectory:
    """The arrays of a finished episode; shapes as in ``learner.proto``."""
    decisions = episode.decisions
    once, at_end = episode.success
    return Trajectory(
        id=identity,
        ticket=episode.assignment.key,
        worker_id=worker,
        observation=episode.observations(),
        trace={name: np.stack([a.trace[name][row] for a, _, row in decisions]) for name in decisions[0][0].trace},
        log_prob=np.stack([_log_prob(a.log_prob)[row] for a, _, row in decisions]),
        actions=np.stack([a.actions[row] for a, _, row in decisions]),
        rewards=np.stack([s.rewards[row] for _, s, row in decisions]),
        evaluated=np.stack([s.evaluated[row] for _, s, row in decisions]),
        executed=np.array([s.executed[row] for _, s, row in decisions], np.int64),
        versions=np.array([a.version for a, _, _ in decisions], np.int64),
        end=episode.end,
        success_once=once,
        success_at_end=at_end,
        seed=episode.assignment.seed,
        episode_id=episode.id,
    )


def _log_prob(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise FailedPrecondition("the policy server sent no log-probabilities: its policy does not explore")
    return array


def check_fit(policy: PolicyDescription, env: EnvClient) -> None:
    """FAILED_PRECONDITION, saying what differs, unless the policy may drive these environments."""
    info = env.info(wait=True)
    kind: compatibility.Kind = "robot" if info.kind == "robot" else "simulator"
    compatibility.check(policy.contract, info.contract, kind, policy.reads).raise_if_failed()
    for name in policy.reads:
        wanted, offered = policy.contract.spec(name), info.contract.spec(name)
        if _layout(wanted) != _layout(offered):
            raise FailedPrecondition(
                f"observation {name!r} at {env.address} is laid out otherwise than the policy's: training converts "
                f"nothing; the policy has {_layout(wanted)}, the environments {_layout(offered)}"
            )


def _layout(spec: TensorSpec) -> tuple[str, tuple[int, ...], list[tuple[str, int, int]]]:
    return spec.dtype, spec.shape, [(s.name, s.start, s.size) for s in spec.segments]


def group_sizes(config: WorkerConfig, free: int, max_rows: int) -> list[int]:
    """Environments of each group. RESOURCE_EXHAUSTED where none is free."""
    count = min(config.envs or free, free)
    if count < 1:
        raise ResourceExhausted(f"no environment is free, {config.envs or 1} wanted; end another client")
    groups = max(min(config.groups, count), -(-count // max_rows))
    return [count // groups + (i < count % groups) for i in range(groups)]


def run_worker(arguments: WorkerArguments, stopped: threading.Event) -> None:
    """Roll out until training is over or ``stopped``. Errors: a server that stays away, or does not fit."""
    config = arguments.worker
    name = arguments.name or f"worker-{uuid.uuid4().hex[:8]}"
    # Ids are unique for ever, also when a worker of the same name comes again.
    unique = f"{name}-{uuid.uuid4().hex[:12]}"
    with (
        LearnerClient(arguments.learner) as learner,
        PolicyClient(arguments.policy) as policy,
        EnvClient(arguments.env, config.timeout) as env,
    ):
        info = policy.info(wait=True)
        check_fit(info, env)
        submitter = Submitter(learner, max_unacknowledged=config.max_unacknowledged, patience=config.patience)
        work = TicketWork(learner, submitter, unique, config.patience)
        groups = [
            Group(env, policy, work, _options(config, size, info, name), stopped.is_set)
            for size in group_sizes(config, _free(env, stopped, config.patience), info.max_rows)
        ]
        try:
            run_groups(groups, stopped.set)
        finally:
            if left := submitter.close(_CLOSE_SECONDS):
                log.warning("%d trajectories were not acknowledged and are given up", left)


def _options(config: WorkerConfig, size: int, info: PolicyDescription, name: str) -> GroupOptions:
    return GroupOptions(
        num_envs=size,
        reads=info.reads,
        evaluation=cast("Evaluation", config.evaluation),
        timeout=config.timeout,
        patience=config.patience,
        name=name,
    )


def _free(env: EnvClient, stopped: threading.Event, patience: float) -> int:
    """Free environments, waiting for the lease of a worker that died to end."""
    deadline = time.monotonic() + patience
    while (free := env.info().free_envs) == 0 and time.monotonic() < deadline and not stopped.wait(0.5):
        pass
    return free


def run_until_stopped(arguments: WorkerArguments, stopped: threading.Event, tell: Callable[[str], None]) -> int:
    """:func:`run_worker` for a process; 0 when training was over or it was told to stop."""
    try:
        run_worker(arguments, stopped)
    except LandbridgeError as error:
        tell(f"rollout worker: {error}")
        return 1
    return 0
