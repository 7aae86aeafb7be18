"""Runs episodes: a group of environments, a policy, and somebody who says which episodes and takes them.

One request to the policy and one to the simulator serve the whole group; environments whose episode has ended start
the next one at once, beside those in mid-episode. Two groups in two threads keep simulator and policy both busy. All
random numbers come from the episode's seed (:mod:`learner.seeds`), so an episode does not depend on its company.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from landbridge.env.client import EnvClient, EnvSession, Evaluation, StepResult
from landbridge.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    LandbridgeError,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from landbridge.policy.client import InferResult, PolicyClient
from landbridge.tensors import Array
from learner.advantages import End
from learner.seeds import noise_seed

log = logging.getLogger(__name__)

_GONE = (Unavailable, DeadlineExceeded, ResourceExhausted, Internal)
_PAUSE = 0.2
SESSION_LEASE = 10.0
"""Seconds after which a sim server frees the environments of a worker that died."""


@dataclass(frozen=True)
class Assignment:
    """One episode to run: ``key`` names it, ``seed`` determines its noise, ``env_seed`` its environment."""

    key: str
    seed: int
    env_seed: int


@dataclass
class Episode:
    """An episode under way or over: T decisions, each an answer and a step, at row ``row`` of both."""

    assignment: Assignment
    id: str
    first: dict[str, Array]
    decisions: list[tuple[InferResult, StepResult, int]] = field(default_factory=list)
    end: End = End.CUT

    def observation(self) -> dict[str, Array]:
        """The newest one."""
        if not self.decisions:
            return self.first
        _, step, row = self.decisions[-1]
        return {name: array[row] for name, array in step.observation.items()}

    def observations(self) -> dict[str, Array]:
        """{name: [T + 1, …]}."""
        return {
            name: np.stack([first, *(step.observation[name][row] for _, step, row in self.decisions)])
            for name, first in self.first.items()
        }

    @property
    def success(self) -> tuple[bool, bool]:
        """(once, at end)."""
        if not self.decisions:
            return False, False
        _, step, row = self.decisions[-1]
        return bool(step.success_once[row]), bool(step.success_at_end[row])


class Work(Protocol):
    """Where episodes come from and go to. Called from several threads."""

    def next(self, count: int, idle: bool) -> list[Assignment]:
        """Up to ``count`` episodes to start. With ``idle`` the caller has nothing else to do and may be kept waiting
        a little.
        """
        ...

    def over(self) -> bool:
        """Whether there will be no more."""
        ...

    def done(self, episode: Episode) -> None:
        """An episode has ended."""
        ...

    def lost(self, assignment: Assignment, reason: str) -> None:
        """An episode cannot be finished."""
        ...


@dataclass(frozen=True)
class GroupOptions:
    """How a group runs."""

    num_envs: int
    reads: tuple[str, ...]
    """Observation tensors the policy needs."""
    deterministic: bool = False
    version: int | None = None
    """Pinned; None for whatever is current."""
    evaluation: Evaluation = "chunk_end"
    timeout: float = 60.0
    patience: float = 300.0
    """Seconds a server may be gone before its episodes are given up."""
    name: str = "rollout"


class Group:
    """``num_envs`` environments in a session of their own. :meth:`run` is for one thread."""

    def __init__(
        self,
        env: EnvClient,
        policy: PolicyClient,
        work: Work,
        options: GroupOptions,
        stopped: Callable[[], bool],
    ) -> None:
        self._env, self._policy, self._work, self._options, self._stopped = env, policy, work, options, stopped
        self._session: EnvSession | None = None
        self._stream = policy.stream()
        self._running: dict[int, Episode] = {}
        self._last_progress = time.monotonic()

    def run(self) -> None:
        """Until there is no more work or ``stopped``. UNAVAILABLE where a server stayed away longer than patience."""
        try:
            while not self._stopped():
                if self._work.over() and not self._running:
                    return
                if self._fill() and self._running:
                    self._decide()
        finally:
            self._lose("stopped")
            self._stream.close()
            if self._session is not None:
                self._session.close()

    def _fill(self) -> bool:
        """Start episodes in idle environments; False where that failed and everything was lost."""
        session = self._opened()
        idle = [i for i in range(session.num_envs) if i not in self._running]
        if not idle or self._work.over():
            return True
        assignments = self._work.next(len(idle), not self._running)
        if not assignments:
            return True
        chosen = idle[: len(assignments)]
        try:
            begun = session.reset(chosen, [a.env_seed for a in assignments], timeout=self._options.timeout)
        except LandbridgeError as error:
            for assignment in assignments:
                self._work.lost(assignment, "simulator_gone")
            self._abandon_session(error)
            return False
        for row, (env_id, assignment) in enumerate(zip(chosen, assignments, strict=True)):
            first = {name: array[row] for name, array in begun.observation.items()}
            self._running[env_id] = Episode(assignment, begun.episode_ids[row], first)
        return True

    def _decide(self) -> None:
        """One decision in every running environment."""
        env_ids = sorted(self._running)
        episodes = [self._running[i] for i in env_ids]
        answer = self._infer(episodes)
        if answer is None:
            self._lose("policy_gone")
            return
        try:
            step = self._opened().step_chunk(
                answer.actions, env_ids, self._options.evaluation, timeout=self._options.timeout
            )
        except LandbridgeError as error:
            self._abandon_session(error)
            return
        self._last_progress = time.monotonic()
        for row, (env_id, episode) in enumerate(zip(env_ids, episodes, strict=True)):
            episode.decisions.append((answer, step, row))
            if end := _end(step, row):
                episode.end = end
                del self._running[env_id]
                self._work.done(episode)

    def _infer(self, episodes: list[Episode]) -> InferResult | None:
        """Actions for all; None where the policy stayed away too long, or we are to stop."""
        latest = [episode.observation() for episode in episodes]
        observation = {name: np.stack([obs[name] for obs in latest]) for name in self._options.reads}
        seeds = [noise_seed(e.assignment.seed, len(e.decisions)) for e in episodes]
        deadline = time.monotonic() + self._options.patience
        while not self._stopped():
            try:
                return self._stream.infer(
                    observation,
                    timeout=self._options.timeout,
                    deterministic=self._options.deterministic,
                    seeds=seeds,
                    version=self._options.version,
                    want_trace=not self._options.deterministic,
                )
            except _GONE as error:
                if time.monotonic() > deadline:
                    log.warning("the policy server at %s stayed away: %s", self._policy.address, error)
                    return None
                time.sleep(error.retry_after or _PAUSE)
                self._stream.reopen()
        return None

    def _opened(self) -> EnvSession:
        """The session; a new one, for as long as patience lasts, where it was lost."""
        deadline = time.monotonic() + self._options.patience
        while self._session is None:
            try:
                self._session = self._env.open(
                    self._options.num_envs, name=self._options.name, lease=SESSION_LEASE, stream=True
                )
            except _GONE as error:
                if self._stopped() or time.monotonic() > deadline:
                    raise Unavailable(f"no environments at {self._env.address}: {error}") from error
                time.sleep(error.retry_after or _PAUSE)
        return self._session

    def _abandon_session(self, error: LandbridgeError) -> None:
        """A new session next time; raises what no new session will mend."""
        hopeless = isinstance(error, InvalidArgument | Unimplemented)
        if hopeless or time.monotonic() - self._last_progress > self._options.patience:
            raise error
        log.warning("the environments at %s are lost: %s", self._env.address, error)
        self._lose("simulator_gone")
        if self._session is not None:
            self._session.close()
            self._session = None
            time.sleep(_PAUSE)

    def _lose(self, reason: str) -> None:
        for episode in self._running.values():
            self._work.lost(episode.assignment, reason)
        self._running.clear()


def _end(step: StepResult, row: int) -> End | None:
    if step.abandoned[row]:
        return End.ABANDONED
    if step.terminated[row]:
        return End.TERMINATED
    return End.TRUNCATED if step.truncated[row] else None


def run_groups(groups: list[Group], stop: Callable[[], None]) -> None:
    """Run each in a thread of its own until all are through. The first failure stops the others and is raised."""
    failures: list[BaseException] = []

    def run(group: Group) -> None:
        try:
            group.run()
        except BaseException as error:
            failures.append(error)
            stop()

    threads = [threading.Thread(target=run, args=(group,), name=f"group-{i}") for i, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
