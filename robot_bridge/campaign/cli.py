"""``landbridge campaign``: plan, lock and run evaluations, and report them with the certainty they have."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from landbridge.errors import FailedPrecondition, InvalidArgument
from robot_bridge.campaign.design import Design, load_design, plan_text
from robot_bridge.campaign.store import Store

_SETTINGS = ("policy", "env", "name", "trials", "first_seed", "test")


def register(subparsers: Any) -> None:
    """Add ``campaign plan``, ``lock``, ``run`` and ``report``."""
    parser = subparsers.add_parser("campaign", help="evaluation campaigns", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    plan = commands.add_parser("plan", help="what difference can these trials find?")
    _add_design(plan)
    plan.add_argument("--power", type=float, default=0.8, help="probability of finding it (default: 0.8)")
    plan.set_defaults(run=_plan)

    lock = commands.add_parser("lock", help="freeze the design in the store, before the first trial")
    _add_design(lock)
    _add_store(lock)
    lock.set_defaults(run=_lock)

    run = commands.add_parser("run", help="run the trials that have no result yet")
    _add_design(run)
    _add_store(run)
    run.add_argument("--resume", action="store_true", help="go on with a campaign that has trials already")
    run.add_argument("--clear", action="store_true", help="I have looked: clear the robot's emergency stop or fault")
    run.add_argument("--timeout", type=float, default=60.0, help="seconds a reset or a chunk may take (default: 60)")
    run.set_defaults(run=_run)

    report = commands.add_parser("report", help="a table, and one HTML file that needs nothing else")
    _add_store(report)
    report.add_argument("--learning", type=Path, metavar="DIR", help="run folder of the learner: adds its curves")
    report.add_argument(
        "--evaluation", type=Path, action="append", default=[], metavar="FILE",
        help="result of `landbridge learn eval --out FILE`, in the order of the arms; may be repeated",
    )  # fmt: skip
    report.add_argument("--out", type=Path, metavar="FILE", help="write the HTML report here")
    report.set_defaults(run=_report)


def _add_design(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="campaign file (YAML); flags override it")
    parser.add_argument("--policy", metavar="HOST:PORT", help="policy server")
    parser.add_argument("--env", metavar="HOST:PORT", help="robot or simulator")
    parser.add_argument("--arm", action="append", default=[], metavar="LABEL=VERSION", help="a policy; repeat it")
    parser.add_argument("--name", help="of the campaign")
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each arm")
    parser.add_argument("--first-seed", type=int, metavar="N", help="of the initial conditions")
    parser.add_argument("--test", choices=("fisher", "mcnemar"), help="that decides")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting of a campaign file, e.g. block=4"
    )


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, required=True, metavar="FILE", help="SQLite file of the campaign's events"
    )


def _given(args: argparse.Namespace) -> list[str]:
    named = {name: getattr(args, name) for name in _SETTINGS}
    return [f"{name}={value}" for name, value in named.items() if value is not None] + list(args.set)


def _design(args: argparse.Namespace) -> Design:
    return load_design(args.file, _given(args), args.arm)


def _plan(args: argparse.Namespace) -> int:
    if not 0.0 < args.power < 1.0:
        raise InvalidArgument(f"--power {args.power}: expected a probability between 0 and 1")
    print(plan_text(_design(args), args.power))
    return 0


def _lock(args: argparse.Namespace) -> int:
    with Store(args.store, write=True) as store:
        digest = store.lock(_design(args))
    print(f"locked in {args.store}: {digest}")
    return 0


def _run(args: argparse.Namespace) -> int:
    from robot_bridge.campaign.run import run_campaign

    with Store(args.store, write=True) as store:
        begun = next(store.events("started"), None) is not None
        if begun and not args.resume:
            raise FailedPrecondition(f"{args.store} holds trials already: --resume goes on with them")
        design = _locked(store, args) if args.resume and not (args.file or args.arm) else _design(args)
        print(f"design {store.lock(design)[:16]}: {len(store.remaining(design))} trials to run", flush=True)
        run_campaign(design, store, _say, clear=args.clear, timeout=args.timeout)
    return 0


def _locked(store: Store, args: argparse.Namespace) -> Design:
    """What is locked; the flags may say where the endpoints are now, nothing else."""
    if not (args.policy and args.env):
        raise InvalidArgument("--resume without a campaign file needs --policy and --env")
    design = store.design(args.policy, args.env)
    for text in _given(args):
        name, _, value = text.partition("=")
        if name not in ("policy", "env") and str(getattr(design, name, None)) != value:
            raise FailedPrecondition(f"{name} is locked as {getattr(design, name, None)} and cannot be {value} now")
    return design


def _say(line: str) -> None:
    print(line, flush=True)


def _report(args: argparse.Namespace) -> int:
    from robot_bridge.campaign.report import read_results, report_html, table

    with Store(args.store) as store:
        results = read_results(store)
    print(table(results))
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(report_html(results, args.learning, args.evaluation), encoding="utf-8")
        print(f"report in {args.out}", file=sys.stderr)
    return 0
