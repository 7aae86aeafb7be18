"""``landbridge demo``: demonstrations, imitation, reinforcement learning, a robot cell, a report."""

from __future__ import annotations

import argparse
from typing import Any

from landbridge import config
from landbridge.demo.config import DemoConfig


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo", help="the whole way, from demonstrations to a robot cell", description=__doc__
    )
    config.add_arguments(parser, DemoConfig)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from landbridge.demo.run import Demo

    Demo(config.from_args(DemoConfig, args)).play()
    return 0
