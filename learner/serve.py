"""A learner put together: state restored or begun, servicer mounted, workers started, the loop run."""

from __future__ import annotations

import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from landbridge import rpc, telemetry
from landbridge.config import to_mapping
from landbridge.errors import FailedPrecondition, InvalidArgument, Unavailable
from landbridge.policies.checkpoint import architecture_hash, load_checkpoint
from landbridge.policies.flow import FlowPolicy, NoiseKind
from landbridge.policies.protocol import SampleMode
from landbridge.process import Child, ProcessGroup, announce_ready, watch_parent
from landbridge.tensors import dtype_name, dtype_number
from landbridge.v1 import learner_pb2 as pb
from learner import recovery
from learner.algorithms.registry import algorithm
from learner.buffer import TrajectoryLog
from learner.config import LearnConfig
from learner.intake import Counters, Intake
from learner.journal import Journal
from learner.metrics import Metrics
from learner.publish import Announcements, Publisher
from learner.service import LearnerServicer
from learner.sft import Demonstrations, Rehearsal
from learner.staleness import StalenessManager
from learner.train import Model, Progress, Trainer
from learner.trajectories import Layout, Meta, Trajectory, describe, from_message

_ANY_VERSION = 1 << 62
REHEARSED = 256
"""Chunks of demonstrations that a gradient step looks at."""
_FAREWELL = 3.0
"""Seconds workers have to hear that training is over."""


@dataclass
class Learner:
    """A learner with its parts; :func:`build` makes one, for a process or within one."""

    config: LearnConfig
    model: Model
    log: TrajectoryLog[Meta]
    intake: Intake
    publisher: Publisher
    announcements: Announcements
    metrics: Metrics
    trainer: Trainer
    server: rpc.Server

    @property
    def address(self) -> str:
        """``host:port``."""
        return self.server.address

    def close(self) -> None:
        """End everything but the trainer's loop, which must have ended."""
        self.announcements.close()
        self.metrics.close()
        self.server.stop(0.5)
        self.publisher.close()
        self.log.close()


def layout_of(policy: FlowPolicy) -> Layout:
    """What trajectories of this policy look like; the trace's shapes are seen by acting once."""
    contract = policy.contract
    names = sorted({*policy.config.actor_inputs, *policy.config.critic_inputs})
    specs = tuple(contract.spec(name) for name in names)
    obs = {spec.name: torch.zeros(1, *spec.shape) for spec in specs}
    noise = {name: torch.from_numpy(rows) for name, rows in policy.draw_noise([0]).items()}
    with torch.no_grad():
        trace = policy.act(obs, noise, SampleMode.STOCHASTIC).trace
    shapes = {n: (dtype_name(dtype_number(t.numpy().dtype)), tuple(t.shape[1:])) for n, t in trace.items()}
    return Layout(policy.horizon, contract.action, specs, shapes)


def build(config: LearnConfig, stop: threading.Event, tell: Callable[[str], None]) -> Learner:
    """Restore or begin a run and bind its address; nothing runs yet.

    FAILED_PRECONDITION where run-dir holds a run and ``resume`` is not set, or policy servers run another architecture.
    """
    run_dir = config.run_dir
    restored = recovery.load(run_dir) if config.resume else None
    if restored is None and (run_dir / recovery.FOLDER).exists():
        raise FailedPrecondition(f"{run_dir} holds a run already; --resume it, or choose another --run-dir")
    if restored is None:
        loaded = load_checkpoint(config.checkpoint or Path())
        policy, progress, counters = loaded.policy, Progress(loaded.version), Counters()
    else:
        policy, progress, counters = restored.policy, _progress(run_dir, restored.progress), restored.progress.counters
    model = model_of(policy, config, restored)
    log = TrajectoryLog[Meta](run_dir / "trajectories", describe, sync=config.sync)
    if restored:
        log.restore(restored.progress.cursor)
    hash_, instance = architecture_hash(policy.architecture()), uuid.uuid4().hex
    layout = layout_of(policy)

    def check(message: pb.Trajectory, newest_version: int) -> Trajectory:
        return from_message(message, layout, newest_version)

    def decode(data: bytes) -> Trajectory:
        return from_message(pb.Trajectory.FromString(data), layout, _ANY_VERSION)

    manager = StalenessManager(
        config.max_staleness,
        config.batch,
        config.max_concurrent,
        config.ticket_lease,
        version=progress.version,
        pending=len(log),
        first_index=_next_ticket(log, restored),
        name=f"t-{instance[:8]}",
    )
    intake = Intake(manager, log, check, max_buffered=config.buffer_limit, counters=counters)
    announcements = Announcements(config.keep_weights)
    publisher = Publisher(
        config.policy,
        hash_,
        announcements,
        run_dir / "swaps.jsonl",
        mode=config.push,
        timeout=config.publish_timeout,
        stopped=stop.is_set,
    )
    metrics = Metrics(run_dir, restored.progress.update if restored else -1)
    journal = Journal(run_dir / "consumed.jsonl", restored.progress.cursor if restored else None)
    trainer = Trainer(config, model, progress, intake, publisher, metrics, journal, decode, stop=stop, tell=tell)
    servicer = LearnerServicer(
        intake,
        trainer,
        metrics,
        announcements,
        run_seed=config.seed,
        lease=config.ticket_lease,
        architecture_hash=hash_,
        instance_id=instance,
    )
    server = rpc.Server([servicer.service()], host=config.host, port=config.port, max_workers=128)
    return Learner(config, model, log, intake, publisher, announcements, metrics, trainer, server)


def model_of(policy: FlowPolicy, config: LearnConfig, restored: recovery.Restored | None = None) -> Model:
    """``policy`` with what ``config`` trains it by; InvalidArgument where the two do not fit."""
    if config.exploration.half_life and policy.config.noise is NoiseKind.NOISE:
        raise InvalidArgument(
            "this policy learns its noise (Flow-Noise): there is none to turn down", field="exploration"
        )
    made = algorithm(config.algorithm)
    optimizers = made.make_optimizers(policy, config.algorithm_config)
    generator = torch.Generator().manual_seed(config.seed)
    if restored:
        restored.apply(optimizers, generator)
    update = restored.progress.update if restored else 0
    imitation = None
    if config.demos is not None:
        imitation = Rehearsal(policy, _fitting(Demonstrations.load(config.demos), policy, config.demos), REHEARSED)
    return Model(policy, made, config.algorithm_config, optimizers, generator, update, imitation)


def _fitting(demos: Demonstrations, policy: FlowPolicy, path: Path) -> Demonstrations:
    if demos.contract != policy.contract:
        raise InvalidArgument(f"{path}: recorded under another contract than the policy's", field="demos")
    return demos


def _progress(run_dir: Path, saved: recovery.Progress) -> Progress:
    # Versions after the checkpoint may be out: their numbers are taken, by weights that are lost.
    seen = recovery.last_published(run_dir)
    version = saved.version if saved.version >= seen else seen + 1
    return Progress(version, Counter(saved.staleness), saved.seconds)


def _next_ticket(log: TrajectoryLog[Meta], restored: recovery.Restored | None) -> int:
    indices = [record.meta.index + 1 for record in log.pending()]
    return max([restored.progress.next_ticket if restored else 0, *indices])


class Workers:
    """Rollout workers as children: one an environment server, started again when they die."""

    def __init__(self, group: ProcessGroup, config: LearnConfig, address: str, tell: Callable[[str], None]) -> None:
        self._group, self._config, self._tell = group, config, tell
        # Of a learner that listens everywhere, its children use the loopback.
        self._address = address.replace("0.0.0.0:", "127.0.0.1:")
        self._children: dict[int, Child] = {}
        self._starts = 0

    def watch(self) -> None:
        """Start what is missing; UNAVAILABLE, with its last words, when a worker died too often."""
        for index in range(len(self._config.env)):
            child = self._children.get(index)
            if child is None:
                self._start(index)
            elif child.poll() is not None:
                end = f"{child.describe_end()}{child.tail()}"
                if self._starts >= len(self._config.env) + self._config.worker_restarts:
                    raise Unavailable(f"{end}\nrollout workers died {self._config.worker_restarts + 1} times")
                self._tell(f"{end}\nstarting it again")
                self._start(index)

    def _start(self, index: int) -> None:
        config = self._config
        command: list[str | Path] = [sys.executable, "-m", "landbridge.cli", "learn", "worker"]
        command += ["--learner", self._address, "--policy", config.policy[index % len(config.policy)]]
        command += ["--env", config.env[index], "--name", f"worker-{index}-{self._starts}"]
        for key, value in to_mapping(config.worker).items():
            command += [f"--worker.{key.replace('_', '-')}", str(value)]
        self._starts += 1
        self._children[index] = self._group.start(f"worker-{index}", command)

    def farewell(self) -> None:
        """Wait a moment for them to end by themselves."""
        for child in self._children.values():
            child.wait(_FAREWELL / max(1, len(self._children)))


def serve(config: LearnConfig, tell: Callable[[str], None]) -> int:
    """Train until the end, or until SIGINT or SIGTERM; then everything, workers too, has ended."""
    watch_parent()
    telemetry.configure("learner")
    torch.set_num_threads(config.threads)
    stop = rpc.stop_event()
    learner = build(config, stop, tell)
    try:
        learner.publisher.check_servers(config.publish_timeout)
        learner.server.start()
        announce_ready(learner.address, run_dir=str(config.run_dir))
        with ProcessGroup(log_folder=config.run_dir / "logs") as group:
            workers = Workers(group, config, learner.address, tell)
            learner.trainer.run(workers.watch)
            if not stop.is_set():
                workers.farewell()
    except Unavailable:
        if not stop.is_set():
            raise
    finally:
        learner.close()
        telemetry.shutdown()
    status = learner.intake.status()
    tell(
        f"{learner.trainer.updates} updates, {status.env_steps} environment steps; "
        f"checkpoint in {config.run_dir / recovery.FOLDER / 'policy'}"
    )
    return 0
