"""FlowPolicy: what acts is what is trained, whoever shares the batch."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from flow_parts import CONTRACT, STATISTICS, make_policy, noise_for, observations, sample
from torch import Tensor

from landbridge.errors import InvalidArgument
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, NoiseKind, Statistics, from_bounds
from landbridge.policies.networks import MLP, VelocityNetwork
from landbridge.policies.protocol import SampleMode

KINDS = list(NoiseKind)


def some(rows: dict[str, Tensor], index: slice) -> dict[str, Tensor]:
    return {name: value[index] for name, value in rows.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_evaluating_the_same_batch_gives_the_same_log_probabilities_to_the_bit(kind: NoiseKind) -> None:
    policy = make_policy(kind)
    drawn = sample(policy, 37)
    again = policy.evaluate(observations(37), drawn.trace)
    assert drawn.log_prob.shape == again.log_prob.shape == again.entropy.shape == (37, 4)
    assert again.log_prob.dtype == torch.float32
    assert torch.equal(drawn.log_prob, again.log_prob)
    assert again.value is not None and drawn.value is not None and torch.equal(drawn.value, again.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 5, 16])
def test_evaluating_in_other_batches_agrees_to_float_rounding(kind: NoiseKind, size: int) -> None:
    policy = make_policy(kind, hidden=(128, 128, 128))
    obs, drawn = observations(48), sample(policy, 48)
    for first in range(0, 48, size):
        rows = slice(first, first + size)
        again = policy.evaluate(some(obs, rows), some(drawn.trace, rows), with_value=False)
        assert float((again.log_prob.detach() - drawn.log_prob[rows]).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", list(SampleMode))
def test_an_answer_does_not_depend_on_batch_mates(kind: NoiseKind, mode: SampleMode) -> None:
    policy, obs = make_policy(kind), observations(6)
    with torch.no_grad():
        together = policy.act(obs, noise_for(policy, [5, 6, 7, 8, 9, 10]), mode)
        other = policy.act(some(obs, slice(2, 4)), noise_for(policy, [7, 1234]), mode)
    torch.testing.assert_close(other.actions[0], together.actions[2], rtol=0, atol=1e-6)
    torch.testing.assert_close(other.log_prob[0], together.log_prob[2], rtol=0, atol=1e-4)
    assert not torch.allclose(other.actions[1], together.actions[3]), "another seed is another answer"


@pytest.mark.parametrize("kind", [NoiseKind.SDE_FULL, NoiseKind.NOISE])
def test_log_probability_of_a_chain_is_the_sum_over_its_gaussians(kind: NoiseKind) -> None:
    policy = make_policy(kind)
    obs, drawn = observations(9), sample(policy, 9)
    chain = drawn.trace["chain"]
    wanted = torch.zeros(9, 4, 3)
    velocity = policy.velocity.given(policy.normalisers["state"](obs["state"]))
    for k, t in enumerate((1.0, 0.75, 0.5, 0.25)):
        x = chain[:, k].flatten(1)
        v, features = velocity(x, policy.velocity.time_share(policy.times)[k])
        if policy.noise_head is None:
            sigma = 0.4 * (t / (1 - t if t < 1 else 0.25)) ** 0.5
            mean = x - 0.25 * v - sigma**2 * 0.25 / (2 * t) * (x + (1 - t) * v)
            std = torch.full_like(x, sigma * 0.5)
        else:
            share = 0.5 + 0.5 * torch.tanh(policy.noise_head(features))
            mean, std = x - 0.25 * v, 0.05 * (0.15 / 0.05) ** share
        normal = torch.distributions.Normal(mean.view(9, 4, 3), std.view(9, 4, 3))
        wanted = wanted + normal.log_prob(chain[:, k + 1])
    if kind is NoiseKind.SDE_FULL:
        wanted = wanted + torch.distributions.Normal(0.0, 1.0).log_prob(chain[:, 0])
    torch.testing.assert_close(drawn.log_prob, wanted.sum(-1).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(policy.to_physical(chain[:, -1]), drawn.actions)


def test_hybrid_records_the_one_stochastic_step_of_each_sample() -> None:
    policy = make_policy()
    drawn, noise = sample(policy, 200), noise_for(policy, range(200))
    assert torch.equal(drawn.trace["step"], noise["step"])
    assert set(drawn.trace["step"].tolist()) == {0, 1, 2, 3}, "drawn for each sample, not for the batch"
    first = drawn.trace["step"] == 0
    assert torch.equal(drawn.trace["x_before"][first], noise["x1"][first])
    last = drawn.trace["step"] == 3
    torch.testing.assert_close(policy.to_physical(drawn.trace["x_after"][last]), drawn.actions[last])


def test_hybrid_is_the_ode_after_its_stochastic_step() -> None:
    policy, obs = make_policy(), observations(64)
    drawn = sample(policy, 64)
    velocity = policy.velocity.given(policy.normalisers["state"](obs["state"]))
    times = policy.velocity.time_share(policy.times)
    for row in range(64):
        x = drawn.trace["x_after"].flatten(1)
        for k in range(int(drawn.trace["step"][row]) + 1, 4):
            x = x - 0.25 * velocity(x, times[k])[0]
        torch.testing.assert_close(
            policy.to_physical(x[row].view(4, 3)).detach(), drawn.actions[row], rtol=1e-4, atol=1e-5
        )


def test_hybrid_evaluates_the_network_once_and_the_others_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    given = VelocityNetwork.given

    def counted(self: VelocityNetwork, observation: Tensor):  # type: ignore[no-untyped-def]
        velocity = given(self, observation)

        def once(x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
            calls.append(len(x))
            return velocity(x, time)

        return once

    counts = {}
    for kind in KINDS:
        policy = make_policy(kind)
        drawn = sample(policy, 3)
        with monkeypatch.context() as patch:
            patch.setattr(VelocityNetwork, "given", counted)
            calls.clear()
            policy.evaluate(observations(3), drawn.trace)
            counts[kind] = len(calls)
    assert counts == {NoiseKind.SDE_HYBRID: 1, NoiseKind.SDE_FULL: 4, NoiseKind.NOISE: 4}


def test_learned_std_stays_in_its_range_however_large_the_features() -> None:
    policy = make_policy(NoiseKind.NOISE, sigma_min=0.03, sigma_max=0.2)
    assert policy.noise_head is not None
    head = policy.noise_head.parameters_in_order()
    x, v = torch.zeros(2, 12), torch.zeros(2, 12)
    for size in (0.0, 1.0, 1e4):
        _, std = policy._gaussian(0, x, v, torch.tensor([[size], [-size]]).expand(2, 32), head)
        assert float(std.detach().min()) >= 0.03 * (1 - 1e-5) and float(std.detach().max()) <= 0.2 * (1 + 1e-5)
    assert float(std.detach().max() - std.detach().min()) > 0.1, "and reaches both ends"


def test_entropy_of_the_learned_noise_has_a_gradient_and_that_of_the_sde_has_none() -> None:
    policy = make_policy(NoiseKind.NOISE)
    policy.evaluate(observations(4), sample(policy, 4).trace).entropy.sum().backward()
    assert policy.noise_head is not None and policy.noise_head.head.weight.grad is not None
    assert float(policy.noise_head.head.weight.grad.abs().sum()) > 0
    hybrid = make_policy()
    entropy = hybrid.evaluate(observations(4), sample(hybrid, 4).trace).entropy
    assert not entropy.requires_grad and entropy.shape == (4, 4)


def test_the_ode_is_deterministic_given_its_noise_and_has_no_log_probability() -> None:
    policy = make_policy()
    one, two = (sample(policy, 5, SampleMode.DETERMINISTIC) for _ in range(2))
    assert torch.equal(one.actions, two.actions)
    assert not one.trace and not one.log_prob.any()


def test_actions_are_physical_and_normalisation_inverts() -> None:
    policy = make_policy()
    low, high = (torch.from_numpy(b).float() for b in CONTRACT.action.bounds())
    torch.testing.assert_close(policy.to_physical(-torch.ones(3)), low)
    torch.testing.assert_close(policy.to_physical(torch.ones(3)), high)
    actions = torch.rand(4, 3)
    torch.testing.assert_close(policy.to_physical(policy.to_normalised(actions)), actions)


def test_value_is_none_where_the_critics_inputs_were_not_given() -> None:
    policy = make_policy(critic_inputs=("state", "privileged"))
    obs, noise = observations(2), noise_for(policy, [0, 1])
    with torch.no_grad():
        assert policy.act(obs, noise, SampleMode.STOCHASTIC, with_value=True).value is not None
        assert policy.act(obs, noise, SampleMode.STOCHASTIC).value is None
        robot = {"state": obs["state"]}
        assert policy.act(robot, noise, SampleMode.STOCHASTIC, with_value=True).value is None
    with pytest.raises(InvalidArgument, match="'privileged' is missing"):
        policy.value(robot)


def test_actor_and_critic_share_no_parameters_and_leave_none_out() -> None:
    for kind in KINDS:
        policy = make_policy(kind)
        actor, critic = {id(p) for p in policy.actor_parameters()}, {id(p) for p in policy.critic_parameters()}
        assert not actor & critic
        assert actor | critic == {id(p) for p in policy.parameters()}


def test_a_copy_of_the_policy_computes_with_its_own_weights() -> None:
    policy = make_policy()
    twin = copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    assert not torch.allclose(sample(policy, 3).actions, sample(twin, 3).actions)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({}, "'state' is missing"),
        ({"state": torch.zeros(2, 1)}, r"shape \[2, 1\], \[batch, 6\] expected"),
        ({"state": torch.zeros(6)}, r"shape \[6\], \[batch, 6\] expected"),
        ({"state": torch.zeros(1, 6)}, "2 rows of noise for 1 observations"),
    ],
)
def test_observations_that_would_broadcast_are_refused(obs: dict[str, Tensor], message: str) -> None:
    policy = make_policy()
    with pytest.raises(InvalidArgument, match=message):
        policy.act(obs, noise_for(policy, [0, 1]), SampleMode.STOCHASTIC)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": {"state": ([0.0] * 5, [1.0] * 6)}}, "mean of 'state' has width 5, the contract says 6"),
        ({"observation": {"state": ([0.0] * 6, [1.0] * 7)}}, "std of 'state' has width 7, the contract says 6"),
        ({"observation": {"state": ([0.0] * 6, [float("nan")] * 6)}}, "must be finite"),
        ({"observation": {}}, "no statistics for observation 'state'"),
        ({"action_offset": [0.0] * 2}, "offset has width 2, the contract says 3"),
        ({"action_scale": [1.0] * 4}, "scale has width 4, the contract says 3"),
        ({"action_scale": [1.0, 0.0, 1.0]}, "must be positive"),
        ({"action_scale": [1.0, float("inf"), 1.0]}, "must be finite"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowPolicy(CONTRACT, FlowPolicyConfig(), dataclasses.replace(STATISTICS, **change))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actor_inputs": ("privileged",)}, "no robot can measure it"),
        ({"actor_inputs": ()}, "must each name an observation"),
        ({"noise_level": 0.0}, "learns nothing"),
        ({"noise": NoiseKind.NOISE, "sigma_min": 0.0}, "learns nothing"),
        ({"noise": NoiseKind.NOISE, "sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min < sigma_max"),
        ({"time_width": 5}, "even number"),
        ({"horizon": 0}, "at least 1 each"),
        ({"hidden": ()}, "one layer at least"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowPolicy(CONTRACT, FlowPolicyConfig(**options), STATISTICS)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [NoiseKind.SDE_HYBRID, NoiseKind.SDE_FULL])
def test_a_noise_level_set_later_explores_as_one_built_in_and_travels_with_the_weights(noise: NoiseKind) -> None:
    changed, built = make_policy(noise, noise_level=0.5), make_policy(noise, noise_level=0.2)
    loud = sample(changed, 6)
    exact = sample(changed, 6, SampleMode.DETERMINISTIC).actions
    changed.set_noise_level(0.2)
    arrived = make_policy(noise, seed=1, noise_level=0.5)
    arrived.load_state_dict(changed.state_dict())
    for policy in (changed, arrived):
        drawn, expected = sample(policy, 6), sample(built, 6)
        assert torch.equal(drawn.actions, expected.actions) and torch.equal(drawn.log_prob, expected.log_prob)
        assert not torch.equal(drawn.actions, loud.actions)
        again = policy.evaluate(observations(6), drawn.trace, with_value=False).log_prob
        torch.testing.assert_close(again, drawn.log_prob, atol=1e-5, rtol=0)
        assert torch.equal(sample(policy, 6, SampleMode.DETERMINISTIC).actions, exact)


def test_noise_level_means_nothing_to_flow_noise() -> None:
    with pytest.raises(ValueError, match="learns its std"):
        make_policy(NoiseKind.NOISE).set_noise_level(0.3)
    make_policy(NoiseKind.NOISE, noise_level=0.0)


def test_bounds_become_offset_and_scale() -> None:
    assert from_bounds([-1.0, 0.0], [1.0, 0.5], "action") == ([0.0, 0.25], [1.0, 0.25])
    for low, high in (([-float("inf")], [1.0]), ([1.0], [1.0])):
        with pytest.raises(ValueError, match="finite and low < high"):
            from_bounds(low, high, "action")
    with pytest.raises(ValueError, match="2 lower bounds and 1 upper"):
        from_bounds([0.0, 0.0], [1.0], "action")


def test_constant_observations_are_not_blown_up() -> None:
    constant = Statistics({"state": ([0.1] * 6, [0.0] * 6)}, [0.0] * 3, [1.0] * 3)
    policy = FlowPolicy(CONTRACT, FlowPolicyConfig(), constant)
    normalised = policy.normalisers["state"](torch.full((1, 6), 0.1) + 1e-3)
    torch.testing.assert_close(normalised, torch.ones(1, 6), rtol=1e-3, atol=0)
    assert float(policy.normalisers["state"](torch.full((1, 6), 1e6)).max()) == 10.0


def test_mlp_is_the_usual_one() -> None:
    torch.manual_seed(0)
    network, x = MLP(5, (7, 8), 2), torch.randn(4, 5)
    value = x
    for layer in network.layers:
        value = torch.nn.functional.silu(value @ layer.weight + layer.bias)  # type: ignore[operator]
    wanted = value @ network.head.weight + network.head.bias
    torch.testing.assert_close(network(x), wanted)
    with torch.no_grad():
        torch.testing.assert_close(network(x), wanted, msg="in place without gradients, with the same result")
