"""The ``landbridge`` command: lazy groups, one-line errors, exit statuses, suites that end together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from landbridge import rpc
from landbridge.cli.check import _print_verdicts
from landbridge.cli.main import groups, main
from landbridge.cli.up import Service, Suite, up
from landbridge.config import ConfigError
from landbridge.contract import Contract, Quantity, Segment, TensorSpec, Unit
from landbridge.contract_codec import contract_to_json, contract_to_proto
from landbridge.errors import LandbridgeError
from landbridge.v1 import env_pb2, env_pb2_grpc, policy_pb2, policy_pb2_grpc

TIMEOUT = 30

PLUGIN = """
import argparse, os, sys, time

def register(subparsers):
    parser = subparsers.add_parser("toy")
    commands = parser.add_subparsers(dest="command")
    for name in ("serve", "ask", "fail", "wait", "rpc", "bug", "config", "traced"):
        command = commands.add_parser(name)
        command.add_argument("words", nargs="*")
        command.set_defaults(run=globals()[name])

def serve(args):
    from landbridge import rpc
    from landbridge.process import announce_ready
    stop = rpc.stop_event()
    server = rpc.Server([])
    announce_ready(server.start(), pid=os.getpid())
    print("pid", os.getpid(), flush=True)
    stop.wait()
    server.stop(0)

def ask(args):
    from landbridge import rpc
    rpc.wait_serving(args.words[0], 10)
    print("asked", args.words[0])

def fail(args):
    from landbridge.errors import Unavailable
    raise Unavailable("the arm is not there; switch it on")

def wait(args):
    print("waiting", flush=True)
    time.sleep(60)

def rpc(args):
    import grpc
    from landbridge.v1 import env_pb2, env_pb2_grpc
    with grpc.insecure_channel("127.0.0.1:1") as link:
        env_pb2_grpc.EnvServiceStub(link).GetInfo(env_pb2.GetEnvInfoRequest(), timeout=5)

def config(args):
    from landbridge.config import ConfigError
    raise ConfigError("num_envs: expected at least 1, got 0", field="num_envs")

def traced(args):
    from landbridge import telemetry
    print(telemetry.enabled())

def bug(args):
    raise ZeroDivisionError("a bug is not an error of the user's")
"""


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which a stranger's package offers the group ``toy``."""
    (tmp_path / "toy_plugin.py").write_text(PLUGIN)
    (tmp_path / "toy-1.0.dist-info").mkdir()
    (tmp_path / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    entry_points = "[landbridge.commands]\ntoy = toy_plugin:register\nbroken = toy_plugin_of_nobody:register\n"
    (tmp_path / "toy-1.0.dist-info" / "entry_points.txt").write_text(entry_points)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def landbridge(plugin: dict[str, str], *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "landbridge.cli", *words]
    return subprocess.run(command, env=plugin | env, capture_output=True, text=True, timeout=TIMEOUT)


def test_help_lists_every_group_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main([]) == 0
    text = capsys.readouterr().out
    for name in groups():
        assert f"\n  {name} " in text
    assert "first steps:" in text


def test_help_imports_no_service() -> None:
    code = """
        import sys
        from landbridge.cli.main import main
        main(["--help"]); main(["nonsense"])
        mine = ("policy_server", "sim_server", "learner", "robot_bridge", "torch", "numpy")
        print([m for m in sys.modules if m.partition(".")[0] in mine])
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=TIMEOUT)
    assert out.stdout.splitlines()[-1] == "[]"


def test_an_unknown_group_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["polcy"]) == 2
    assert "no such group 'polcy'; did you mean 'policy'? There are: " in capsys.readouterr().err


def test_a_missing_package_is_named_with_what_to_install(plugin: dict[str, str]) -> None:
    done = landbridge(plugin, "broken")
    assert done.returncode == 1
    assert "needs the Python package 'toy_plugin_of_nobody', which is not installed" in done.stderr
    assert "pip install" in done.stderr and "Traceback" not in done.stderr


def test_the_extra_of_a_service_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "policy_server.cli", None)
    assert main(["policy", "serve"]) == 1
    assert "pip install 'landbridge[policy]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("fail", 1, "landbridge: the arm is not there; switch it on\n"),
        ("config", 2, "landbridge: num_envs: expected at least 1, got 0\n"),
        ("rpc", 1, "landbridge: failed to connect to all addresses"),
    ],
)
def test_an_error_is_one_line_and_a_status(plugin: dict[str, str], command: str, status: int, message: str) -> None:
    done = landbridge(plugin, "toy", command)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert done.stderr.startswith(message)


def test_tracebacks_are_there_for_who_asks_and_for_bugs(plugin: dict[str, str]) -> None:
    assert "Traceback" in landbridge(plugin, "toy", "fail", LANDBRIDGE_DEBUG="1").stderr
    assert "ZeroDivisionError" in landbridge(plugin, "toy", "bug").stderr


def test_the_endpoint_variable_turns_tracing_on_for_every_command(plugin: dict[str, str]) -> None:
    assert landbridge(plugin, "toy", "traced").stdout == "False\n"
    assert landbridge(plugin, "toy", "traced", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9").stdout == "True\n"


def test_a_group_without_a_command_shows_its_help(plugin: dict[str, str]) -> None:
    done = landbridge(plugin, "toy")
    assert "serve" in done.stdout and done.returncode == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_is_130_without_a_traceback(plugin: dict[str, str], how: signal.Signals) -> None:
    command = [sys.executable, "-m", "landbridge.cli", "toy", "wait"]
    with subprocess.Popen(command, env=plugin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(how)
        _, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (130, "")


def suite_file(tmp_path: Path, **services: Any) -> str:
    path = tmp_path / "suite.yaml"
    path.write_text(json.dumps({"services": services}))  # JSON is YAML
    return str(path)


def test_up_starts_in_order_hands_addresses_on_and_ends_together(plugin: dict[str, str], tmp_path: Path) -> None:
    services = {"sim": {"command": "toy serve"}, "learner": {"command": "toy ask {sim}", "serves": False}}
    done = landbridge(plugin, "up", suite_file(tmp_path, **services), "--set", f"log_folder={tmp_path / 'logs'}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    address = next(line for line in lines if line.startswith("landbridge | sim serves at ")).split()[-1]
    assert f"learner | asked {address}" in lines
    assert "asked" in (tmp_path / "logs" / "learner.log").read_text()
    pid = int(next(line for line in lines if line.startswith("sim | pid")).split()[-1])
    assert not Path(f"/proc/{pid}").exists()


def test_up_ends_with_the_failure_of_a_service_and_its_last_lines(plugin: dict[str, str], tmp_path: Path) -> None:
    services = {"sim": {"command": "toy serve"}, "arm": {"command": "toy fail"}}
    done = landbridge(plugin, "up", suite_file(tmp_path, **services))
    assert done.returncode == 1
    assert "arm ended with status 1 before it was ready" in done.stderr
    assert "the arm is not there; switch it on" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_up_interrupted_leaves_nothing_behind(plugin: dict[str, str], tmp_path: Path, how: signal.Signals) -> None:
    file = suite_file(tmp_path, one={"command": "toy serve"}, two={"command": "toy serve"})
    command = [sys.executable, "-m", "landbridge.cli", "up", file]
    with subprocess.Popen(command, env=plugin, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = []
        for line in process.stdout:
            if "| pid" in line:
                pids.append(int(line.split()[-1]))
            if "two serves at" in line:
                break
        process.send_signal(how)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert len(pids) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (Suite(), "none are given"),
        (Suite({"a": Service("toy ask {b}"), "b": Service("toy serve")}), r"\{b\} is no service before it"),
        (Suite({"a": Service("toy x", serves=False), "b": Service("toy ask {a}")}), "there are: none"),
    ],
)
def test_up_refuses_a_suite_that_cannot_work_before_it_starts_anything(suite: Suite, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        up(suite)


STATE = TensorSpec("state", (7,), segments=(Segment("qpos", 0, 7, Quantity.JOINT_POSITION, Unit.RADIAN),))
GRIPPER = Segment("gripper", 0, 1, Quantity.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=0.08)
CONTRACT = Contract((STATE,), TensorSpec("action", (1,), segments=(GRIPPER,)), 20.0)


class Env(env_pb2_grpc.EnvServiceServicer):
    """Tells what it is."""

    contract = CONTRACT

    def GetInfo(self, request: Any, context: grpc.ServicerContext) -> env_pb2.EnvInfo:
        return env_pb2.EnvInfo(kind=env_pb2.EnvInfo.KIND_ROBOT, contract=contract_to_proto(self.contract))


class Policy(policy_pb2_grpc.PolicyServiceServicer):
    """Tells what it was trained for."""

    def GetInfo(self, request: Any, context: grpc.ServicerContext) -> policy_pb2.PolicyInfo:
        return policy_pb2.PolicyInfo(contract=contract_to_proto(CONTRACT), reads=["state"])


@pytest.fixture
def address() -> Iterator[str]:
    """One server that is policy and robot alike."""
    services = [
        rpc.Service(add, servicer, module.DESCRIPTOR.services_by_name[name])
        for add, servicer, module, name in [
            (env_pb2_grpc.add_EnvServiceServicer_to_server, Env(), env_pb2, "EnvService"),
            (policy_pb2_grpc.add_PolicyServiceServicer_to_server, Policy(), policy_pb2, "PolicyService"),
        ]
    ]
    server = rpc.Server(services)
    yield server.start()
    server.stop(0)


def test_check_contract_asks_both_and_gives_a_verdict(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "contract", address, address]) == 0
    assert f"ok       the policy at {address} may drive the robot at {address}" in capsys.readouterr().out


def test_check_contract_refuses_a_flipped_gripper(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flipped = replace(GRIPPER, gripper_closed=0.08, gripper_open=0.0)
    monkeypatch.setattr(Env, "contract", replace(CONTRACT, action=replace(CONTRACT.action, segments=(flipped,))))
    assert main(["check", "contract", address, address]) == 1
    out = capsys.readouterr().out
    assert "FAIL     gripper: action, segment 'gripper'" in out and "must not drive the robot" in out


def test_check_contract_reads_a_checkpoints_manifest(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "contract", str(tmp_path), address]) == 1
    assert "it has no manifest.json" in capsys.readouterr().err
    critics = TensorSpec("grasped", (1,), privileged=True)
    contract = replace(CONTRACT, observation=(STATE, critics))
    manifest: dict[str, Any] = {"contract": contract_to_json(contract), "reads": ["state"]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert main(["check", "contract", str(tmp_path), address]) == 0, "what only the critic reads does not matter"
    (tmp_path / "manifest.json").write_text(json.dumps({"contract": manifest["contract"]}))
    assert main(["check", "contract", str(tmp_path), address]) == 1
    assert "privileged: observation 'grasped'" in capsys.readouterr().out
    (tmp_path / "manifest.json").write_text("{}")
    assert main(["check", "contract", str(tmp_path), address]) == 2


def test_check_says_which_address_it_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "env", "localhost"]) == 2
    assert "expected HOST:PORT, got 'localhost'" in capsys.readouterr().err


def test_verdicts_are_printed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    class Verdict:
        def __init__(self, name: str, passed: bool, message: str = "") -> None:
            self.name, self.passed, self.message = name, passed, message

    assert _print_verdicts([Verdict("seeds", True)]) == 0
    assert _print_verdicts([Verdict("seeds", True), Verdict("bounds", False, "NaN was accepted")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       seeds",
        "1 of 1 passed",
        "ok       seeds",
        "FAIL     bounds: NaN was accepted",
        "1 of 2 passed",
    ]
    with pytest.raises(LandbridgeError, match="nothing was checked"):
        _print_verdicts([])


def test_env_list_tells_states_and_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANDBRIDGE_HOME", str(tmp_path))
    assert main(["env", "list"]) == 0
    assert "robosuite    absent          landbridge env install robosuite" in capsys.readouterr().out
