"""What the tests of the bridge share: the real cell behind `landbridge robot serve`, and its clients."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from landbridge import environments, rpc
from landbridge.env.client import EnvClient
from landbridge.process import Child, ProcessGroup
from landbridge.v1 import robot_pb2 as pb
from landbridge.v1 import robot_pb2_grpc

needs_cell = pytest.mark.skipif(
    environments.state("robosuite") != "ready", reason="`landbridge env install robosuite` builds what the cell needs"
)
START = 90.0


@dataclass
class Bridge:
    """A running bridge with its cell."""

    address: str
    process: Child
    stub: robot_pb2_grpc.RobotServiceStub

    def state(self) -> pb.SafetyState:
        return rpc.call(self.stub.GetSafetyState, pb.GetSafetyStateRequest(), 5.0)

    def mode(self) -> str:
        return pb.SafetyMode.Name(self.state().mode).removeprefix("SAFETY_MODE_")

    def arm(self, session_id: str, **words: bool) -> None:
        rpc.call(self.stub.Arm, pb.ArmRequest(session_id=session_id, **words), 5.0)

    def stop(self, reason: str = "test") -> None:
        rpc.call(self.stub.EmergencyStop, pb.EmergencyStopRequest(reason=reason), 5.0)

    def cell(self) -> psutil.Process:
        """The cell's process."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        (cell,) = [c for c in children if "robot_bridge.cell" in " ".join(c.cmdline())]
        return cell

    def wait_mode(self, wanted: str, seconds: float = 5.0) -> pb.SafetyState:
        deadline = time.monotonic() + seconds
        while self.mode() != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        state = self.state()
        assert pb.SafetyMode.Name(state.mode).endswith(wanted), state
        return state


@contextlib.contextmanager
def bridge(folder: Path, *flags: str) -> Iterator[Bridge]:
    command = [sys.executable, "-m", "landbridge.cli", "robot", "serve", "--cell", "--port", "0", *flags]
    with ProcessGroup(log_folder=folder) as group:
        process = group.start("robot", command)
        address = process.wait_serving(START)
        with rpc.channel(address) as link:
            yield Bridge(address, process, robot_pb2_grpc.RobotServiceStub(link))


@contextlib.contextmanager
def holding(robot: Bridge) -> Iterator:
    """A session that holds the robot, armed."""
    with EnvClient(robot.address, 20.0) as client, client.open(1) as session:
        robot.arm(session.id, clear_stop=True, clear_fault=True)
        yield session
