"""FlowPolicy: conditional flow matching over action chunks.

Trained by imitation on the flow-matching loss; sampled as an ODE (evaluation, robots) or stochastically (exploration)
in one of three ways, so that a log-probability exists: Flow-SDE with one stochastic step a sample (``sde_hybrid``),
Flow-SDE with every step stochastic (``sde_full``), Flow-Noise with a learned std (``noise``; ReinFlow,
arXiv 2505.22094). Formulas: :mod:`landbridge.policies.sampling`.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landbridge.contract import Contract
from landbridge.errors import InvalidArgument
from landbridge.policies.networks import MLP, Layers, Normaliser, Velocity, VelocityNetwork, run_layers, time_features
from landbridge.policies.protocol import ActionSample, Evaluation, SampleMode
from landbridge.policies.sampling import draw_rows, gaussian_entropy, gaussian_log_prob, hybrid_table, sde_schedule


class NoiseKind(enum.Enum):
    """How exploration noise enters the sampler."""

    SDE_HYBRID = "sde_hybrid"
    SDE_FULL = "sde_full"
    NOISE = "noise"


@dataclass(frozen=True)
class FlowPolicyConfig:
    """Architecture and sampler of a :class:`FlowPolicy`."""

    horizon: int = 4
    steps: int = 4
    """K, denoising steps."""
    noise: NoiseKind = NoiseKind.SDE_HYBRID
    noise_level: float = 0.4
    """a of Flow-SDE, to begin with (:meth:`FlowPolicy.set_noise_level`)."""
    sigma_min: float = 0.05
    sigma_max: float = 0.15
    """Range of Flow-Noise's learned std (normalised actions)."""
    hidden: tuple[int, ...] = (256, 256, 256)
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    time_width: int = 16
    actor_inputs: tuple[str, ...] = ("state",)
    critic_inputs: tuple[str, ...] = ("state",)
    """May name privileged tensors; a robot never sends them and never asks for a value."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.steps < 1:
            raise ValueError(f"horizon {self.horizon} and steps {self.steps}: at least 1 each")
        if not self.hidden or min(*self.hidden, *self.critic_hidden, 1) < 1:
            raise ValueError(f"hidden {self.hidden}: one layer at least, widths of 1 at least")
        if self.time_width < 2 or self.time_width % 2:
            raise ValueError(
                f"time_width {self.time_width}: sines and cosines in pairs need an even number, 2 at least"
            )
        if not self.actor_inputs or not self.critic_inputs:
            raise ValueError("actor_inputs and critic_inputs must each name an observation")
        if self.noise is NoiseKind.NOISE and not 0 < self.sigma_min < self.sigma_max < math.inf:
            raise ValueError(
                f"0 < sigma_min < sigma_max is needed, got {self.sigma_min} and {self.sigma_max}: "
                "a std of 0 gives ratio 1 and learns nothing"
            )


@dataclass(frozen=True)
class Statistics:
    """Normalisation: ``observation[name] = (mean, std)``; a physical action is ``offset + scale·normalised``."""

    observation: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    action_offset: Sequence[float]
    action_scale: Sequence[float]


def from_bounds(low: Sequence[float], high: Sequence[float], what: str) -> tuple[list[float], list[float]]:
    """(offset, scale) that take [low, high] to [−1, 1]; for actions, or observations in place of (mean, std).

    ValueError where a bound is infinite or an interval empty: nothing can be normalised by those.
    """
    lower, upper = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if lower.shape != upper.shape:
        raise ValueError(f"{what}: {lower.size} lower bounds and {upper.size} upper ones")
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower < upper).all()):
        raise ValueError(f"{what}: bounds must be finite and low < high, got {list(low)} … {list(high)}; give a scale")
    return (0.5 * (lower + upper)).tolist(), (0.5 * (upper - lower)).tolist()


class FlowPolicy(nn.Module):
    """See the module's docstring; the interface is :class:`landbridge.policies.protocol.Policy`."""

    action_offset: Tensor
    action_scale: Tensor
    times: Tensor
    sde: Tensor
    hybrid: Tensor

    def __init__(self, contract: Contract, config: FlowPolicyConfig, statistics: Statistics) -> None:
        """Raises ValueError where statistics, inputs and contract disagree, or a stochastic std would be 0."""
        super().__init__()
        self.contract = contract
        self.config = config
        self.horizon = config.horizon
        self.action_dim = _width(contract.action.shape, "action")
        self._check(contract, config, statistics)
        names = sorted({*config.actor_inputs, *config.critic_inputs})
        self.normalisers = nn.ModuleDict({n: Normaliser(*statistics.observation[n]) for n in names})
        self._widths = {n: len(statistics.observation[n][0]) for n in names}
        chunk = config.horizon * self.action_dim
        observed = sum(self._widths[n] for n in config.actor_inputs)
        critic = sum(self._widths[n] for n in config.critic_inputs)
        self.velocity = VelocityNetwork(observed, chunk, config.time_width, config.hidden)
        self.critic = MLP(critic, config.critic_hidden, 1, head_scale=0.1)
        self.noise_head = (
            MLP(config.hidden[-1], (64,), chunk, head_scale=0.1) if config.noise is NoiseKind.NOISE else None
        )
        self.register_buffer("action_offset", torch.tensor(list(statistics.action_offset), dtype=torch.float32))
        self.register_buffer("action_scale", torch.tensor(list(statistics.action_scale), dtype=torch.float32))
        # Flow-Noise takes the time grid alone from the schedule; its std is learned and noise_level not read.
        schedule = sde_schedule(config.steps, 1.0 if config.noise is NoiseKind.NOISE else config.noise_level)
        self._delta = schedule.delta
        self.register_buffer("times", time_features(schedule.times, config.time_width), persistent=False)
        # The noise is part of the weights: a version explores as the one who trained it decided.
        self.register_buffer("sde", schedule.table())
        self.register_buffer("hybrid", hybrid_table(schedule.table(), schedule.delta))

    def set_noise_level(self, level: float) -> None:
        """Explore with a = ``level`` from now on; Flow-SDE only, > 0 (ValueError)."""
        if self.config.noise is NoiseKind.NOISE:
            raise ValueError("Flow-Noise learns its std: there is no noise level to set")
        schedule = sde_schedule(self.config.steps, level)
        self.sde.copy_(schedule.table())
        self.hybrid.copy_(hybrid_table(schedule.table(), schedule.delta))

    def _check(self, contract: Contract, config: FlowPolicyConfig, statistics: Statistics) -> None:
        for name in config.actor_inputs:
            if contract.spec(name).privileged:
                raise ValueError(f"actor input {name!r} is privileged: no robot can measure it; leave it to the critic")
        for name in {*config.actor_inputs, *config.critic_inputs}:
            width = _width(contract.spec(name).shape, name)
            if name not in statistics.observation:
                raise ValueError(f"no statistics for observation {name!r}; there are {sorted(statistics.observation)}")
            for what, values in zip(("mean", "std"), statistics.observation[name], strict=True):
                if len(values) != width:
                    raise ValueError(f"{what} of {name!r} has width {len(values)}, the contract says {width}")
        for what, action_values in (("offset", statistics.action_offset), ("scale", statistics.action_scale)):
            if len(action_values) != self.action_dim:
                raise ValueError(f"action {what} has width {len(action_values)}, the contract says {self.action_dim}")
            if not np.isfinite(np.asarray(action_values, np.float64)).all():
                raise ValueError(f"action {what} must be finite, got {list(action_values)}")
        if any(scale <= 0 for scale in statistics.action_scale):
            raise ValueError(f"action scales must be positive, got {list(statistics.action_scale)}")

    def draw_noise(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Noise rows, each a function of its own seed alone (numpy Philox keyed by it).

        ``x1`` [B, H, A]; ``eps`` [B, S, H, A] with S = 1 (hybrid) or K; ``step`` [B] int64, the stochastic step.
        """
        stochastic = 1 if self.config.noise is NoiseKind.SDE_HYBRID else self.config.steps
        shape = (1 + stochastic, self.horizon, self.action_dim)
        drawn, steps = draw_rows(seeds, math.prod(shape), self.config.steps)
        normals = drawn.reshape(len(drawn), *shape)
        return {"x1": normals[:, 0], "eps": normals[:, 1:], "step": steps}

    def act(
        self, obs: Mapping[str, Tensor], noise: Mapping[str, Tensor], mode: SampleMode, with_value: bool = False
    ) -> ActionSample:
        """Draw chunks [B, H, A] in physical units; see :class:`landbridge.policies.protocol.Policy`."""
        inputs = self._inputs(obs, self.config.actor_inputs)
        # A copy in torch's own, aligned memory: matrix products round differently on numpy's, and the same request must
        # give the same bits in every process.
        x = noise["x1"].flatten(1).clone()
        if len(x) != len(inputs):
            raise InvalidArgument(f"{len(x)} rows of noise for {len(inputs)} observations; one row each is needed")
        velocity, times = self.velocity.given(inputs), self.velocity.time_share(self.times)
        trace: dict[str, Tensor] = {}
        if mode is SampleMode.DETERMINISTIC:
            log_prob = x.new_zeros(len(x), self.horizon)
            for step in range(self.config.steps):
                x = torch.sub(x, velocity(x, times[step])[0], alpha=self._delta)
        elif self.config.noise is NoiseKind.SDE_HYBRID:
            x, log_prob, trace = self._hybrid(velocity, times, x, noise)
        else:
            x, log_prob, trace = self._all_steps(velocity, times, x, noise)
        value = self.value(obs) if with_value and all(name in obs for name in self.config.critic_inputs) else None
        return ActionSample(self.to_physical(self._chunk(x)), log_prob, value, trace)

    def _hybrid(
        self, velocity: Velocity, times: Tensor, x: Tensor, noise: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """One stochastic step a row, at ``noise["step"]``; the others follow the ODE."""
        count, chosen = len(x), noise["step"]
        x_scale, v_scale, std = self.hybrid.index_select(0, chosen).unbind(1)
        shift = std[:, :, None] * noise["eps"].flatten(1)[:, None]
        states, velocities = [x], []
        for step in range(self.config.steps):
            here = slice(step, step + 1)
            v = velocity(x, times[step])[0]
            x = torch.addcmul(torch.addcmul(shift[:, step], x, x_scale[:, here]), v, v_scale[:, here])
            velocities.append(v)
            states.append(x)
        index = torch.add(torch.arange(count, device=x.device), chosen, alpha=count)
        chain = torch.cat(states)
        before, after = chain.index_select(0, index), chain.index_select(0, index + count)
        mean, deviation = self._stochastic_step(before, torch.cat(velocities).index_select(0, index), chosen)
        # From mean and sample, as the learner will recompute it; using eps itself would differ by rounding.
        log_prob = gaussian_log_prob(after, mean, deviation)
        trace = {"x_before": self._chunk(before), "x_after": self._chunk(after), "step": chosen}
        return x, self._per_step(log_prob), trace

    def _stochastic_step(self, before: Tensor, v: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [B, H·A] and std [B, 1] of the SDE's step ``step`` [B] from ``before``."""
        coefficients = self.sde.index_select(0, step)
        return coefficients[:, 0:1] * before + coefficients[:, 1:2] * v, coefficients[:, 2:3]

    def _all_steps(
        self, velocity: Velocity, times: Tensor, x: Tensor, noise: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Every step stochastic: Flow-SDE in its one-layer form, or Flow-Noise."""
        eps, head = noise["eps"].flatten(2), self._noise_layers()
        states, gaussians = [x], []
        for step in range(self.config.steps):
            mean, std = self._gaussian(step, x, *velocity(x, times[step]), head)
            x = torch.addcmul(mean, std, eps[:, step])
            states.append(x)
            gaussians.append((mean, std))
        chain = torch.stack(states, 1)
        log_prob = self._chain_log_prob(chain, gaussians)
        trace = {"chain": chain.reshape(len(x), len(states), self.horizon, self.action_dim)}
        return x, self._per_step(log_prob), trace

    def _noise_layers(self) -> Layers | None:
        return None if self.noise_head is None else self.noise_head.parameters_in_order()

    def _gaussian(
        self, step: int, x: Tensor, v: Tensor, features: Tensor, head: Layers | None
    ) -> tuple[Tensor, Tensor]:
        """Mean and std of a step: the SDE's, or the ODE's mean with a std learned from the network's features.

        The learned std is tanh-squashed in log space into [sigma_min, sigma_max].
        """
        if head is None:
            x_scale, v_scale, std = self.sde[step]
            return x_scale * x + v_scale * v, std
        low, high = math.log(self.config.sigma_min), math.log(self.config.sigma_max)
        squashed = torch.tanh(run_layers(features, head)[0])
        return torch.sub(x, v, alpha=self._delta), torch.exp(0.5 * (low + high) + 0.5 * (high - low) * squashed)

    def _chain_log_prob(self, chain: Tensor, gaussians: list[tuple[Tensor, Tensor]]) -> Tensor:
        """[B, H·A] over all steps; with Flow-SDE also of x₁ ~ N(0, I), which no weight changes."""
        means, stds = zip(*gaussians, strict=True)
        mean, std = torch.stack(means, 1), torch.stack(stds, -1 if self.noise_head is None else 1)
        if self.noise_head is None:
            first = gaussian_log_prob(chain[:, 0], torch.zeros_like(std[0]), torch.ones_like(std[0]))
            return first + gaussian_log_prob(chain[:, 1:], mean, std[:, None]).sum(1)
        return gaussian_log_prob(chain[:, 1:], mean, std).sum(1)

    def evaluate(self, obs: Mapping[str, Tensor], trace: Mapping[str, Tensor], with_value: bool = True) -> Evaluation:
        """Recompute log-probability [B, H], entropy [B, H] and value [B] of the sample in ``trace``.

        The hybrid sampler costs one network call here, the others K.
        """
        velocity = self.velocity.given(self._inputs(obs, self.config.actor_inputs))
        times = self.velocity.time_share(self.times)
        if self.config.noise is NoiseKind.SDE_HYBRID:
            step, before, after = trace["step"], trace["x_before"].flatten(1), trace["x_after"].flatten(1)
            mean, std = self._stochastic_step(before, velocity(before, times[step])[0], step)
            log_prob, entropy = gaussian_log_prob(after, mean, std), gaussian_entropy(std).expand_as(after)
        else:
            chain, head = trace["chain"].flatten(2), self._noise_layers()
            gaussians = []
            for k in range(self.config.steps):
                x = chain[:, k]
                gaussians.append(self._gaussian(k, x, *velocity(x, times[k]), head))
            log_prob = self._chain_log_prob(chain, gaussians)
            entropy = torch.stack([gaussian_entropy(std).expand_as(log_prob) for _, std in gaussians]).sum(0)
        value = self.value(obs) if with_value else None
        return Evaluation(self._per_step(log_prob), self._per_step(entropy), value)

    def value(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The critic's estimate [B]."""
        return self.critic(self._inputs(obs, self.config.critic_inputs)).squeeze(-1)

    def flow_matching_loss(
        self, obs: Mapping[str, Tensor], actions: Tensor, mask: Tensor, generator: torch.Generator
    ) -> Tensor:
        """E‖v(x_t, t, o) − (ε − x₀)‖² over unmasked chunk steps (mean over them and the action's dimensions).

        ``actions`` [B, H, A] physical; ``mask`` [B, H] True for a prefix, False where the chunk is padding. What the
        padding holds is never read: the network sees the row's last present action in its place, since a chunk of
        H steps is what it will see when it acts, and is not trained on those steps. t is uniform in (0, 1).
        """
        last = (mask.sum(1, keepdim=True) - 1).clamp_min(0)
        index = torch.minimum(torch.arange(self.horizon, device=mask.device), last)[..., None].expand_as(actions)
        target = self.to_normalised(actions.gather(1, index)).flatten(1)
        present = mask[..., None].expand_as(actions).flatten(1)
        noise = torch.randn(target.shape, generator=generator, device=target.device)
        t = torch.rand((len(target), 1), generator=generator, device=target.device)
        x = (1.0 - t) * target + t * noise
        time = self.velocity.time_share(time_features(t[:, 0], self.config.time_width))
        predicted, _ = self.velocity.given(self._inputs(obs, self.config.actor_inputs))(x, time)
        error = (predicted - (noise - target)) ** 2
        return (error * present).sum() / present.sum().clamp_min(1)

    def actor_parameters(self) -> list[nn.Parameter]:
        """Everything the policy gradient moves."""
        return [*self.velocity.parameters(), *(self.noise_head.parameters() if self.noise_head is not None else ())]

    def critic_parameters(self) -> list[nn.Parameter]:
        """The value function's parameters."""
        return list(self.critic.parameters())

    def to_physical(self, normalised: Tensor) -> Tensor:
        """[..., A] in the contract's units."""
        return torch.addcmul(self.action_offset, self.action_scale, normalised)

    def to_normalised(self, physical: Tensor) -> Tensor:
        """Inverse of :meth:`to_physical`."""
        return (physical - self.action_offset) / self.action_scale

    def reads(self) -> tuple[str, ...]:
        """Observation tensors the actor needs."""
        return self.config.actor_inputs

    def architecture(self) -> dict[str, Any]:
        """JSON-able: kind, configuration and input widths. Statistics are weights (buffers), not architecture."""
        config = dataclasses.asdict(self.config) | {"noise": self.config.noise.value}
        return {"kind": "flow", "config": config, "inputs": dict(self._widths), "action_dim": self.action_dim}

    def statistics(self) -> Statistics:
        """The statistics in use, read back from the buffers."""
        modules = {name: self.normalisers[name] for name in self._widths}
        return Statistics(
            observation={n: (m.mean.tolist(), m.std.tolist()) for n, m in modules.items()},  # type: ignore[operator]
            action_offset=self.action_offset.tolist(),
            action_scale=self.action_scale.tolist(),
        )

    def _inputs(self, obs: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
        """The named observations normalised and side by side, [B, Σ widths] float32."""
        parts = []
        for name in names:
            if name not in obs:
                raise InvalidArgument(f"observation {name!r} is missing; there are {sorted(obs)}", field=name)
            value = obs[name]
            if value.dim() != 2 or value.shape[1] != self._widths[name]:
                raise InvalidArgument(
                    f"observation {name!r} has shape {list(value.shape)}, [batch, {self._widths[name]}] expected",
                    field=name,
                )
            parts.append(self.normalisers[name](value))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _chunk(self, flat: Tensor) -> Tensor:
        return flat.reshape(len(flat), self.horizon, self.action_dim)

    def _per_step(self, flat: Tensor) -> Tensor:
        """Sum over action dimensions: [B, H·A] → [B, H]."""
        return self._chunk(flat).sum(-1)


def build_flow(architecture: Mapping[str, Any], contract: Contract) -> FlowPolicy:
    """A FlowPolicy of this architecture with neutral statistics, ready for ``load_state_dict``."""
    raw = dict(architecture["config"])
    raw["noise"] = NoiseKind(raw["noise"])
    for name in ("hidden", "critic_hidden", "actor_inputs", "critic_inputs"):
        raw[name] = tuple(raw[name])
    neutral = {name: ([0.0] * width, [1.0] * width) for name, width in architecture["inputs"].items()}
    width = int(architecture["action_dim"])
    return FlowPolicy(contract, FlowPolicyConfig(**raw), Statistics(neutral, [0.0] * width, [1.0] * width))


def _width(shape: tuple[int, ...], name: str) -> int:
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"FlowPolicy reads flat vectors; {name!r} has shape {list(shape)}")
    return shape[0]
