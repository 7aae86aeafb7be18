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

from landbridge import environments
from landbridge.demo.config import DemoConfig
from landbridge.demo.progress import Progress, clock
from landbridge.errors import LandbridgeError, Unavailable
from landbridge.intervals import Rate
from landbridge.policy.client import PolicyClient
from landbridge.process import Child, ProcessGroup

START_TIMEOUT = 240.0
STAGES = 8
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
            self.stop(simulator)
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
        """Demonstrations, imitation, reinforcement learning; returns the simulator's and the policy's servers."""
        config, run = self.config, self.run
        self.progress.begin("demonstrations")
        simulator = self.simulator(group, config.episode_steps)
        demos = run / "demonstrations.npz"
        self._command(
            group,
            "demonstrations",
            ["sim", "demos", simulator.address, "--episodes", config.demonstrations, "--out", demos]
            + ["--first-seed", 2_000_000 + 10_000 * config.seed],
        )
        self.progress.done(f"{config.demonstrations} episodes of the scripted expert")

        self.progress.begin("imitation")
        checkpoint = run / "sft"
        self._command(
            group,
            "imitation",
            ["learn", "sft", "--demos", demos, "--out", checkpoint, "--sft.steps", config.imitation_steps]
            + ["--sft.seed", config.seed, "--policy.critic-inputs", "state,privileged"]
            + ["--policy.noise-level", config.noise_level],
        )
        policy = self._server(group, "policy", ["policy", "serve", "--checkpoint", checkpoint, "--port", 0, "--pin", 0])
        self.progress.done(f"policy server at {policy.address} serves version 0")

        self.progress.begin("reinforcement learning")
        self._command(
            group,
            "learner",
            ["learn", "rl", "--config", config.training, "--policy", policy.address, "--env", simulator.address]
            + ["--checkpoint", checkpoint, "--run-dir", run / "rl", "--port", 0, "--seed", config.seed]
            + ["--stop.minutes", config.minutes],
            seconds=60.0 * config.minutes,
        )
        self.progress.done(
            f"{self.current_version(policy.address)} versions hot-swapped into the running policy server"
        )
        return simulator, policy

    def simulator(self, group: ProcessGroup, episode_steps: int) -> Child:
        """A running sim server of the task."""
        config = self.config
        return self._server(
            group,
            f"simulator-{episode_steps}",
            ["sim", "serve", f"maniskill:{config.task}", "--num-envs", config.envs, "--port", 0]
            + ["--option", f"action_limit={config.action_limit}", "--option", f"max_episode_steps={episode_steps}"],
        )

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
            + ["--robot.speed", config.cell_speed, "--robot.action-limit", config.action_limit],
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
    def stop(child: Child) -> None:
        """End a server that is no longer needed."""
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
