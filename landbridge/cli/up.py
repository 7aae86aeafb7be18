"""``landbridge up``: a whole suite of services from one file, started in order and ended together.

    services:
      sim:
        command: sim serve --env PickCube-v1 --num-envs 2 --port 0
        environment: maniskill
      policy:
        command: policy serve --checkpoint runs/demo/checkpoint --port 0
      learner:
        command: learn rl --config ppo.yaml --policy {policy} --sim {sim}

A command is what follows ``landbridge`` on the command line. Services start in the order written, each once the one
before it serves; ``{NAME}`` is the address an earlier one announced. When one ends, all end, and its exit status is
the suite's. Ctrl-C ends all within five seconds.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landbridge.config import ConfigError, load, option
from landbridge.environments import python_for
from landbridge.errors import LandbridgeError
from landbridge.process import ProcessGroup

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w-]*)\}")


@dataclass
class Service:
    """One process of a suite."""

    command: str = option(help="what follows 'landbridge' on the command line; {NAME} is an earlier service's address")
    environment: str | None = option(None, "isolated environment to run in (landbridge env list); else this one")
    variables: dict[str, str] = option({}, "environment variables to add")
    serves: bool = option(True, "whether it announces an address and answers gRPC health; others just run")
    timeout: float = option(120.0, "seconds it has until it serves", minimum=0.0)


@dataclass
class Suite:
    """What to start."""

    services: dict[str, Service] = option({}, "the services by name, in the order to start them")
    log_folder: Path | None = option(None, "also write each service's output to NAME.log here")


def register(subparsers: Any) -> None:
    """Add ``up``."""
    parser = subparsers.add_parser(
        "up", help="start a suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", metavar="SUITE.YAML", help="the services to start")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change a setting: services.sim.timeout=300"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    return up(load(Suite, args.suite, args.set))


def up(suite: Suite) -> int:
    """Run a suite until one of its services ends; returns that one's exit status. All have ended when it returns."""
    if not suite.services:
        raise ConfigError("services: none are given; a suite is what it starts", field="services")
    _check_placeholders(suite)
    addresses: dict[str, str] = {}
    with ProcessGroup(log_folder=suite.log_folder, echo=True) as group:
        for name, service in suite.services.items():
            child = group.start(name, command_of(service, addresses), env=service.variables)
            if service.serves:
                addresses[name] = child.wait_serving(service.timeout)
                print(f"landbridge | {name} serves at {addresses[name]}", flush=True)
        while (ended := group.wait_any(3600.0)) is None:
            pass
        if ended.poll() != 0:
            raise LandbridgeError(f"{ended.describe_end()}; the suite is ended{ended.tail()}")
        print(f"landbridge | {ended.describe_end()}; the suite is ended", flush=True)
        return 0


def command_of(service: Service, addresses: dict[str, str]) -> list[str]:
    """The command line of a service, with the addresses of earlier ones filled in."""
    python = str(python_for(service.environment)) if service.environment else sys.executable
    words = [_PLACEHOLDER.sub(lambda found: addresses[found[1]], word) for word in shlex.split(service.command)]
    return [python, "-m", "landbridge.cli", *words]


def _check_placeholders(suite: Suite) -> None:
    """Before anything starts: every ``{NAME}`` is a serving service further up."""
    known: list[str] = []
    for name, service in suite.services.items():
        for used in _PLACEHOLDER.findall(service.command):
            if used not in known:
                raise ConfigError(
                    f"services.{name}.command: {{{used}}} is no service before it that serves; "
                    f"there are: {', '.join(known) or 'none'}",
                    field=f"services.{name}.command",
                )
        if service.serves:
            known.append(name)
