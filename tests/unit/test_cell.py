"""The MuJoCo cell in virtual time: scenes, latency, noise, referee, and that the task can be done in it."""

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("robosuite")

from robot_bridge.cell.config import CellConfig
from robot_bridge.cell.controller import PERIOD
from robot_bridge.cell.model import HOME, MAX_WIDTH
from robot_bridge.cell.simulation import GOAL_RADIUS, CellSimulation
from sim_server.experts import make_expert

STEP = 0.05


@pytest.fixture(scope="module")
def ideal():
    return CellSimulation(CellConfig.ideal())


@pytest.fixture(scope="module")
def real():
    return CellSimulation()


def state_of(reading):
    return np.concatenate(
        [
            reading.joint_position,
            reading.joint_velocity,
            reading.tool_position,
            [reading.gripper_width],
            reading.cube_position,
            reading.goal_position,
        ]
    ).astype(np.float32)


def play(cell, seed, steps=60):
    """The simulator's expert at 20 Hz, each action a displacement of the measured tool."""
    expert = make_expert("PickCube-v1")
    expert.reset()
    reading = cell.reset(seed)
    for step in range(steps):
        action = expert.act(state_of(reading))
        cell.command(reading.tool_position + action[:3], float(action[3]))
        cell.advance(STEP)
        if cell.verdict().success:
            return step + 1
        reading = cell.observe()
    return None


def test_the_expert_of_the_simulator_does_the_task_with_noise_and_latency(real):
    lengths = [play(real, seed) for seed in range(20)]
    assert sum(length is not None for length in lengths) >= 19, lengths


def test_a_seed_is_a_scene_and_an_episode_bit_for_bit(real):
    def trace():
        reading = real.reset(11)
        rows = [state_of(reading)]
        for _ in range(8):
            real.command(reading.tool_position + [0.02, 0.01, -0.03], 0.05)
            real.advance(STEP)
            reading = real.observe()
            rows.append(state_of(reading))
        return np.array(rows)

    first = trace()
    play(real, 3, steps=5)
    np.testing.assert_array_equal(first, trace())
    assert not np.array_equal(state_of(real.reset(12))[18:24], first[0, 18:24])


def test_scenes_are_those_of_the_training_task(ideal):
    readings = [ideal.reset(seed) for seed in range(60)]
    cubes = np.array([r.cube_position for r in readings])
    goals = np.array([r.goal_position for r in readings])
    for where in (cubes, goals):
        assert (np.abs(where[:, :2] - [0.615, 0.0]) <= 0.1 + 1e-6).all()
        assert np.ptp(where[:, 0]) > 0.15 and np.ptp(where[:, 1]) > 0.15
    np.testing.assert_allclose(cubes[:, 2], 0.02, atol=1e-3)
    assert goals[:, 2].min() >= 0.02 and 0.2 < goals[:, 2].max() <= 0.32
    np.testing.assert_allclose(readings[0].joint_position, HOME, atol=1e-6)
    np.testing.assert_allclose(readings[0].tool_position, [0.615, 0.0, 0.167], atol=0.02)


def test_a_command_takes_effect_after_its_latency_and_no_sooner():
    cell = CellSimulation(CellConfig(command_latency=0.04, observation_latency=0.0, encoder_noise=0.0, cube_bias=0.0))
    start = cell.reset(0).tool_position
    cell.command(start + [0.0, 0.0, 0.05], MAX_WIDTH)
    cell.advance(0.036)
    assert np.abs(cell.observe().tool_position - start).max() < 1e-4
    cell.advance(0.1)
    assert cell.observe().tool_position[2] - start[2] > 0.005


def test_a_reading_is_as_old_as_the_latency_says():
    late, now = (CellSimulation(CellConfig(observation_latency=lag, encoder_noise=0.0)) for lag in (0.04, 0.0))
    for cell in (late, now):
        start = cell.reset(0).tool_position
        cell.command(start + [0.0, 0.0, 0.06], MAX_WIDTH)
    history = []
    for _ in range(30):
        for cell in (late, now):
            cell.advance(PERIOD)
        history.append(now.observe().tool_position)
    np.testing.assert_allclose(late.observe().tool_position, history[-1 - round(0.04 / PERIOD)], atol=1e-9)


def test_noise_of_the_cubes_reading_is_an_offset_an_episode_and_a_jitter_a_frame(real, ideal):
    errors, jitters = [], []
    for seed in range(40):
        true = ideal.reset(seed).cube_position
        real.reset(seed)
        frames = []
        for _ in range(6):
            real.advance(STEP)
            frames.append(real.observe().cube_position - true)
        errors.append(np.mean(frames, axis=0))
        jitters.append(np.std(frames, axis=0))
    assert 0.0010 < np.std(errors) < 0.0020
    assert 0.0002 < np.mean(jitters) < 0.0008


def test_the_tool_follows_a_target_without_overshooting_much(ideal):
    start = ideal.reset(0).tool_position
    goal = start + [0.0, 0.06, 0.04]
    ideal.command(goal, MAX_WIDTH)
    heights = []
    for _ in range(100):
        ideal.advance(0.01)
        heights.append(ideal.observe().tool_position)
    heights = np.array(heights)
    assert np.linalg.norm(heights[-1] - goal) < 0.003
    assert heights[:, 1].max() < goal[1] + 0.005 and heights[:, 2].max() < goal[2] + 0.005
    share = (heights[:, 1] - start[1]) / 0.06
    assert share[4] < 0.5 and share[49] > 0.9, "the arm has inertia, and gets there"


def test_success_is_near_and_still_and_never_at_reset(ideal):
    ideal.reset(5)
    ideal._goal[:] = ideal.verdict().cube_position  # the cube lies at the goal before anything was commanded
    assert not ideal.verdict().success and not ideal.verdict().success_once
    ideal.advance(0.2)
    assert not ideal.verdict().success, "an episode begins with its first command"
    ideal.command(ideal.observe().tool_position, MAX_WIDTH)
    ideal.advance(0.1)
    assert ideal.verdict().success and ideal.verdict().distance <= GOAL_RADIUS


def test_what_is_not_finite_never_reaches_the_controller(ideal):
    start = ideal.reset(6).tool_position
    before = ideal.counters["target_not_finite"]
    for position, width in (([np.nan, 0, 0.2], 0.0), ([0.6, 0, np.inf], 0.0), ([0.6, 0, 0.2], np.nan)):
        assert not ideal.command(np.array(position), width)
    ideal.advance(0.2)
    assert ideal.counters["target_not_finite"] == before + 3
    np.testing.assert_allclose(ideal.observe().tool_position, start, atol=1e-3)


def test_targets_outside_the_workspace_are_clamped_and_counted(ideal):
    ideal.reset(7)
    before = ideal.counters["target_clamped"]
    ideal.command(np.array([0.6, 0.0, -0.3]), MAX_WIDTH)
    ideal.advance(1.0)
    assert ideal.counters["target_clamped"] == before + 1
    assert ideal.observe().tool_position[2] > -0.002


def test_braking_stops_the_tool_and_voids_what_was_on_its_way():
    cell = CellSimulation()
    start = cell.reset(8).tool_position
    cell.command(start + [0.0, 0.2, 0.1], MAX_WIDTH)
    cell.advance(0.15)
    cell.brake()
    cell.advance(0.4)
    stopped = cell.observe().tool_position
    cell.advance(0.4)
    assert not cell.moving()
    assert np.abs(cell.observe().tool_position - stopped).max() < 2e-3
    assert np.linalg.norm(stopped - start) < 0.15
