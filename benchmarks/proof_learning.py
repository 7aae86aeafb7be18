"""Learning through the services: imitation to a weak start, asynchronous PPO, deterministic evaluation on unseen seeds.

The stages are the demo's (``landbridge/demo``), processes all. ``learning-demo``: points gained, the lowest of
several seeds. ``learning-pickcube``: final success of a longer run. Evaluation is in ManiSkill as it is, with its own
time limit of 50 steps.
Run: ``python -m benchmarks.proof_learning demo`` or ``python -m benchmarks.proof_learning pickcube``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from benchmarks import results
from landbridge.demo.config import DemoConfig
from landbridge.demo.run import Demo
from landbridge.intervals import Rate
from landbridge.process import ProcessGroup


def run_seed(config: DemoConfig) -> dict[str, Any]:
    """One seed, start to end; what was measured."""
    demo = Demo(config)
    demo.make_room()
    demo.install()
    with ProcessGroup(log_folder=demo.run / "logs") as group:
        simulator, policy = demo.train(group)
        version = demo.current_version(policy.address)
        rates = both_ends(demo, group, policy.address, simulator.address, version)
    metrics = [json.loads(line) for line in (demo.run / "rl" / "metrics.jsonl").read_text().splitlines()]
    return {
        "seed": config.seed,
        "version": version,
        "points": 100 * (rates["end"]["success"] - rates["start"]["success"]),
        **rates,
        "env_steps": metrics[-1]["env_steps"],
        "curve": [[round(m["seconds"] / 60, 2), m["env_steps"], round(m["success_once"], 4)] for m in metrics],
    }


def both_ends(demo: Demo, group: ProcessGroup, policy: str, env: str, version: int) -> dict[str, dict[str, float]]:
    """Deterministic success of the imitated and of the trained policy."""
    rates = {}
    for label, number in (("start", 0), ("end", version)):
        found = demo.evaluate(group, policy, env, label, number)
        rate = Rate(found["successes"], found["episodes"])
        rates[label] = {"success": rate.value, "low": rate.interval()[0], "high": rate.interval()[1]}
    return rates


def settings(args: argparse.Namespace, seed: int) -> DemoConfig:
    """The demo's, with this proof's length."""
    base = DemoConfig()
    return dataclasses.replace(
        base,
        run_dir=Path("runs") / f"proof-{args.which}-{seed}",
        minutes=args.minutes,
        evaluation_episodes=args.episodes,
        demonstrations=args.demonstrations,
        seed=seed,
    )


def write(args: argparse.Namespace, seeds: list[dict[str, Any]]) -> bool:
    """The result file; True where the bar is met."""
    common = {
        "task": DemoConfig().task,
        "minutes": args.minutes,
        "evaluation_episodes": args.episodes,
        "demonstrations": args.demonstrations,
        "seeds": seeds,
        "curve_columns": ["minutes", "env_steps", "stochastic success"],
    }
    if args.which == "demo":
        value = min(one["points"] for one in seeds)
        figure = f"points of deterministic success gained, the lowest of {len(seeds)} seeds"
        results.write("learning-demo", figure=figure, value=value, unit="points", **common)
        return value >= 40
    end = seeds[0]["end"]
    results.write(
        "learning-pickcube",
        figure="deterministic success at the end",
        value=end["success"],
        unit="rate",
        low=end["low"],
        high=end["high"],
        **common,
    )
    return bool(end["success"] >= 0.9)


def main() -> int:
    """Run, write, and exit with 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("demo", "pickcube"))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", default="")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--demonstrations", type=int, default=0)
    args = parser.parse_args()
    args.demonstrations = args.demonstrations or DemoConfig().demonstrations
    args.minutes = args.minutes or (20.0 if args.which == "demo" else 85.0)
    names = args.seeds or ("0,1,2" if args.which == "demo" else "0")
    done: list[dict[str, Any]] = []
    met = False
    for seed in map(int, names.split(",")):
        begun = time.monotonic()
        done.append(run_seed(settings(args, seed)))
        print(
            f"seed {seed}: {done[-1]['points']:+.1f} points in {(time.monotonic() - begun) / 60:.1f} min in all",
            flush=True,
        )
        met = write(args, done)  # after every seed: a run cut short has shown what it had
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
