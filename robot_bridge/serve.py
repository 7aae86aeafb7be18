"""Serve a robot: driver, safety layer, EnvService and RobotService on one port, until told to stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from landbridge import environments, rpc, telemetry
from landbridge.config import option, to_mapping
from landbridge.env.service import EnvServicer
from landbridge.errors import InvalidArgument
from landbridge.process import ProcessGroup, announce_ready, read_ready, watch_parent
from robot_bridge.cell.config import CellConfig
from robot_bridge.drivers.zeromq import ZeroMQDriver
from robot_bridge.environment import RobotConfig, RobotEnvironment
from robot_bridge.robot_service import RobotServicer

CELL_START = 60.0
STOP_GRACE = 0.5


@dataclass(frozen=True)
class RobotServeConfig:
    """Options of ``landbridge robot serve``."""

    command: str = option("", "ZeroMQ endpoint of the robot's command socket, e.g. tcp://127.0.0.1:5555")
    state: str = option("", "ZeroMQ endpoint of its state socket")
    cell: bool = option(False, "start the MuJoCo cell as the robot, instead of connecting to one")
    cell_seed: int = option(0, "the cell's own: with another, the same episode seeds lay out other scenes", minimum=0)
    auto_arm: bool = option(False, "with --cell only: a reset arms a disarmed robot; a real one is armed by a person")
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50054, "port, 0 for any free one", minimum=0, maximum=65535)
    robot: RobotConfig = option(RobotConfig())
    simulated: CellConfig = option(CellConfig())
    """What the cell of ``--cell`` is like: latencies, noise, controller."""

    def __post_init__(self) -> None:
        if self.cell == bool(self.command or self.state) or bool(self.command) != bool(self.state):
            raise ValueError("give --command and --state of a robot, or --cell")
        if not self.cell and self.simulated != CellConfig():
            raise ValueError("simulated is for --cell: a real robot is as it is")
        if self.auto_arm and not self.cell:
            raise ValueError("auto_arm is for --cell: a real robot is armed by RobotService.Arm, after somebody looked")


def cell_flags(simulated: CellConfig) -> list[str]:
    """The cell process's command line for ``simulated``."""
    words = []
    for name, value in to_mapping(simulated).items():
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words += [f"--cell.{name.replace('_', '-')}={text}"]  # joined by =: a value may begin with a minus
    return words


@contextlib.contextmanager
def endpoints(config: RobotServeConfig) -> Iterator[tuple[str, str]]:
    """(command, state) endpoints of the robot; the cell's process lives as long as the context."""
    if not config.cell:
        yield config.command, config.state
        return
    python = environments.python_for("robosuite")
    with ProcessGroup() as group:
        words = ["-m", "robot_bridge.cell", "--seed", str(config.cell_seed), "--speed", str(config.robot.speed)]
        cell = group.start("cell", [python, *words, *cell_flags(config.simulated)])
        ready = read_ready(cell, CELL_START)
        yield str(ready["address"]), str(ready["state_endpoint"])


def serve(config: RobotServeConfig) -> int:
    """Run until SIGINT or SIGTERM; the robot is left stopped."""
    if config.robot.speed != 1.0 and not config.cell:
        raise InvalidArgument("robot.speed is for the cell only: a real robot's clock cannot be turned", field="speed")
    watch_parent()
    stopped = rpc.stop_event()
    with endpoints(config) as (command, state):
        driver = ZeroMQDriver(command, state)
        try:
            environment = RobotEnvironment(driver, config.robot, auto_arm=config.auto_arm)
            try:
                _serve(config, environment, driver, stopped)
            finally:
                environment.close()
        finally:
            driver.close()
    telemetry.shutdown()
    return 0


def _serve(
    config: RobotServeConfig, environment: RobotEnvironment, driver: ZeroMQDriver, stopped: threading.Event
) -> None:
    servicer = EnvServicer(environment, can_save_state=False)
    robot = RobotServicer(environment, driver, servicer.sessions)
    server = rpc.Server([servicer.service(), robot.service()], host=config.host, port=config.port)
    server.start()
    announce_ready(server.address, task=config.robot.task)
    stopped.wait()
    server.stop(STOP_GRACE)
    servicer.close()
