"""The proofs of docs/results in a shortened form: the same programs, fewer rounds, and they can still fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def prove(name: str, folder: Path, *words: str) -> dict:
    # Without OMP_NUM_THREADS, as a user's shell is: thread counts must not depend on it.
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")} | {"LANDBRIDGE_RESULTS": str(folder)}
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())


def test_actions_and_episodes_are_the_same_over_grpc_and_in_process(tmp_path):
    result = prove("proof_transport_parity", tmp_path, "--episodes", "2")
    assert result["value"] == 0.0 and result["decisions"] > 100


@pytest.mark.parametrize("swaps", ["30"])
def test_no_request_fails_and_no_answer_is_mixed_while_versions_swap(tmp_path, swaps):
    result = prove("proof_hotswap", tmp_path, "--swaps", swaps, "--period", "0.05")
    assert result["value"] == 0 and result["swaps"] == 30 and result["versions_seen"] > 15


def test_the_table_of_results_is_made_from_the_result_files():
    from benchmarks import tables

    assert tables.stale() == [], "run python -m benchmarks.tables and commit"
