"""The demo in small: every stage with real processes, ManiSkill and the cell; and Ctrl-C in the middle of it."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from landbridge import environments
from landbridge.demo.config import SIMULATOR, TRAINING, DemoConfig

pytestmark = pytest.mark.skipif(
    any(environments.state(name) != "ready" for name in ("maniskill", "robosuite")),
    reason="`landbridge env install maniskill` and `… robosuite` build what the demo needs",
)
SMALL = ["--envs", "2", "--demonstrations", "4", "--imitation-steps", "300", "--evaluation-episodes", "6"]


def demo(run_dir: Path, *flags: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "landbridge.cli", "demo", "--run-dir", str(run_dir), *SMALL, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_whole_way_from_demonstrations_to_a_report(tmp_path):
    training = tmp_path / "training.yaml"
    training.write_text(TRAINING.read_text().replace("batch: 512", "batch: 8"))
    run = tmp_path / "run"
    process = demo(run, "--minutes", "0.4", "--trials", "2", "--cell-speed", "2", "--training", str(training))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    metrics = [json.loads(line) for line in (run / "rl" / "metrics.jsonl").read_text().splitlines()]
    swaps = (run / "rl" / "swaps.jsonl").read_text().splitlines()
    assert len(metrics) >= 2 and len(swaps) >= 2, "several versions were swapped into the running server"
    assert all(m["staleness_max"] <= 1 for m in metrics), "nothing consumed is older than the demo's bound"
    gaps = [m["behaviour_gap"] for m in metrics if m.get("behaviour_gap") is not None]
    assert gaps and max(gaps) < 1e-4, "served log-probabilities are the learner's"
    with sqlite3.connect(run / "campaign.sqlite") as store:
        (finished,) = store.execute("select count(*) from events where kind = 'finished'").fetchone()
    assert finished == 4
    report = (run / "report.html").read_text()
    for part in ("<svg", "versions behind", "In simulation", "Rollouts", "swaps of weights"):
        assert part in report
    assert "sft" in output and "rl" in output and "report.html" in output


def test_ctrl_c_ends_every_process_within_five_seconds(tmp_path):
    process = demo(tmp_path / "run", "--minutes", "5", "--trials", "2")
    assert process.stdout is not None
    for line in process.stdout:
        if "reinforcement learning" in line:
            break
    time.sleep(6.0)  # the learner and its worker are up
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5.0) == 130
    assert not [p.cmdline() for p in family if p.is_running()]


def test_the_training_file_is_read_in_full():
    from landbridge import config
    from learner.config import LearnConfig

    loaded = config.load(LearnConfig, TRAINING, ["policy=127.0.0.1:1", "checkpoint=x", "demos=y"])
    assert loaded.batch == 512 and loaded.ppo.learning_rate == 1e-4 and loaded.reward.potential
    assert DemoConfig().training == TRAINING


def test_the_training_simulator_takes_every_option_of_its_file():
    from landbridge import config
    from sim_server.adapters.maniskill_options import ManiSkillOptions

    options = config.from_mapping(ManiSkillOptions, yaml.safe_load(SIMULATOR.read_text()))
    assert options.randomises and options.goal_tolerance == 0.7 and options.gripper_speed == (0.2, 1.2)
