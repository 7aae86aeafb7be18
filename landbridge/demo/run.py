"""The demo's stages, each a command a user could type, in processes of their own."""

from __future__ import annotations

import concurrent.futures
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from landbridge import environments
from landbridge.demo.config import DemoConfig
from landbridge.demo.progress import Progress, clock
from landbridge.errors import InvalidArgument, LandbridgeError, NotFound, Unavailable
from landbridge.intervals import Rate
from landbridge.policy.client import PolicyClient
from landbridge.process import Child, ProcessGroup

START_TIMEOUT = 240.0
STAGES = 8
EVALUATION_ENVS = 4
"""Simulators that evaluations run in: short work, and two cores are busy with two."""
_FRACTION = re.compile(r"(\d+)\s*/\s*(\d+)")


class Demo:
    """One run in one folder."""

    def __init__(self, config: DemoConfig) -> None:
        self.config = config
        self.run = config.run_dir
        self.progress = Progress(STAGES)
        self.results: dict[str, Any] = {}

    def play(self) -> Path:
        """All stages; returns the report's path. Leaving in any way ends every process that was started."""
        self.make_room()
        self.install()
        with ProcessGroup(log_folder=self.run / "logs") as group:
            simulator, policy = self.train(group)
            version = self.current_version(policy.address)
            for label, number in (("sft", 0), ("rl", version)):
                self.results[label] = self.evaluate(group, policy.address, simulator.address, label, number)
            self._stop(simulator)
            self._campaign(group, policy.address, version)
        return self._report()

    def make_room(self) -> None:
        """An earlier run is moved aside, never mixed with or deleted."""
        if self.run.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.run.stat().st_mtime))
            self.run.rename(self.run.with_name(f"{self.run.name}-{stamp}-{time.time_ns() % 10**6}"))
        self.run.mkdir(parents=True)

    def install(self) -> None:
        self.progress.begin("install simulators")
        names = [name for name in ("maniskill", "robosuite") if environments.state(name) != "ready"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(environments.install, name, self._quiet) for name in names]:
                future.result()
        self.progress.done(f"installed {' and '.join(names)}" if names else "already there")

    def _quiet(self, line: str) -> None:
        self.progress.tell(None, line)

    def train(self, group: ProcessGroup) -> tuple[Child, Child]:
        """Demonstrations, imitation, reinforcement learning.

        Returns a simulator as ManiSkill makes it, for evaluations, and the policy server, which holds the imitated
        version 0 and the newest.
        """
        config, demos, checkpoint = self.config, self.run / "demonstrations.npz", self.run / "sft"
        self.progress.begin("demonstrations")
        training = self._server(group, "training-simulator", self._simulator(config.envs, self._randomisation()))
        self._command(
            group,
            "demonstrations",
            ["sim", "demos", training.address, "--episodes", config.demonstrations, "--out", demos]
            + ["--first-seed", 2_000_000 + 10_000 * config.seed],
        )
        self.progress.done(f"{config.demonstrations} episodes of the scripted expert")
        plain = group.start("simulator", _command_line(self._simulator(EVALUATION_ENVS, {})))  # beside imitation
        self._imitate(group, demos, checkpoint)
        policy = self._server(group, "policy", ["policy", "serve", "--checkpoint", checkpoint, "--port", 0, "--pin", 0])
        plain.wait_serving(START_TIMEOUT)
        self._reinforce(group, policy.address, training.address, demos)
        self._stop(training)
        return plain, policy

    def _imitate(self, group: ProcessGroup, demos: Path, checkpoint: Path) -> None:
        config = self.config
        self.progress.begin("imitation")
        self._command(
            group,
            "imitation",
            ["learn", "sft", "--demos", demos, "--out", checkpoint, "--sft.steps", config.imitation_steps]
            + ["--sft.seed", config.seed, "--policy.critic-inputs", "state,privileged"]
            + ["--policy.noise-level", config.noise_level],
        )
        self.progress.done(f"{config.imitation_steps} steps")

    def _reinforce(self, group: ProcessGroup, policy: str, env: str, demos: Path) -> None:
        config = self.config
        self.progress.begin("reinforcement learning")
        self._command(
            group,
            "learner",
            ["learn", "rl", "--config", config.training, "--policy", policy, "--env", env]
            + ["--checkpoint", self.run / "sft", "--demos", demos]
            + ["--run-dir", self.run / "rl", "--port", 0, "--seed", config.seed]
            + ["--stop.minutes", config.minutes],
            seconds=60.0 * config.minutes,
        )
        self.progress.done(f"{self.current_version(policy)} versions hot-swapped into the running policy server")

    def _randomisation(self) -> dict[str, Any]:
        """Options of the simulator that training runs in."""
        path = self.config.simulator
        if not path.is_file():
            raise NotFound(f"no simulator options at {path}", field="simulator")
        options = yaml.safe_load(path.read_text())
        if not isinstance(options, dict):
            raise InvalidArgument(f"{path}: a mapping of simulator options was expected", field="simulator")
        return options

    def _simulator(self, envs: int, options: dict[str, Any]) -> list[object]:
        words: list[object] = ["sim", "serve", f"maniskill:{self.config.task}", "--num-envs", envs, "--port", 0]
        for name, value in {"action_limit": self.config.action_limit, **options}.items():
            words += ["--option", f"{name}={json.dumps(value)}"]
        return words

    def evaluate(self, group: ProcessGroup, policy: str, env: str, label: str, version: int) -> dict[str, Any]:
        self.progress.begin(f"evaluation of version {version} in simulation")
        out = self.run / f"evaluation-{label}.json"
        self._command(
            group,
            f"evaluation-{label}",
            ["learn", "eval", "--policy", policy, "--env", env, "--episodes", self.config.evaluation_episodes]
            + ["--version", version, "--out", out],
        )
        result: dict[str, Any] = json.loads(out.read_text())
        self.progress.done(str(Rate(result["successes"], result["episodes"])))
        return result

    def _campaign(self, group: ProcessGroup, policy: str, version: int) -> None:
        config = self.config
        self.progress.begin("robot cell: SFT and RL, blind and interleaved")
        robot = self._server(
            group,
            "robot",
            ["robot", "serve", "--cell", "--port", 0, "--robot.task", config.task]
            + ["--robot.speed", config.cell_speed, "--robot.action-limit", config.action_limit]
            + ["--robot.max-episode-steps", config.trial_steps],
        )
        self._command(
            group,
            "campaign",
            ["campaign", "run", "--policy", policy, "--env", robot.address, "--arm", "sft=0", "--arm", f"rl={version}"]
            + ["--trials", config.trials, "--store", self.store],
        )
        self.progress.done(f"{2 * config.trials} trials")

    @property
    def store(self) -> Path:
        """The campaign's event log."""
        return self.run / "campaign.sqlite"

    def _report(self) -> Path:
        self.progress.begin("report")
        path = self.run / "report.html"
        evaluations = [self.run / f"evaluation-{label}.json" for label in ("sft", "rl")]
        words = ["campaign", "report", "--store", self.store, "--learning", self.run / "rl", "--out", path]
        words += [word for file in evaluations for word in ("--evaluation", file)]
        with ProcessGroup(log_folder=self.run / "logs") as group:
            lines: list[str] = []
            self._command(group, "report", words, lines.append)
        self.progress.done(str(path))
        print("\n".join(lines))
        print(f"\n{clock(self.progress.elapsed())} in all. Report: {path.resolve()}", flush=True)
        return path

    @staticmethod
    def current_version(policy: str) -> int:
        with PolicyClient(policy) as client:
            return client.info().current_version

    def _server(self, group: ProcessGroup, name: str, words: Sequence[object]) -> Child:
        child = group.start(name, _command_line(words))
        child.wait_serving(START_TIMEOUT)
        return child

    @staticmethod
    def _stop(child: Child) -> None:
        child.terminate()
        child.wait(4.0)
        child.kill()

    def _command(
        self,
        group: ProcessGroup,
        name: str,
        words: Sequence[object],
        on_line: Callable[[str], None] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Run a command to its end and show what it says; its failure ends the demo with its last lines."""
        begun = time.monotonic()

        def show(line: str) -> None:
            found = _FRACTION.search(line)
            share = (time.monotonic() - begun) / seconds if seconds else None
            if share is None and found and int(found[2]):
                share = int(found[1]) / int(found[2])
            self.progress.tell(share, "" if line.startswith("{") else line.strip())

        child = group.start(name, _command_line(words), on_line=on_line or show)
        while child.wait(0.2) is None:
            with _named(name):
                _check_servers(group, child)
        if child.poll() != 0:
            raise Unavailable(f"{child.describe_end()}{child.tail()}")


def _check_servers(group: ProcessGroup, command: Child) -> None:
    """Every server must live while a command uses it."""
    for child in group.ended():
        if child is not command and child.ready_line is not None and child.poll() != 0 and child.name != "learner":
            raise Unavailable(f"{child.describe_end()}{child.tail()}")


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except LandbridgeError as error:
        raise Unavailable(f"during {name}: {error}") from error


def _command_line(words: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "landbridge.cli", *(str(word) for word in words)]
