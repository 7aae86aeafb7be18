"""``landbridge policy``: serve a policy, call one, look at one, change its version."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

import numpy as np

from landbridge import config
from landbridge.errors import InvalidArgument
from landbridge.policy.client import InferResult, PolicyClient
from landbridge.policy.samples import sample_observation


def register(subparsers: Any) -> None:
    """Add ``policy serve``, ``call``, ``info`` and ``activate``."""
    parser = subparsers.add_parser("policy", help="serve a policy and its weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _register_serve(commands.add_parser("serve", help="serve a checkpoint; weights can be pushed while it runs"))
    call = commands.add_parser("call", help="send made-up observations and print the actions")
    _add_address(call)
    call.add_argument("--rows", type=int, default=1, metavar="N", help="rows in the request (default: 1)")
    call.add_argument("--zeros", action="store_true", help="send zeros; default: random values within the bounds")
    call.add_argument("--seed", type=int, default=0, metavar="N", help="of observation and action noise (default: 0)")
    call.add_argument("--stochastic", action="store_true", help="explore, and print log-probabilities")
    call.add_argument("--version", type=int, metavar="N", help="ask for exactly this version")
    call.add_argument("--repeat", type=int, default=1, metavar="N", help="calls on one stream (default: 1)")
    call.set_defaults(run=_call)
    info = commands.add_parser("info", help="what is served: contract, versions")
    _add_address(info)
    info.set_defaults(run=_info)
    activate = commands.add_parser("activate", help="make a held version current, e.g. to roll back")
    _add_address(activate)
    activate.add_argument("version", type=int, metavar="VERSION")
    activate.set_defaults(run=_activate)


def _register_serve(parser: argparse.ArgumentParser) -> None:
    from policy_server.options import PolicyServeConfig

    config.add_arguments(parser, PolicyServeConfig)
    parser.set_defaults(run=_serve)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", help="of a policy server")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds it has (default: 10)")


def _serve(args: argparse.Namespace) -> int:
    from policy_server.options import PolicyServeConfig
    from policy_server.serve import serve  # imports torch, which the other commands do without

    return serve(config.from_args(PolicyServeConfig, args))


def _call(args: argparse.Namespace) -> int:
    if args.repeat < 1:
        raise InvalidArgument(f"--repeat {args.repeat}: at least 1", field="repeat")
    rng = None if args.zeros else np.random.default_rng(args.seed)
    with PolicyClient(args.address, args.timeout) as client, client.stream() as stream:
        info = client.info()
        for _ in range(args.repeat):
            answer = stream.infer(
                sample_observation(info.contract, info.reads, args.rows, rng),
                seeds=range(args.seed, args.seed + args.rows),
                deterministic=not args.stochastic,
                version=args.version,
            )
            _print_answer(answer)
    return 0


def _print_answer(answer: InferResult) -> None:
    print(
        f"version {answer.version}, {answer.batch_rows} rows in the batch, "
        f"queued {answer.queued * 1e3:.2f} ms, computed in {answer.computed * 1e3:.2f} ms"
    )
    for row, chunk in enumerate(answer.actions):
        for step, action in enumerate(chunk):
            log_prob = "" if answer.log_prob is None else f"   log-prob {answer.log_prob[row, step]:.3f}"
            values = " ".join(f"{value:9.5f}" for value in action.reshape(-1))
            print(f"  row {row} step {step}: {values}{log_prob}")


def _info(args: argparse.Namespace) -> int:
    with PolicyClient(args.address, args.timeout) as client:
        info, weights = client.info(), client.list_weights()
    print(f"{info.name} at {args.address}, landbridge {info.server_version}, instance {info.instance_id[:8]}")
    print(f"reads {', '.join(info.reads)}; answers chunks of {info.horizon} at {info.contract.control_rate_hz:g} Hz")
    for spec in info.contract.observation:
        read = "read" if spec.name in info.reads else "privileged" if spec.privileged else "not read"
        print(f"  observation {spec.name} {list(spec.shape)} {spec.dtype} ({read})")
    print(f"  action      {info.contract.action.name} {list(info.contract.action.shape)} {info.contract.action.dtype}")
    print(f"architecture {info.architecture_hash[:12]}; at most {info.max_rows} rows a request")
    if info.paused:
        print("PAUSED: requests wait")
    for held in weights.versions:
        received = datetime.datetime.fromtimestamp(held.received.seconds).isoformat(" ")
        marks = [
            *(["current"] if held.version == weights.current_version else []),
            *(["pinned"] if held.pinned else []),
        ]
        print(
            f"version {held.version}: training step {held.training_step}, {held.bytes} bytes, received {received}"
            f"{' (' + ', '.join(marks) + ')' if marks else ''}"
        )
    return 0


def _activate(args: argparse.Namespace) -> int:
    with PolicyClient(args.address, args.timeout) as client:
        previous = client.activate(args.version)
    print(f"version {args.version} is current; before it was {previous}")
    return 0
