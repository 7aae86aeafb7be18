"""Serve a simulator: workers, EnvService, until told to stop.

``python -m sim_server.serve SIMULATOR:TASK [--num-envs N] [--port P] [--option KEY=VALUE ...]`` runs in the simulator's
own Python environment; ``landbridge sim serve`` finds that environment and runs this.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from landbridge import rpc, telemetry
from landbridge.config import add_arguments, from_args, option
from landbridge.env.service import EnvServicer
from landbridge.errors import InvalidArgument, LandbridgeError
from landbridge.process import announce_ready, watch_parent
from sim_server.adapters import split_spec
from sim_server.workers import WorkerPool

STOP_GRACE = 0.5
"""Seconds calls under way have when the server is told to stop; a chunk takes less."""


@dataclass(frozen=True)
class SimServeConfig:
    """Options of ``landbridge sim serve``."""

    num_envs: int = option(8, "environments, each in a process of its own", minimum=1)
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50052, "port, 0 for any free one", minimum=0, maximum=65535)
    options: dict[str, Any] = option({}, "options of the adapter, as a YAML mapping; --option sets a single one")
    step_timeout: float = option(30.0, "seconds a chunk may take before its worker counts as hung", minimum=0.1)
    start_at_once: int = option(0, "workers that start side by side; 0: one a core", minimum=0)


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``serve``."""
    parser.add_argument("spec", metavar="SIMULATOR:TASK", help="for example maniskill:PickCube-v1")
    parser.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="an option of the adapter (repeatable)"
    )
    add_arguments(parser, SimServeConfig)


def config_of(args: argparse.Namespace) -> SimServeConfig:
    """The configuration that :func:`add_serve_arguments` describes."""
    config = from_args(SimServeConfig, args)
    for text in args.option:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidArgument(f"--option {text!r}: expected KEY=VALUE, e.g. max_episode_steps=50", field="option")
        config.options[key] = yaml.safe_load(value)
    return config


def serve(spec: str, config: SimServeConfig) -> int:
    """Run ``spec`` (SIMULATOR:TASK) until SIGINT or SIGTERM."""
    split_spec(spec)
    watch_parent()
    pool = WorkerPool(
        spec,
        config.num_envs,
        config.options,
        step_timeout=config.step_timeout,
        start_at_once=config.start_at_once,
    )
    stopped = rpc.stop_event()  # before this a signal simply ends us, and the kernel the workers
    try:
        servicer = EnvServicer(pool, can_save_state=pool.can_save_state, can_render=pool.can_render)
        server = rpc.Server([servicer.service()], host=config.host, port=config.port)
        server.start()
        announce_ready(server.address, spec=spec, num_envs=config.num_envs)
        stopped.wait()
        server.stop(STOP_GRACE)
        servicer.close()
    finally:
        pool.close()
        telemetry.shutdown()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m sim_server.serve``."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser(prog="sim_server.serve", description=__doc__)
    add_serve_arguments(parser)
    try:
        args = parser.parse_args(argv)
        telemetry.configure("landbridge-sim")
        return serve(args.spec, config_of(args))
    except LandbridgeError as error:
        print(f"landbridge: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1


if __name__ == "__main__":
    sys.exit(main())
