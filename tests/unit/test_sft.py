"""Imitation: chunks of demonstrations, padding that counts for nothing, and a policy that copies."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flow_parts import CONTRACT, STATISTICS, make_policy, noise_for, observations

from landbridge.contract_codec import contract_to_json
from landbridge.errors import InvalidArgument, NotFound
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, NoiseKind
from landbridge.policies.protocol import SampleMode
from learner.sft import Demonstrations, SFTConfig, new_policy, statistics_of, train_sft

SMALL = FlowPolicyConfig(hidden=(64, 64), critic_hidden=(8,))


def demonstrations(lengths: tuple[int, ...] = (12, 7, 20), seed: int = 0) -> Demonstrations:
    """Actions are a function of the state: half its first three numbers, within bounds."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, (sum(lengths), 6)).astype(np.float32)
    low, high = CONTRACT.action.bounds()
    actions = (0.5 * (low + high) + 0.25 * (high - low) * states[:, :3]).astype(np.float32)
    observed = {"state": states, "privileged": np.zeros((len(states), 2), np.float32)}
    return Demonstrations(CONTRACT, observed, actions, np.array(lengths))


def test_chunks_do_not_run_into_the_next_episode() -> None:
    demos = demonstrations((3, 2))
    chunks, mask = demos.chunks(4)
    assert mask.tolist() == [
        [True, True, True, False],
        [True, True, False, False],
        [True, False, False, False],
        [True, True, False, False],
        [True, False, False, False],
    ]
    assert np.array_equal(chunks[1, :2], demos.actions[1:3])
    assert np.array_equal(chunks[0], demos.actions[[0, 1, 2, 2]]), "padded with the last action there is"
    assert np.array_equal(chunks[3], demos.actions[[3, 4, 4, 4]])


def loss_of(policy: FlowPolicy, actions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return policy.flow_matching_loss(observations(len(actions)), actions, mask, torch.Generator().manual_seed(3))


def test_padding_changes_neither_loss_nor_gradient_whatever_it_holds() -> None:
    policy, mask = make_policy(), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    actions = torch.rand(3, 4, 3)
    seen = []
    for filler in (0.0, 1e6, float("nan")):
        policy.zero_grad()
        loss = loss_of(policy, torch.where(mask[..., None], actions, torch.tensor(filler)), mask)
        loss.backward()
        seen.append([loss.detach(), *(p.grad for p in policy.actor_parameters())])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))  # type: ignore[arg-type]


def test_a_row_that_is_all_padding_does_not_count() -> None:
    policy = make_policy()
    actions, obs = torch.rand(2, 4, 3), observations(2)
    mask = torch.tensor([[True] * 4, [False] * 4])
    loss = policy.flow_matching_loss(obs, actions, mask, torch.Generator().manual_seed(3))
    # With the same draws: the whole batch's loss is the mean over both rows when both are present.
    both = policy.flow_matching_loss(obs, actions, torch.ones_like(mask), torch.Generator().manual_seed(3))
    second = policy.flow_matching_loss(obs, actions, ~mask, torch.Generator().manual_seed(3))
    torch.testing.assert_close(both, (loss + second) / 2)
    assert float(loss_of(policy, actions, torch.zeros_like(mask)).detach()) == 0.0


def test_the_loss_is_the_squared_error_of_the_velocity() -> None:
    policy, actions = make_policy(), torch.rand(8, 4, 3)
    loss = loss_of(policy, actions, torch.ones(8, 4, dtype=torch.bool))
    generator = torch.Generator().manual_seed(3)
    target = policy.to_normalised(actions).flatten(1)
    noise, t = torch.randn(8, 12, generator=generator), torch.rand(8, 1, generator=generator)
    from landbridge.policies.networks import time_features

    velocity = policy.velocity.given(policy.normalisers["state"](observations(8)["state"]))
    v, _ = velocity((1 - t) * target + t * noise, policy.velocity.time_share(time_features(t[:, 0], 16)))
    torch.testing.assert_close(loss, ((v - (noise - target)) ** 2).mean())


def error_of(policy: FlowPolicy, demos: Demonstrations) -> float:
    """Mean distance of the first action from the demonstrated one, as a share of the action's scale."""
    obs = {"state": torch.from_numpy(demos.observations["state"])}
    with torch.no_grad():
        actions = policy.act(obs, noise_for(policy, range(len(demos.actions))), SampleMode.DETERMINISTIC).actions
    gap = (actions[:, 0] - torch.from_numpy(demos.actions)) / policy.action_scale
    return float(gap.abs().mean())


@pytest.mark.parametrize("kind", list(NoiseKind))
def test_training_copies_the_demonstrations(kind: NoiseKind) -> None:
    demos = demonstrations()
    policy = new_policy(demos, dataclasses.replace(SMALL, noise=kind), seed=0)
    before = error_of(policy, demos)
    critic = [p.clone() for p in policy.critic_parameters()]
    seen: list[int] = []
    metrics = train_sft(policy, demos, SFTConfig(steps=400, batch=64, learning_rate=3e-3), lambda s, _: seen.append(s))
    assert error_of(policy, demos) < 0.2 < 0.5 < before
    assert metrics["last_loss"] < 0.5 * metrics["first_loss"]
    assert seen == list(range(50, 401, 50))
    assert all(torch.equal(a, b) for a, b in zip(critic, policy.critic_parameters(), strict=True))


def trained(demos: Demonstrations, **options: float) -> list[torch.Tensor]:
    policy = new_policy(demos, SMALL, seed=0)
    train_sft(policy, demos, SFTConfig(**({"steps": 30, "batch": 16} | options)))  # type: ignore[arg-type]
    return [p.detach().clone() for p in policy.actor_parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_option_matters_and_the_seed_decides() -> None:
    demos = demonstrations()
    base = trained(demos)
    assert same(base, trained(demos))
    for options in (
        {"seed": 1},
        {"steps": 31},
        {"batch": 17},
        {"learning_rate": 2e-3},
        {"weight_decay": 0.5},
        {"ema": 0},
    ):
        assert not same(base, trained(demos, **options)), options


def test_the_learning_rate_falls_along_a_cosine_to_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def recorded(self: torch.optim.AdamW) -> None:
        rates.append(self.param_groups[0]["lr"])
        step(self)

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    trained(demonstrations(), steps=20, learning_rate=1e-2)
    wanted = [1e-3 + 0.5 * (1e-2 - 1e-3) * (1 + np.cos(np.pi * k / 20)) for k in range(20)]
    assert rates == pytest.approx(wanted, rel=1e-4)


def test_averaged_weights_lag_behind_the_last_ones_and_have_left_the_first() -> None:
    demos = demonstrations()
    first = [p.detach().clone() for p in new_policy(demos, SMALL, seed=0).actor_parameters()]
    last, averaged = trained(demos, ema=0.0), trained(demos, ema=0.995)
    distance = [float((a - b).norm() / (c - b).norm()) for a, b, c in zip(averaged, first, last, strict=True)]
    assert all(0.3 < d < 1.0 for d in distance), "thirty steps are not lost in an average over two hundred"


@pytest.mark.parametrize("ema", [0.3, 0.995])
def test_the_average_is_the_exponential_one_of_the_weights_after_every_step(
    ema: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    demos = demonstrations()
    wanted = [p.detach().clone() for p in new_policy(demos, SMALL, seed=0).actor_parameters()]
    step, done = torch.optim.AdamW.step, 0

    def recorded(self: torch.optim.AdamW) -> None:
        nonlocal done
        step(self)
        decay = min(ema, (1 + done) / (10 + done))
        for average, parameter in zip(wanted, self.param_groups[0]["params"], strict=True):
            average.mul_(decay).add_(parameter.detach(), alpha=1.0 - decay)
        done += 1

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    for made, average in zip(trained(demos, ema=ema), wanted, strict=True):
        torch.testing.assert_close(made, average, rtol=1e-4, atol=1e-6)


def test_statistics_come_from_the_data_and_the_contract() -> None:
    demos = demonstrations()
    made = statistics_of(demos, ("state",))
    np.testing.assert_allclose(made.observation["state"][0], demos.observations["state"].mean(0), rtol=1e-6)
    np.testing.assert_allclose(made.observation["state"][1], demos.observations["state"].std(0), rtol=1e-6)
    assert list(made.action_offset) == pytest.approx(list(STATISTICS.action_offset))
    assert list(made.action_scale) == pytest.approx(list(STATISTICS.action_scale))
    assert list(statistics_of(demos, ("state",), (1.0, 2.0, 3.0)).action_scale) == [1.0, 2.0, 3.0]


def test_an_action_without_bounds_needs_a_scale() -> None:
    action = dataclasses.replace(CONTRACT.action, low=(), high=())
    demos = dataclasses.replace(demonstrations(), contract=dataclasses.replace(CONTRACT, action=action))
    with pytest.raises(ValueError, match="give a scale"):
        statistics_of(demos, ("state",))
    made = statistics_of(demos, ("state",), (0.1, 0.1, 0.1))
    assert list(made.action_offset) == [0.0, 0.0, 0.0]


def save(path: Path, demos: Demonstrations, **change: object) -> Path:
    content: dict[str, object] = {
        "contract": json.dumps(contract_to_json(demos.contract)),
        "actions": demos.actions,
        "lengths": demos.lengths,
        **{f"obs_{name}": value for name, value in demos.observations.items()},
    }
    np.savez(path, **{k: v for k, v in (content | change).items() if v is not None})  # type: ignore[arg-type]
    return path


def test_demonstrations_survive_their_file(tmp_path: Path) -> None:
    demos = demonstrations()
    loaded = Demonstrations.load(save(tmp_path / "demos.npz", demos))
    assert loaded.contract == CONTRACT and np.array_equal(loaded.actions, demos.actions)
    assert loaded.observations.keys() == demos.observations.keys()
    with pytest.raises(NotFound, match="make them with"):
        Demonstrations.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": None}, "no actions; it holds"),
        ({"lengths": np.array([12, 7, 21])}, "lengths add up to 40, actions has 39 steps"),
        ({"lengths": np.array([39, 0])}, "each needs one step at least"),
        ({"obs_state": np.zeros((38, 6))}, "state has 38 steps"),
        ({"actions": np.zeros((39, 1))}, r"\[steps, \[3\]\] expected"),
    ],
)
def test_demonstrations_that_do_not_add_up_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Demonstrations.load(save(tmp_path / "demos.npz", demonstrations(), **change))


def test_the_first_episodes_are_whole_ones() -> None:
    demos = demonstrations()
    fewer = demos.first(2)
    assert fewer.lengths.tolist() == [12, 7] and len(fewer.actions) == len(fewer.observations["state"]) == 19
    with pytest.raises(InvalidArgument, match="4 episodes asked for, 3 are there"):
        demos.first(4)
