"""``landbridge check``: does an endpoint keep the protocol, and may this policy drive that environment?

A verdict a line; exit status 0 when all are good, 1 otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from landbridge import compatibility, rpc
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_json, contract_from_proto
from landbridge.errors import InvalidArgument, LandbridgeError, NotFound
from landbridge.v1 import env_pb2, env_pb2_grpc, policy_pb2, policy_pb2_grpc

TIMEOUT = 10.0
"""Seconds an endpoint has for one answer."""


def register(subparsers: Any) -> None:
    """Add ``check contract``, ``check env`` and ``check policy``."""
    parser = subparsers.add_parser("check", help="test endpoints", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    contract = commands.add_parser("contract", help="may this policy drive that environment?")
    contract.add_argument("policy", help="HOST:PORT of a policy server, or a checkpoint's folder")
    contract.add_argument("env", help="HOST:PORT of an environment or a robot")
    contract.set_defaults(run=_contract)
    for kind in ("env", "policy"):
        suite = commands.add_parser(kind, help=f"run the compliance suite on any {kind} endpoint")
        suite.add_argument("address", help="HOST:PORT")
        suite.set_defaults(run=_compliance, suite=f"landbridge.{kind}.compliance")


def _contract(args: argparse.Namespace) -> int:
    policy, reads = _policy_contract(args.policy)
    env, kind = _env_contract(args.env)
    report = compatibility.check(policy, env, kind, reads)
    for conversion in report.conversions:
        print(f"convert  {conversion}")
    for note in report.notes:
        print(f"note     {note}")
    for problem in report.problems:
        print(f"FAIL     {problem.rule}: {problem}")
    verdict = "may drive" if report.ok else "must not drive"
    print(f"{'ok  ' if report.ok else 'FAIL'}     the policy at {args.policy} {verdict} the {kind} at {args.env}")
    return 0 if report.ok else 1


def _compliance(args: argparse.Namespace) -> int:
    _address(args.address)
    rpc.wait_serving(args.address, TIMEOUT)
    verdicts = importlib.import_module(args.suite).run(args.address)
    return _print_verdicts(verdicts)


def _print_verdicts(verdicts: Iterable[Any]) -> int:
    """Verdicts have ``name``, ``passed`` and ``message``; returns the exit status."""
    total = failed = 0
    for verdict in verdicts:
        total += 1
        failed += not verdict.passed
        message = f": {verdict.message}" if verdict.message else ""
        print(f"{'ok  ' if verdict.passed else 'FAIL'}     {verdict.name}{message}", flush=True)
    if not total:
        raise LandbridgeError("the suite had no case for this endpoint: nothing was checked")
    print(f"{total - failed} of {total} passed")
    return 1 if failed else 0


def _policy_contract(where: str) -> tuple[Contract, Collection[str] | None]:
    """A policy's contract and the names of what it reads, from a server or from a checkpoint's manifest."""
    if Path(where).is_dir():
        return _checkpoint_contract(Path(where))
    with rpc.channel(_address(where, "or a checkpoint's folder")) as link:
        info = rpc.call(policy_pb2_grpc.PolicyServiceStub(link).GetInfo, policy_pb2.GetInfoRequest(), TIMEOUT)
    return contract_from_proto(info.contract), list(info.reads) or None


def _checkpoint_contract(folder: Path) -> tuple[Contract, Collection[str] | None]:
    manifest = folder / "manifest.json"
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        return contract_from_json(content["contract"]), content.get("reads")
    except FileNotFoundError as error:
        raise NotFound(f"{folder} is no checkpoint: it has no manifest.json") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{manifest} holds no contract: {type(error).__name__}: {error}") from error


def _env_contract(where: str) -> tuple[Contract, compatibility.Kind]:
    with rpc.channel(_address(where)) as link:
        info = rpc.call(env_pb2_grpc.EnvServiceStub(link).GetInfo, env_pb2.GetEnvInfoRequest(), TIMEOUT)
    # An endpoint that does not say what it is gets the stricter rules.
    kind: compatibility.Kind = "simulator" if info.kind == env_pb2.EnvInfo.KIND_SIMULATOR else "robot"
    return contract_from_proto(info.contract), kind


def _address(text: str, alternative: str = "") -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidArgument(f"expected HOST:PORT {alternative}".strip() + f", got {text!r}")
    return text
