"""The policy command, against a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_parts import HASH, serving, state_of

from landbridge.cli.main import main
from landbridge.policy.client import PolicyClient


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (server, _):
        with PolicyClient(server.address) as client:
            client.push_weights(state_of(1), version=1, architecture_hash=HASH, training_step=30)
        yield server.address


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["policy", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_call_prints_a_line_an_action_and_the_version(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "call", address, "--rows", "2", "--repeat", "2")
    assert status == 0 and out.count("version 1,") == 2 and out.count("row 1 step 3:") == 2
    assert "log-prob" not in out and out.count(" step ") == 2 * 2 * 4


def test_call_repeats_itself_with_the_same_seed_only(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    def actions(*options: str) -> list[str]:
        return run(capsys, "call", address, *options)[1].splitlines()[1:]

    assert actions("--seed", "3") == actions("--seed", "3") != actions("--seed", "4")
    assert actions("--zeros") == actions("--zeros") != actions()


def test_call_takes_a_version_and_explores(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "call", address, "--version", "0", "--stochastic")
    assert status == 0 and "version 0," in out and out.count("log-prob") == 4
    status, _, err = run(capsys, "call", address, "--version", "9")
    assert status == 1 and "version 9 is not held; held are [0, 1]" in err and "Traceback" not in err


def test_call_says_what_is_wrong_with_its_options(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", address, "--repeat", "0")[0] == 2
    status, _, err = run(capsys, "call", address, "--rows", "1000")
    assert status == 2 and "1000 rows came, 1 to 256" in err


def test_info_shows_contract_and_versions(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "info", address)
    assert status == 0
    for part in ("toy at", "observation state [6] float32 (read)", "privileged [2] float32 (privileged)", "at 20 Hz"):
        assert part in out
    assert "version 1: training step 30" in out and "(current)" in out and "PAUSED" not in out
    with PolicyClient(address) as client:
        client.pause(30.0)
        assert "PAUSED" in run(capsys, "info", address)[1]


def test_activate_rolls_back(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "activate", address, "0")
    assert status == 0 and out == "version 0 is current; before it was 1\n"
    status, _, err = run(capsys, "activate", address, "7")
    assert status == 1 and "held are [0, 1]" in err


def test_check_policy_prints_a_verdict_a_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check", "policy", address]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out and out.count("ok  ") > 20


def test_serving_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "serve", "--checkpoint", str(tmp_path), "--port", "0")
    assert status == 1 and "no checkpoint at" in err
    status, _, err = run(capsys, "serve", "--checkpoint", str(tmp_path), "--keep", "0")
    assert status == 2 and "keep" in err
