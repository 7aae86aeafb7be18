"""The imitated and the trained policy in the robot cell, zero-shot: one policy server, pinned versions, interleaved.

Takes a run of ``proof_learning`` (or of the demo) and plays a campaign in real time.
Run: ``python -m benchmarks.proof_cell --run runs/proof-pickcube-0``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import results
from landbridge.demo.config import DemoConfig
from landbridge.policies.checkpoint import architecture_hash, load_checkpoint
from landbridge.policies.states import to_arrays
from landbridge.policy.client import PolicyClient
from landbridge.process import ProcessGroup
from robot_bridge.campaign.report import Results, read_results, table
from robot_bridge.campaign.store import Store

START = 120.0
HOURS = 3600.0


def play(run: Path, store: Path, trials: int, cell_flags: list[str]) -> Results:
    """Serve the imitated policy, push the trained one, run the campaign to its end."""
    command = [sys.executable, "-m", "landbridge.cli"]
    trained = load_checkpoint(run / "rl" / "checkpoint" / "policy")
    with ProcessGroup(log_folder=store.parent / "logs", echo=True) as group:
        serve = [*command, "policy", "serve", "--checkpoint", str(run / "sft"), "--port", "0", "--pin", "0"]
        policy = group.start("policy", serve).wait_serving(START)
        with PolicyClient(policy) as client:
            client.push_weights(
                to_arrays(trained.policy.state_dict()),
                version=trained.version,
                architecture_hash=architecture_hash(trained.policy.architecture()),
            )
        limit = str(trained.policy.contract.action.bounds()[1][0])
        cell = [*command, "robot", "serve", "--cell", "--port", "0", "--robot.action-limit", limit]
        cell += ["--robot.max-episode-steps", str(DemoConfig().trial_steps), *cell_flags]
        robot = group.start("robot", cell).wait_serving(START)
        arms = ["--arm", "sft=0", "--arm", f"rl={trained.version}"]
        campaign = group.start(
            "campaign",
            [*command, "campaign", "run", "--policy", policy, "--env", robot, *arms]
            + ["--trials", str(trials), "--store", str(store)],
        )
        status = campaign.wait(HOURS)
        if status != 0:
            raise SystemExit(f"{campaign.describe_end()}{campaign.tail()}")
    return read_results(Store(store))


def main() -> int:
    """Play, write ``cell-zero-shot-rl`` and ``cell-zero-shot-sft``; exit status 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/proof-pickcube-0"))
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--name", default="", help="suffix of the result files, for ablations")
    parser.add_argument("cell_flags", nargs="*", help="further flags of `landbridge robot serve`, after --")
    args = parser.parse_args()
    store = args.run / f"proof-cell{args.name}.sqlite"
    store.unlink(missing_ok=True)
    found = play(args.run, store, args.trials, args.cell_flags)
    print(table(found))
    for label in ("rl", "sft"):
        rate = found.rates[label]
        low, high = rate.interval()
        results.write(
            f"cell-zero-shot-{label}{args.name}",
            figure=f"success of the {label} policy in the robot cell",
            value=rate.value,
            unit="rate",
            low=low,
            high=high,
            trials=rate.trials,
            task=DemoConfig().task,
            version=found.design.arms[label],
            safety_messages=sum(t.messages for t in found.trials if t.trial.arm.label == label),
            rearmed=found.armed,
        )
    better = any(c.verdict == "rl is better than sft" for c in found.comparisons)
    return 0 if found.rates["rl"].value >= 0.6 and better else 1


if __name__ == "__main__":
    raise SystemExit(main())
