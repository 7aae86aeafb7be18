"""``landbridge env``: the isolated Python environments simulators need."""

from __future__ import annotations

import argparse
from typing import Any

from landbridge import environments


def register(subparsers: Any) -> None:
    """Add ``env install`` and ``env list``."""
    parser = subparsers.add_parser("env", help="isolated Python environments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", help="build one; does nothing where it is built already")
    install.add_argument("name", choices=environments.names(), help="which simulator's")
    install.set_defaults(run=_install)
    commands.add_parser("list", help="what there is, and in which state").set_defaults(run=_list)


def _install(args: argparse.Namespace) -> None:
    environments.install(args.name, progress=lambda line: print(line, flush=True))


def _list(args: argparse.Namespace) -> None:
    print(f"in {environments.home() / 'envs'}:")
    for name in environments.names():
        state = environments.state(name)
        hint = "" if state == "ready" else f"    landbridge env install {name}"
        print(f"  {name:<12} {state:<12}{hint}".rstrip())
