"""The ``landbridge`` command: finds the group named, imports that one only, runs it, reports errors in one line.

A group is an entry point of ``landbridge.commands``: ``NAME = "package.cli:register"``. ``register(subparsers)`` calls
``subparsers.add_parser(NAME, ...)`` and, on every command's parser, ``set_defaults(run=function)``;
``function(args)`` returns an exit status (None is 0).

Exit status: 0 done, 1 failed, 2 asked wrongly (usage, configuration), 130 interrupted by SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import grpc

from landbridge import telemetry
from landbridge.errors import InvalidArgument, LandbridgeError, from_rpc_error

GROUP = "landbridge.commands"
INTERRUPTED = 130

_BUILT_IN = {
    "check": "landbridge.cli.check",
    "up": "landbridge.cli.up",
    "env": "landbridge.cli.env",
    "demo": "landbridge.cli.demo",
}

_SUMMARIES = {
    "demo": "the whole way: demonstrations, training, a robot cell, a report",
    "env": "build the isolated Python environments simulators need",
    "up": "start a whole suite from one file; Ctrl-C ends it",
    "check": "test an endpoint, or whether a policy fits an environment",
    "policy": "serve a policy and its weights",
    "sim": "serve simulator environments",
    "learn": "train a policy by reinforcement learning or from demonstrations",
    "robot": "serve a robot behind its safety layer",
    "campaign": "plan, run and report evaluations with success rates one can trust",
}
_EXTRAS = {"policy": "policy", "sim": "sim", "learn": "learner", "robot": "robot", "campaign": "robot"}

_OVERVIEW = """\
landbridge: gRPC services that carry robot policies from simulation to real robots.

A policy server answers observations with action chunks; simulators and robots stand behind one environment
service; a learner trains and sends new weights to the running policy server. Nothing is exported in between.

usage: landbridge GROUP ...          landbridge GROUP --help for what a group can do

{groups}

first steps:
  landbridge env install maniskill                     build the simulator's environment (once, about a minute)
  landbridge up suite.yaml                             start policy server, simulators and learner together
  landbridge check env 127.0.0.1:50052                 does an environment endpoint keep the protocol?
  landbridge check contract 127.0.0.1:50051 127.0.0.1:50052
                                                       may this policy drive that environment?

LANDBRIDGE_DEBUG=1 shows tracebacks. LANDBRIDGE_HOME says where environments are built.
"""


@dataclass(frozen=True)
class Group:
    """A group of commands, not imported yet."""

    name: str
    target: str
    summary: str

    def load(self) -> Callable[[Any], None]:
        """Import it and return its ``register``; LandbridgeError says what to install."""
        module, _, attribute = self.target.partition(":")
        try:
            register: Callable[[Any], None] = getattr(importlib.import_module(module), attribute or "register")
        except ModuleNotFoundError as error:
            extra = f"landbridge[{_EXTRAS[self.name]}]" if self.name in _EXTRAS else module.partition(".")[0]
            raise LandbridgeError(
                f"'landbridge {self.name}' needs the Python package {error.name!r}, which is not installed "
                f"in {sys.prefix}; pip install '{extra}'"
            ) from error
        return register


def groups() -> dict[str, Group]:
    """Every group there is, built-in ones first, by name. Imports none of them."""
    targets = dict(_BUILT_IN)
    targets.update({point.name: point.value for point in metadata.entry_points(group=GROUP)})
    ordered = [*(name for name in _SUMMARIES if name in targets), *sorted(set(targets) - set(_SUMMARIES))]
    return {name: Group(name, targets[name], _SUMMARIES.get(name, f"from {targets[name]}")) for name in ordered}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"landbridge {_version()}")
        return 0
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:  # argparse has printed its message
        return error.code if isinstance(error.code, int) else 0 if error.code is None else _fail(str(error.code), 1)
    except BrokenPipeError:  # the reader (head, less) has gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (LandbridgeError, grpc.RpcError) as error:
        if os.environ.get("LANDBRIDGE_DEBUG") == "1":
            raise
        known = error if isinstance(error, LandbridgeError) else from_rpc_error(error)
        return _fail(str(known), 2 if isinstance(known, InvalidArgument) else 1)


def overview() -> str:
    """What ``landbridge --help`` prints."""
    lines = [f"  {group.name:<10} {group.summary}" for group in groups().values()]
    return _OVERVIEW.format(groups="groups:\n" + "\n".join(lines)).rstrip()


def _run(arguments: list[str]) -> int:
    known = groups()
    if arguments[0] not in known:
        close = difflib.get_close_matches(arguments[0], known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return _fail(f"no such group {arguments[0]!r}; {hint}There are: {', '.join(known)}", 2)
    register = known[arguments[0]].load()
    parser = argparse.ArgumentParser(prog="landbridge", description="landbridge --help tells what there is")
    register(parser.add_subparsers(dest="group", required=True, metavar="GROUP"))
    args = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int | None] | None = getattr(args, "run", None)
    if run is None:
        parser.parse_args([*arguments, "--help"])
        return 2
    previous = signal.signal(signal.SIGTERM, _interrupt)
    telemetry.configure(f"landbridge-{arguments[0]}")  # on where OTEL_EXPORTER_OTLP_ENDPOINT is set
    try:
        return run(args) or 0
    finally:
        telemetry.shutdown()
        signal.signal(signal.SIGTERM, previous)


def _interrupt(signum: int, frame: Any) -> None:
    """SIGTERM takes the way of Ctrl-C, so that ``finally`` blocks end the children."""
    raise KeyboardInterrupt


def _fail(message: str, status: int) -> int:
    print(f"landbridge: {message.strip()}", file=sys.stderr)
    return status


def _version() -> str:
    try:
        return metadata.version("landbridge")
    except metadata.PackageNotFoundError:
        return "(not installed)"
