"""Options of ``landbridge robot serve`` that reach the cell."""

import argparse

import pytest

from landbridge import config
from landbridge.errors import InvalidArgument
from robot_bridge.cell.config import CellConfig, ProcessConfig
from robot_bridge.serve import RobotServeConfig, cell_flags


def test_what_is_chosen_about_the_cell_reaches_its_process() -> None:
    words = ["cell=true", "simulated.observation_latency=0", "simulated.workspace_low=0.3,-0.5,0.01"]
    chosen = config.load(RobotServeConfig, None, words).simulated
    assert chosen == CellConfig(observation_latency=0.0, workspace_low=(0.3, -0.5, 0.01))
    parser = argparse.ArgumentParser()
    config.add_arguments(parser, ProcessConfig)
    assert config.from_args(ProcessConfig, parser.parse_args(cell_flags(chosen))).cell == chosen


def test_a_real_robot_cannot_be_chosen() -> None:
    words = ["command=tcp://127.0.0.1:1", "state=tcp://127.0.0.1:2", "simulated.cube_bias=0"]
    with pytest.raises(InvalidArgument, match="as it is"):
        config.load(RobotServeConfig, None, words)
