"""The ManiSkill environment as a policy meets it: contract, ends, noise, refusals, replay, experts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("mani_skill")

from landbridge.errors import FailedPrecondition, InvalidArgument
from sim_server.adapters import make_env
from sim_server.adapters.maniskill import ManiSkillEnv
from sim_server.experts import make_expert

CUBE, GOAL, TCP, WIDTH, QVEL = slice(18, 21), slice(21, 24), slice(14, 17), 17, slice(7, 14)


def pick_cube(**options) -> ManiSkillEnv:
    return make_env("maniskill:PickCube-v1", options)


def still(count: int) -> np.ndarray:
    return np.tile(np.array([0, 0, 0, 0.08], np.float32), (count, 1))


def wander(count: int, seed: int = 0) -> np.ndarray:
    actions = np.random.default_rng(seed).uniform(-0.03, 0.03, (count, 4))
    actions[:, 3] = 0.08
    return actions.astype(np.float32)


def run_expert(env: ManiSkillEnv, task: str, seed: int, max_step: float = 0.06):
    """The last result of an episode that the expert plays step by step."""
    expert = make_expert(task, max_step)
    expert.reset()
    state = env.reset(seed, {}).observation["state"]
    while True:
        result = env.step_chunk(expert.act(state)[None], True)
        if result.terminated or result.truncated:
            return result
        state = result.observation["state"]


@pytest.fixture(scope="module")
def env() -> ManiSkillEnv:
    return pick_cube()


def test_the_contract_names_every_number_with_unit_and_frame(env):
    state, privileged = env.contract.observation
    covered = [i for segment in state.segments for i in range(segment.start, segment.start + segment.size)]
    assert covered == list(range(24))
    assert privileged.privileged
    assert [spec.name for spec in env.contract.observed()] == ["state"]
    assert env.contract.action.high == (0.1, 0.1, 0.1, 0.08)
    assert env.contract.control_rate_hz == 20


def test_positions_are_in_the_base_frame_which_stands_behind_the_table_s_origin(env):
    state = env.reset(0, {}).observation["state"]
    assert 0.5 < state[CUBE][0] < 0.75  # the base is 0.615 m behind the world's origin
    assert state[CUBE][2] == pytest.approx(0.02, abs=1e-4)
    assert state[WIDTH] == pytest.approx(0.08)


def test_a_displacement_moves_the_tool_that_way_and_a_width_is_the_gripper_s(env):
    before = env.reset(0, {}).observation["state"]
    action = np.array([0.0, 0.02, 0.01, 0.03], np.float32)
    after = env.step_chunk(np.tile(action, (4, 1)), False).observation["state"]
    moved = after[TCP] - before[TCP]
    assert moved[1] > 0.02
    assert moved[2] > 0.01
    assert abs(moved[0]) < 0.005
    closed = env.step_chunk(np.tile(np.array([0, 0, 0, 0.03], np.float32), (12, 1)), False).observation["state"]
    assert closed[WIDTH] == pytest.approx(0.03, abs=2e-3)


def test_the_time_limit_truncates_and_the_last_step_is_evaluated():
    env = pick_cube(max_episode_steps=6)
    env.reset(0, {})
    env.step_chunk(still(4), False)
    result = env.step_chunk(still(4), False)
    assert (result.truncated, result.terminated, result.executed, result.episode_step) == (True, False, 2, 6)
    assert result.evaluated.tolist() == [False, True, False, False]


def test_a_finished_or_never_started_episode_cannot_be_stepped():
    env = pick_cube(max_episode_steps=4)
    with pytest.raises(FailedPrecondition, match="not been reset"):
        env.step_chunk(still(1), False)
    env.reset(0, {})
    env.step_chunk(still(4), False)
    with pytest.raises(FailedPrecondition, match="ended"):
        env.step_chunk(still(1), False)


def test_success_terminates_unless_the_option_says_otherwise(env):
    result = run_expert(env, "PickCube-v1", 1)
    assert (result.terminated, result.success_once, result.success_at_end) == (True, True, True)
    assert result.rewards[0] == 1
    going_on = run_expert(pick_cube(terminate_on_success=False), "PickCube-v1", 1)
    assert (going_on.terminated, going_on.truncated, going_on.success_once) == (False, True, True)


def test_nothing_is_a_success_at_reset_and_sparse_reward_is_success():
    env = pick_cube(reward="sparse")
    env.reset(0, {})
    result = env.step_chunk(still(1), True)
    assert not result.success_once
    assert result.rewards[0] == 0
    assert run_expert(env, "PickCube-v1", 1).rewards[0] == 1


@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 3)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_action_that_is_no_number_is_named_and_moves_nothing(env, row, column, value):
    before = env.reset(0, {}).observation["state"]
    actions = still(4)
    actions[row, column] = value
    with pytest.raises(ValueError, match=rf"actions\[{row}\]\[{column}\] is {value}") as raised:
        env.step_chunk(actions, False)
    assert isinstance(raised.value, InvalidArgument)
    assert np.array_equal(env._observe(env._read())["state"], before)


def test_nan_in_the_simulator_abandons_the_episode_and_the_next_is_sound():
    env = pick_cube()
    expected = env.reset(0, {}).observation["state"]
    env._cube.set_linear_velocity(np.full(3, np.nan, np.float32))
    result = env.step_chunk(still(4), False)
    assert (result.abandoned, result.terminated, result.truncated) == (True, False, False)
    assert "not finite" in result.message
    with pytest.raises(FailedPrecondition, match="not finite"):
        env.step_chunk(still(1), False)
    assert np.array_equal(env.reset(0, {}).observation["state"], expected)
    assert not env.step_chunk(still(4), False).abandoned


def test_two_environments_in_one_process_do_not_disturb_each_other(env):
    alone = []
    env.reset(5, {})
    for seed in range(4):
        alone.append(env.step_chunk(wander(4, seed), False).observation["state"])
    other = pick_cube()
    env.reset(5, {})
    for seed in range(4):
        other.reset(seed, {})
        together = env.step_chunk(wander(4, seed), False).observation["state"]
        other.step_chunk(wander(4, seed + 9), True)
        assert np.array_equal(together, alone[seed])


def test_position_noise_is_one_error_an_episode_and_jitter_one_a_step():
    exact, noisy, jittery = pick_cube(), pick_cube(position_noise=0.01), pick_cube(position_jitter=0.005)
    errors, jitters = [], []
    for seed in range(30):
        truth = exact.reset(seed, {}).observation["state"]
        seen = noisy.reset(seed, {}).observation["state"]
        assert np.array_equal(np.delete(seen, np.r_[CUBE]), np.delete(truth, np.r_[CUBE]))
        errors.append(seen[CUBE] - truth[CUBE])
        jitters.append(jittery.reset(seed, {}).observation["state"][CUBE] - truth[CUBE])
        moved = noisy.step_chunk(still(3), False).observation["state"][CUBE]
        at_rest = exact.step_chunk(still(3), False).observation["state"][CUBE]
        assert moved - at_rest == pytest.approx(errors[-1], abs=1e-6)
        jitters.append(jittery.step_chunk(still(3), False).observation["state"][CUBE] - at_rest)
    assert 0.007 < np.std(errors) < 0.013
    assert 0.0035 < np.std(jitters) < 0.0065
    assert not np.array_equal(jitters[0], jitters[1])


def test_velocity_noise_touches_the_velocities_only():
    exact, noisy = pick_cube(), pick_cube(velocity_noise=0.1)
    difference = noisy.reset(0, {}).observation["state"] - exact.reset(0, {}).observation["state"]
    assert np.abs(difference[QVEL]).min() > 0
    assert not np.delete(difference, np.r_[QVEL]).any()


def test_noise_comes_from_the_seed_and_not_from_the_chunks():
    options = {"position_noise": 0.01, "position_jitter": 0.01, "velocity_noise": 0.1, "action_gain": (0.5, 1.5)}
    one, other = pick_cube(**options, action_delay_steps=(0, 3)), pick_cube(**options, action_delay_steps=(0, 3))
    for seed in range(4):
        one.reset(seed, {})
        other.reset(100 + seed, {})  # another history
        other.reset(seed, {})
        actions = wander(12, seed)
        whole = one.step_chunk(actions, False).observation["state"]
        for chunk in np.split(actions, 4):
            cut = other.step_chunk(chunk, True).observation["state"]
        assert np.array_equal(whole, cut)


def test_delayed_commands_take_effect_that_many_steps_later():
    env, late = pick_cube(), pick_cube(action_delay_steps=(2, 2))
    actions = wander(8)
    env.reset(0, {})
    late.reset(0, {})
    expected = env.step_chunk(np.concatenate([still(2), actions[:6]]), False).observation["state"]
    for chunk in np.split(actions, 2):
        seen = late.step_chunk(chunk, False).observation["state"]
    assert np.array_equal(seen, expected)


def test_gain_scales_the_displacement_and_not_the_width():
    env, strong = pick_cube(), pick_cube(action_gain=(2, 2), action_limit=0.03)  # the limit is on what is asked for
    env.reset(0, {})
    strong.reset(0, {})
    doubled = wander(4)
    doubled[:, :3] *= 2
    expected = env.step_chunk(doubled, False).observation["state"]
    assert np.array_equal(strong.step_chunk(wander(4), False).observation["state"], expected)


def test_a_tighter_goal_takes_longer_and_ends_closer():
    def distance(result):
        return float(np.linalg.norm(result.observation["state"][CUBE] - result.observation["state"][GOAL]))

    loose, tight = (run_expert(pick_cube(goal_tolerance=share), "PickCube-v1", 5) for share in (1.0, 0.1))
    assert loose.success_once and 0.0025 < distance(loose) <= 0.025
    assert tight.success_once == (distance(tight) <= 0.0025) and tight.episode_step > loose.episode_step


def test_success_that_has_to_last_counts_when_it_has_lasted():
    first, lasting = (run_expert(pick_cube(hold_steps=steps), "PickCube-v1", 5) for steps in (1, 4))
    assert first.success_once and lasting.success_once
    assert lasting.episode_step >= first.episode_step + 3


def test_the_expert_waits_for_a_slow_gripper():
    slow = {"gripper_speed": (0.2, 0.2), "action_delay_steps": (1, 1)}
    assert sum(run_expert(pick_cube(**slow), "PickCube-v1", seed).success_once for seed in range(5)) >= 4


def test_a_slow_gripper_follows_at_its_speed_and_goes_on_in_the_next_chunk():
    env, slow = pick_cube(), pick_cube(gripper_speed=(0.2, 0.2))  # 10 mm a control step
    closing, ramp = still(5), still(5)
    closing[:, 3] = [0, 0, 0, 0.08, 0.08]
    ramp[:, 3] = [0.07, 0.06, 0.05, 0.06, 0.07]
    env.reset(0, {})
    slow.reset(0, {})
    expected = env.step_chunk(ramp, False).observation["state"]
    slow.step_chunk(closing[:2], False)
    assert np.array_equal(slow.step_chunk(closing[2:], False).observation["state"], expected)


def test_friction_and_mass_of_the_cube_change_the_physics_and_only_when_asked():
    plain, slippery, heavy = pick_cube(), pick_cube(cube_friction=(0, 0)), pick_cube(cube_mass_scale=(40, 40))
    lifted = run_expert(plain, "PickCube-v1", 2)
    assert lifted.success_once
    assert plain._cube.collision_shapes[0].physical_material.static_friction == pytest.approx(0.3)
    slid = run_expert(slippery, "PickCube-v1", 2)
    assert slippery._cube.collision_shapes[0].physical_material.static_friction == 0
    assert not np.array_equal(lifted.observation["state"], slid.observation["state"])
    assert not run_expert(heavy, "PickCube-v1", 2).success_once
    assert heavy._cube.mass == pytest.approx(40 * 0.064, rel=1e-3)


def test_the_action_limit_is_the_contract_s_bound_and_clips():
    env, limited = pick_cube(), pick_cube(action_limit=0.02)
    assert limited.contract.action.high == (0.02, 0.02, 0.02, 0.08)
    env.reset(0, {})
    limited.reset(0, {})
    expected = env.step_chunk(np.clip(wander(4), [-0.02] * 3 + [0], [0.02] * 3 + [0.08]), False)
    result = limited.step_chunk(wander(4), False)
    assert np.array_equal(result.observation["state"], expected.observation["state"])


def test_a_saved_state_continues_exactly_also_past_an_unevaluated_success():
    options = {"position_jitter": 0.002, "action_delay_steps": (1, 1), "gripper_speed": (0.5, 0.5), "hold_steps": 3}
    env, other = pick_cube(**options), pick_cube(**options)
    expert = make_expert("PickCube-v1")
    expert.reset()
    state = env.reset(3, {}).observation["state"]
    for _ in range(9):
        state = env.step_chunk(expert.act(state)[None].repeat(2, axis=0), False).observation["state"]
    saved = env.save_state()
    assert np.array_equal(other.restore_state(saved)["state"], state)
    actions = wander(4)
    one, two = env.step_chunk(actions, True), other.step_chunk(actions, True)
    for name, value in one.observation.items():
        assert np.array_equal(value, two.observation[name])
    assert one.rewards.tolist() == two.rewards.tolist()
    assert (one.success_once, one.episode_step) == (two.success_once, two.episode_step)


def test_a_state_of_other_options_or_of_no_environment_is_refused(env):
    env.reset(0, {})
    with pytest.raises(InvalidArgument, match="saved with options"):
        pick_cube(action_limit=0.02).restore_state(env.save_state())
    for nonsense in (b"", b"{}\n", b'{"adapter": "maniskill"}\nabc'):
        with pytest.raises(InvalidArgument):
            env.restore_state(nonsense)


def test_unknown_tasks_options_and_reset_options_are_answered_with_the_nearest(env):
    with pytest.raises(InvalidArgument, match=r"did you mean 'PickCube-v1'"):
        make_env("maniskill:PickCub-v1", {})
    with pytest.raises(InvalidArgument, match=r"did you mean 'options\.position_noise'"):
        pick_cube(position_nois=0.1)
    with pytest.raises(InvalidArgument, match="low, high"):
        pick_cube(action_gain=(2.0, 1.0))
    with pytest.raises(InvalidArgument, match="reset options"):
        env.reset(0, {"color": 1})


def test_geometry_runs_from_the_base_to_the_tool(env):
    state = env.reset(0, {}).observation["state"]
    geometry = env.debug_geometry()
    assert geometry["joints"].shape[1] == 3
    assert np.allclose(geometry["joints"][0], 0, atol=1e-6)
    assert np.array_equal(geometry["joints"][-1], state[TCP])
    assert np.array_equal(geometry["cube"], state[CUBE])
    assert np.array_equal(geometry["goal"], state[GOAL])
    lengths = [float(np.linalg.norm(b - a)) for a, b in itertools.pairwise(geometry["joints"])]
    assert max(lengths) < 0.5
    with pytest.raises(NotImplementedError):
        env.render()


@pytest.mark.parametrize(("task", "longest"), [("PickCube-v1", 26), ("PushCube-v1", 18), ("PullCube-v1", 26)])
def test_the_expert_solves_its_task(task, longest):
    env = make_env(f"maniskill:{task}", {})
    results = [run_expert(env, task, seed) for seed in range(1000, 1012)]
    assert sum(result.terminated for result in results) >= 11
    assert np.mean([result.episode_step for result in results]) < longest
