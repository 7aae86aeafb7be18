"""Gymnasium environments behind the env protocol: contract, seeds, ends, replay, and how simulators are found."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from landbridge.errors import FailedPrecondition, InvalidArgument
from sim_server.adapters import make_env, simulators


def choices(*indices: int) -> np.ndarray:
    return np.array(indices, np.float32)[:, None]


class NotANumber(gymnasium.Env):
    """Its second step returns NaN."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.full(2, 0.0 if self.left else np.nan, np.float32), 1.0, False, False, {}


gymnasium.register("LandbridgeNotANumber-v0", NotANumber)


def test_a_choice_is_one_number_bounded_by_the_number_of_choices():
    contract = make_env("gymnasium:CartPole-v1", {}).contract
    assert contract.action.shape == (1,)
    assert (contract.action.low, contract.action.high) == ((0.0,), (1.0,))
    assert contract.observation[0].shape == (4,)
    assert contract.observation[0].low == ()  # CartPole's velocities are unbounded


def test_a_box_keeps_its_bounds_and_actions_outside_are_clipped_here():
    env = make_env("gymnasium:Pendulum-v1", {})
    assert (env.contract.action.low, env.contract.action.high) == ((-2.0,), (2.0,))
    env.reset(1, {})
    clipped = env.step_chunk(np.full((3, 1), 50, np.float32), True)
    env.reset(1, {})
    bounded = env.step_chunk(np.full((3, 1), 2, np.float32), True)
    assert np.array_equal(clipped.observation["state"], bounded.observation["state"])


def test_steps_are_gymnasium_s_own():
    env, reference = make_env("gymnasium:CartPole-v1", {}), gymnasium.make("CartPole-v1")
    assert np.array_equal(env.reset(7, {}).observation["state"], reference.reset(seed=7)[0])
    result = env.step_chunk(choices(0, 1, 1), False)
    for action in (0, 1, 1):
        observation, *_ = reference.step(action)
    assert np.array_equal(result.observation["state"], observation)
    assert result.rewards.tolist() == [1, 1, 1]
    assert result.evaluated.all()


def test_a_discrete_state_is_one_hot():
    env = make_env("gymnasium:FrozenLake-v1", {})
    assert env.reset(0, {}).observation["state"].tolist() == [1.0] + [0.0] * 15


def test_an_episode_depends_on_its_seed_only():
    env = make_env("gymnasium:CartPole-v1", {})
    first = env.reset(3, {}).observation["state"]
    env.step_chunk(choices(1, 1, 1), True)
    other = env.reset(4, {}).observation["state"]
    assert np.array_equal(first, env.reset(3, {}).observation["state"])
    assert not np.array_equal(first, other)


def test_falling_terminates_within_a_chunk_and_the_rest_is_not_executed():
    env = make_env("gymnasium:CartPole-v1", {})
    env.reset(0, {})
    result = env.step_chunk(choices(*[1] * 40), True)
    assert result.terminated
    assert not result.truncated
    assert 5 < result.executed < 15
    assert result.rewards[result.executed :].sum() == 0
    assert not result.evaluated[result.executed :].any()


def test_the_time_limit_truncates_and_does_not_terminate():
    env = make_env("gymnasium:Pendulum-v1", {"max_episode_steps": 5})
    assert env.max_episode_steps == 5
    env.reset(0, {})
    result = env.step_chunk(np.zeros((8, 1), np.float32), True)
    assert (result.truncated, result.terminated, result.executed) == (True, False, 5)


def test_a_finished_or_never_started_episode_cannot_be_stepped():
    env = make_env("gymnasium:Pendulum-v1", {"max_episode_steps": 2})
    with pytest.raises(FailedPrecondition, match="not been reset"):
        env.step_chunk(np.zeros((1, 1)), True)
    env.reset(0, {})
    env.step_chunk(np.zeros((2, 1)), True)
    with pytest.raises(FailedPrecondition, match="ended"):
        env.step_chunk(np.zeros((1, 1)), True)


def test_nan_in_an_action_is_named_and_moves_nothing():
    env = make_env("gymnasium:CartPole-v1", {})
    env.reset(0, {})
    with pytest.raises(ValueError, match=r"actions\[1\]\[0\] is nan") as raised:
        env.step_chunk(np.array([[0], [np.nan]], np.float32), True)
    assert isinstance(raised.value, InvalidArgument)
    assert env.step_chunk(choices(0), True).episode_step == 1


def test_nan_in_a_state_abandons_the_episode():
    env = make_env("gymnasium:LandbridgeNotANumber-v0", {})
    env.reset(0, {})
    result = env.step_chunk(choices(0, 0, 0), True)
    assert (result.abandoned, result.terminated, result.truncated, result.executed) == (True, False, False, 2)
    assert "not finite" in result.message


def test_success_is_a_return_reached_where_the_option_says_so():
    env = make_env("gymnasium:CartPole-v1", {"success_return": 3})
    env.reset(0, {})
    result = env.step_chunk(choices(0, 1, 0, 1), True)
    assert result.success.tolist() == [False, False, True, True]
    assert result.success_once


def test_a_saved_state_continues_exactly_in_another_environment():
    env, other = make_env("gymnasium:CartPole-v1", {}), make_env("gymnasium:CartPole-v1", {})
    env.reset(5, {})
    env.step_chunk(choices(0, 1), True)
    env.step_chunk(choices(1), True)
    saved = env.save_state()
    expected = env.step_chunk(choices(0, 1, 0), True)
    other.restore_state(saved)
    result = other.step_chunk(choices(0, 1, 0), True)
    assert np.array_equal(result.observation["state"], expected.observation["state"])
    assert result.episode_step == expected.episode_step


def test_a_state_of_another_task_or_of_no_task_is_refused():
    pendulum = make_env("gymnasium:Pendulum-v1", {})
    pendulum.reset(0, {})
    cartpole = make_env("gymnasium:CartPole-v1", {})
    with pytest.raises(InvalidArgument, match="task CartPole-v1 is expected, Pendulum-v1"):
        cartpole.restore_state(pendulum.save_state())
    for nonsense in (b"", b"\xff\xfe", b"[]\n", b"{}\n123"):
        with pytest.raises(InvalidArgument):
            cartpole.restore_state(nonsense)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(InvalidArgument, match=r"did you mean 'gymnasium'\? there are \['gymnasium', 'maniskill'"):
        make_env("gymnasum:CartPole-v1", {})
    with pytest.raises(InvalidArgument, match="expected SIMULATOR:TASK"):
        make_env("CartPole-v1", {})
    with pytest.raises(InvalidArgument, match="max_episode_steps"):
        make_env("gymnasium:CartPole-v1", {"max_epsiode_steps": 3})
    with pytest.raises(InvalidArgument, match="Nowhere"):
        make_env("gymnasium:Nowhere-v0", {})
    with pytest.raises(InvalidArgument, match="Discrete"):
        make_env("gymnasium:Blackjack-v1", {})  # its observation is a tuple


def test_the_simulators_known_are_listed_without_importing_any():
    assert simulators()["maniskill"] == "sim_server.adapters.maniskill:make"
