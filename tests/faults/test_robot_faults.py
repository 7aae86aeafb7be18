"""The robot process dies, the bridge dies: nothing moves on, nothing is left running."""

import time

import numpy as np
import psutil
import pytest
from robot_parts import bridge, holding, needs_cell

from landbridge.errors import LandbridgeError

pytestmark = needs_cell


def test_kill_9_of_the_cell_is_a_fault_and_the_episode_is_lost(tmp_path):
    with bridge(tmp_path) as robot, holding(robot) as session:
        session.reset([0], [1])
        session.step(np.array([[0.0, 0.05, 0.0, 0.08]], np.float32))
        robot.cell().kill()
        deadline = time.monotonic() + 5.0
        lost = False
        while not lost and time.monotonic() < deadline:
            try:
                lost = bool(session.step(np.array([[0.0, 0.01, 0.0, 0.08]], np.float32)).abandoned[0])
            except LandbridgeError:
                lost = True
        assert lost
        assert robot.wait_mode("FAULT").reason or robot.mode() == "HOLD"
        with pytest.raises(LandbridgeError):
            session.reset([0], [1])


def test_the_bridges_end_takes_the_cell_with_it(tmp_path):
    with bridge(tmp_path) as robot:
        cell = robot.cell()
        robot.process.kill()
        _, alive = psutil.wait_procs([cell], timeout=5.0)
        assert not alive


def test_sigterm_ends_bridge_and_cell_in_time(tmp_path):
    with bridge(tmp_path) as robot:
        cell = robot.cell()
        began = time.monotonic()
        robot.process.terminate()
        assert robot.process.wait(5.0) == 0
        _, alive = psutil.wait_procs([cell], timeout=2.0)
        assert not alive and time.monotonic() - began < 5.0
