"""The training loop: wait for a batch, update, checkpoint, publish, report. One thread runs it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from landbridge.config import to_mapping
from landbridge.errors import DeadlineExceeded, Unavailable
from landbridge.policies.checkpoint import save_checkpoint
from landbridge.policies.flow import FlowPolicy
from landbridge.policies.states import to_arrays
from learner import recovery
from learner.algorithms.registry import Algorithm
from learner.batches import behaviour_gap, make_batch
from learner.buffer import Record
from learner.config import LearnConfig
from learner.intake import Intake
from learner.journal import Journal
from learner.metrics import Metrics, Report, batch_metrics, status_line
from learner.publish import Published, Publisher
from learner.trajectories import Meta, Trajectory

_POLL = 0.2
"""Seconds between looks at stop conditions and requests while there is no batch."""
_HEAL = 2.0
"""Seconds between looks at whether a policy server was restarted."""


@dataclass
class Model:
    """What an update changes."""

    policy: FlowPolicy
    algorithm: Algorithm
    config: Any
    optimizers: Any
    generator: torch.Generator
    update: int = 0
    """Updates done."""
    imitation: Callable[[torch.Generator], torch.Tensor] | None = None
    """The policy's loss on demonstrations."""


def train_on(
    model: Model,
    trajectories: Sequence[Trajectory],
    version: int,
    config: LearnConfig,
    between: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """One update in place; its numbers. ``version`` is the one the policy is before it.

    ``between`` is called after every minibatch; what it raises leaves the model half updated.
    """
    batch = make_batch(model.policy, trajectories, config.reward, config.returns)
    gap = behaviour_gap(model.policy, batch, version)
    metrics = model.algorithm.update(
        model.policy,
        model.optimizers,
        batch,
        model.config,
        model.generator,
        updates_done=model.update,
        between=between,
        imitation=model.imitation,
    )
    model.update += 1
    if config.exploration.half_life:
        model.policy.set_noise_level(config.exploration.level(model.policy.config.noise_level, model.update))
    values = {name: float(value) for name, value in metrics.as_dict().items()}
    return values if gap is None else values | {"behaviour_gap": gap}


class _StoppedInUpdate(Exception):
    """Told to end while an update was under way: it is given up, its trajectories stay in the log."""


@dataclass
class Progress:
    """Where a run stands."""

    version: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    """Versions behind → decisions consumed."""
    seconds_before: float = 0.0
    """Spent by earlier sessions of the run."""


class Trainer:
    """Runs updates until told to stop or a stop condition holds."""

    def __init__(
        self,
        config: LearnConfig,
        model: Model,
        progress: Progress,
        intake: Intake,
        publisher: Publisher,
        metrics: Metrics,
        journal: Journal,
        decode: Callable[[bytes], Trajectory],
        *,
        stop: threading.Event | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``decode`` reads a stored trajectory; ``stop`` ends the run as :meth:`stop` does; ``tell`` gets a line an
        update, for people.
        """
        self._config, self._model, self._progress = config, model, progress
        self._intake, self._publisher, self._metrics = intake, publisher, metrics
        self._journal, self._decode, self._tell = journal, decode, tell
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._checkpoint_wanted = threading.Event()
        self._checkpoint_done = threading.Condition()
        self._checkpoints = 0
        self._over = False
        self._began = self._healed = time.monotonic()
        self._waited = 0.0

    @property
    def updates(self) -> int:
        """Done so far."""
        return self._model.update

    @property
    def staleness(self) -> list[int]:
        """Histogram of consumed decisions: index = versions behind."""
        with self._lock:
            counts = dict(self._progress.staleness)
        return [counts.get(s, 0) for s in range(max(counts, default=-1) + 1)]

    def stop(self) -> None:
        """End; an update under way is given up, and made again by a run that resumes."""
        self._stop.set()

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Publish the first version, then train until the end; a checkpoint is on disk when this returns.

        ``watch`` is called several times a second between updates; what it raises ends the run.
        """
        self._began = self._healed = time.monotonic()
        self._save()
        try:
            self._publish()
            while not (self._stop.is_set() or self._reached()):
                watch()
                self._housekeep()
                began = time.monotonic()
                records = self._intake.take(self._config.decisions_per_update, _POLL)
                self._waited += time.monotonic() - began
                for drop in self._intake.drops():
                    self._journal.dropped(drop, self._progress.version)
                if records is not None:
                    self._update(records)
            self._save()
        except _StoppedInUpdate:
            pass  # the model is between two versions; the last checkpoint stands
        finally:
            self._over = True
            self._intake.finish()
            with self._checkpoint_done:
                self._checkpoint_done.notify_all()

    def _reached(self) -> bool:
        stop, status = self._config.stop, self._intake.status()
        return (
            0 < stop.updates <= self._model.update
            or 0 < stop.env_steps <= status.env_steps
            or 0 < stop.minutes * 60 <= self._elapsed()
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _seconds(self) -> float:
        return self._progress.seconds_before + self._elapsed()

    def _housekeep(self) -> None:
        if self._checkpoint_wanted.is_set():
            self._checkpoint_wanted.clear()
            self._save()
        if time.monotonic() - self._healed > _HEAL:
            for address in self._publisher.heal():
                self._tell(
                    f"the policy server at {address} was restarted; it has version {self._progress.version} again"
                )
            self._healed = time.monotonic()

    def _update(self, records: list[Record[Meta]]) -> None:
        began, version = time.monotonic(), self._progress.version
        trajectories = [self._decode(record.data) for record in records]
        values, staleness = batch_metrics(trajectories, version)
        values |= train_on(self._model, trajectories, version, self._config, self._check_stop)
        with self._lock:
            self._progress.staleness.update(staleness)
        trained = time.monotonic()
        self._intake.consume(records)
        self._journal.trained(self._model.update, [record.sequence for record in records])
        self._progress.version += 1
        if self._model.update % self._config.checkpoint_every == 0:
            self._save()
        self._archive()
        saved = time.monotonic()
        self._publish()
        self._intake.advance(len(records))
        values |= {"train_seconds": trained - began, "checkpoint_seconds": saved - trained}
        values["publish_seconds"] = time.monotonic() - saved
        self._report(values)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _StoppedInUpdate

    def _report(self, values: dict[str, float]) -> None:
        status, elapsed = self._intake.status(), self._elapsed()
        last = self._metrics.last
        since = self._seconds() - (last.seconds if last else self._progress.seconds_before)
        values |= {
            "env_steps": float(status.env_steps),
            "steps_per_second": (status.env_steps - (last.values["env_steps"] if last else 0.0)) / max(since, 1e-9),
            "learner_idle_share": self._waited / max(since, 1e-9),
            "buffered": float(status.buffered),
            "running": float(status.running),
            "dropped": float(sum(status.dropped.values())),
        }
        self._waited = 0.0
        report = Report(self._model.update, self._progress.version, self._seconds(), values)
        self._metrics.add(report)
        minutes = self._config.stop.minutes
        self._tell(status_line(report, max(0.0, minutes - elapsed / 60) if minutes else None))

    def _publish(self) -> None:
        version = self._progress.version
        recovery.note_published(self._config.run_dir, version)
        self._publisher.publish(Published(version, self._model.update, to_arrays(self._model.policy.state_dict())))

    def _save(self) -> None:
        counters, cursor, next_ticket = self._intake.checkpoint_state()
        progress = recovery.Progress(
            version=self._progress.version,
            update=self._model.update,
            counters=counters,
            cursor=cursor,
            next_ticket=next_ticket,
            staleness=dict(self._progress.staleness),
            seconds=self._seconds(),
            config=to_mapping(self._config),
        )
        model = self._model
        recovery.save(self._config.run_dir, model.policy, model.optimizers, model.generator, progress)
        self._intake.compact()
        with self._checkpoint_done:
            self._checkpoints += 1
            self._checkpoint_done.notify_all()

    def _archive(self) -> None:
        every, update = self._config.archive_every, self._model.update
        if every and update % every == 0:
            folder = self._config.run_dir / "versions" / f"{self._progress.version:06d}"
            save_checkpoint(folder, self._model.policy, version=self._progress.version, training_step=update)

    def checkpoint(self, timeout: float) -> Path:
        """From another thread: have a checkpoint written that includes all done by now; its path.

        It is written between two updates; DEADLINE_EXCEEDED when none comes within ``timeout`` seconds.
        """
        with self._checkpoint_done:
            before = self._checkpoints
            self._checkpoint_wanted.set()
            if not self._checkpoint_done.wait_for(lambda: self._checkpoints > before or self._over, timeout):
                raise DeadlineExceeded(f"no checkpoint within {timeout:g} s: an update is under way; allow more time")
            if self._checkpoints == before:
                raise Unavailable("training has ended; its last checkpoint is in the run's folder")
        return self._config.run_dir / recovery.FOLDER
