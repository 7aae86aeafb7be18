"""``landbridge sim``: serve simulator environments, list what there is, record demonstrations."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from landbridge import environments
from landbridge.config import add_arguments, from_args, to_mapping
from sim_server.adapters import simulators, split_spec
from sim_server.demos import DemoConfig, record
from sim_server.serve import SimServeConfig, add_serve_arguments, config_of, serve


def register(subparsers: Any) -> None:
    """Add ``sim serve``, ``sim list`` and ``sim demos``."""
    parser = subparsers.add_parser("sim", help="serve simulator environments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("serve", help="serve N environments of one simulator task")
    add_serve_arguments(server)
    server.set_defaults(run=_serve)
    listing = commands.add_parser("list", help="simulators known, and whether they can run here")
    listing.set_defaults(run=_list)
    demos = commands.add_parser("demos", help="record a scripted expert's successful episodes")
    demos.add_argument("address", help="HOST:PORT of a running sim server")
    add_arguments(demos, DemoConfig)
    demos.set_defaults(run=_demos)


def _serve(args: argparse.Namespace) -> int:
    config = config_of(args)  # what is wrong with the arguments is said before anything starts
    simulator, _ = split_spec(args.spec)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if simulator not in environments.names():
        return serve(args.spec, config)
    python = str(environments.python_for(simulator))
    if Path(python).parent.parent == Path(sys.prefix):
        return serve(args.spec, config)
    # In place of this process: whoever started us keeps one child, and signals reach the server itself.
    os.execv(python, [python, "-m", "sim_server.serve", args.spec, *_flags(config)])


def _flags(config: SimServeConfig) -> list[str]:
    """The command line that gives ``config``."""
    words = []
    for name, value in to_mapping(config).items():
        words += ["--" + name.replace("_", "-"), json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def _list(args: argparse.Namespace) -> int:
    isolated = environments.names()
    for name, target in sorted(simulators().items()):
        state = environments.state(name) if name in isolated else "in this environment"
        hint = f"  (landbridge env install {name})" if state in ("absent", "incomplete", "outdated") else ""
        print(f"{name:<12} {state:<20} {target}{hint}")
    return 0


def _demos(args: argparse.Namespace) -> int:
    record(args.address, from_args(DemoConfig, args), print)
    return 0
