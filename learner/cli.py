"""``landbridge learn``: imitation, reinforcement learning, rollout workers, evaluation."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from landbridge import config, rpc


class _LazyParser(argparse.ArgumentParser):
    """Learns its arguments when it is used: most commands here need torch, a rollout worker does without."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)


def register(subparsers: Any) -> None:
    """Add ``learn sft``, ``rl``, ``worker`` and ``eval``."""
    parser = subparsers.add_parser("learn", help="train a policy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_LazyParser)
    _add(commands, "sft", "imitate demonstrations: a policy to start from")
    _add(commands, "rl", "train against environment servers, pushing every version to policy servers")
    _add(commands, "worker", "roll out for a learner that runs elsewhere")
    _add(commands, "eval", "success of a served policy on fixed seeds, with its 95 % interval, as JSON")


def _add(commands: Any, name: str, text: str) -> None:
    def fill(parser: argparse.ArgumentParser) -> None:
        settings, run = _COMMANDS[name]()
        config.add_arguments(parser, settings)

        def start(args: argparse.Namespace) -> int:
            logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
            return int(run(config.from_args(settings, args)))

        parser.set_defaults(run=start)

    commands.add_parser(name, help=text, description=text).fill = fill


def _say(line: str) -> None:
    print(line, flush=True)


def _sft() -> Any:
    from learner.config import ImitateConfig

    def run(settings: ImitateConfig) -> int:
        import torch

        from landbridge.policies.checkpoint import save_checkpoint
        from learner.sft import Demonstrations, new_policy, train_sft

        torch.set_num_threads(1)
        demos = Demonstrations.load(settings.demos)
        if settings.episodes:
            demos = demos.first(settings.episodes)
        policy = new_policy(demos, settings.policy, settings.sft.seed, settings.action_scale)

        def progress(step: int, loss: float) -> None:
            if step % 500 == 0 or step == settings.sft.steps:
                _say(f"step {step}/{settings.sft.steps}  loss {loss:.4f}")

        losses = train_sft(policy, demos, settings.sft, progress)
        extra = {"demonstrations": len(demos.lengths), **losses}
        save_checkpoint(settings.out, policy, version=0, training_step=0, extra=extra)
        _say(f"{len(demos.lengths)} demonstrations, {len(demos.actions)} steps; checkpoint in {settings.out}")
        return 0

    return ImitateConfig, run


def _rl() -> Any:
    from learner.config import LearnConfig

    def run(settings: LearnConfig) -> int:
        from learner.serve import serve

        return serve(settings, _say)

    return LearnConfig, run


def _worker() -> Any:
    from learner.worker import WorkerArguments, run_until_stopped

    def run(settings: WorkerArguments) -> int:
        return run_until_stopped(settings, rpc.stop_event(), _say)

    return WorkerArguments, run


def _eval() -> Any:
    from learner.evaluate import EvalConfig, evaluate

    def run(settings: EvalConfig) -> int:
        def progress(done: int) -> None:
            if done % 50 == 0:
                print(f"{done}/{settings.episodes} episodes", file=sys.stderr, flush=True)

        result = evaluate(settings, progress)
        _say(json.dumps({key: value for key, value in result.items() if key != "per_episode"}))
        return 0

    return EvalConfig, run


_COMMANDS = {"sft": _sft, "rl": _rl, "worker": _worker, "eval": _eval}
