"""``landbridge robot``: serve a robot behind its safety layer; look at it; stop it."""

from __future__ import annotations

import argparse
from typing import Any

from landbridge import rpc
from landbridge.config import add_arguments, from_args
from landbridge.v1 import robot_pb2 as pb
from landbridge.v1 import robot_pb2_grpc

_TIMEOUT = 5.0


def register(subparsers: Any) -> None:
    """Add ``robot serve``, ``state`` and ``stop``."""
    from robot_bridge.serve import RobotServeConfig

    parser = subparsers.add_parser("robot", help="serve a robot behind its safety layer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("serve", help="EnvService and RobotService over one robot, or over the MuJoCo cell")
    add_arguments(server, RobotServeConfig)
    server.set_defaults(run=_serve)
    for name, text, run in (
        ("state", "what the safety layer says", _state),
        ("stop", "emergency stop: decelerate, hold, latch", _stop),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("address", help="HOST:PORT of `landbridge robot serve`")
        command.set_defaults(run=run)


def _serve(args: argparse.Namespace) -> int:
    from robot_bridge.serve import RobotServeConfig, serve

    return serve(from_args(RobotServeConfig, args))


def _state(args: argparse.Namespace) -> None:
    with rpc.channel(args.address) as link:
        stub = robot_pb2_grpc.RobotServiceStub(link)
        _print(rpc.call(stub.GetSafetyState, pb.GetSafetyStateRequest(), _TIMEOUT))


def _stop(args: argparse.Namespace) -> None:
    with rpc.channel(args.address) as link:
        stub = robot_pb2_grpc.RobotServiceStub(link)
        request = pb.EmergencyStopRequest(reason="landbridge robot stop")
        _print(rpc.call(stub.EmergencyStop, request, _TIMEOUT).state)


def _print(state: pb.SafetyState) -> None:
    name = pb.SafetyMode.Name(state.mode).removeprefix("SAFETY_MODE_")
    print(f"{name}  stop generation {state.stop_generation}  {state.reason}")
    for what, count in sorted(state.counts.items()):
        print(f"  {what}: {count}")
    for decision in list(state.recent)[-8:]:
        print(f"  {decision.check} {decision.outcome}: {decision.message}")
