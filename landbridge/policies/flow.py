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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landbridge.contract import Contract
from landbridge.policies.networks import MLP, Normaliser, VelocityNetwork, time_features
from landbridge.policies.protocol import ActionSample, Evaluation, SampleMode
from landbridge.policies.sampling import gaussian_entropy, gaussian_log_prob, sde_schedule


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
    """a of Flow-SDE."""
    sigma_min: float = 0.05
    sigma_max: float = 0.15
    """Range of Flow-Noise's learned std (normalised actions)."""
    hidden: tuple[int, ...] = (256, 256, 256)
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    time_width: int = 16
    actor_inputs: tuple[str, ...] = ("state",)
    critic_inputs: tuple[str, ...] = ("state",)
    """May name privileged tensors; a robot never sends them and never asks for a value."""


@dataclass(frozen=True)
class Statistics:
    """Normalisation: ``observation[name] = (mean, std)``; a physical action is ``offset + scale·normalised``."""

    observation: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    action_offset: Sequence[float]
    action_scale: Sequence[float]
    notes: str = field(default="")


class FlowPolicy(nn.Module):
    """See the module's docstring; the interface is :class:`landbridge.policies.protocol.Policy`."""

    action_offset: Tensor
    action_scale: Tensor
    times: Tensor
    sde_std: Tensor
    sde_x: Tensor
    sde_v: Tensor

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
        widths = {n: len(statistics.observation[n][0]) for n in names}
        chunk = config.horizon * self.action_dim
        observed = sum(widths[n] for n in config.actor_inputs)
        self.velocity = VelocityNetwork(observed, chunk, config.time_width, config.hidden)
        self.critic = MLP(sum(widths[n] for n in config.critic_inputs), config.critic_hidden, 1, head_scale=0.1)
        self.noise_head = (
            MLP(observed, (64,), chunk, head_scale=0.1) if config.noise is NoiseKind.NOISE else nn.Identity()
        )
        self.register_buffer("action_offset", torch.tensor(list(statistics.action_offset), dtype=torch.float32))
        self.register_buffer("action_scale", torch.tensor(list(statistics.action_scale), dtype=torch.float32))
        schedule = sde_schedule(config.steps, config.noise_level)
        self._delta = schedule.delta
        for name, value in (
            ("times", time_features(schedule.times, config.time_width)),
            ("sde_std", schedule.std),
            ("sde_x", schedule.x_scale),
            ("sde_v", schedule.v_scale),
        ):
            self.register_buffer(name, value, persistent=False)
        self._std_list = schedule.std.tolist()
        self._x_list = schedule.x_scale.tolist()
        self._v_list = schedule.v_scale.tolist()

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
        if any(scale <= 0 for scale in statistics.action_scale):
            raise ValueError(f"action scales must be positive, got {list(statistics.action_scale)}")
        if config.noise is NoiseKind.NOISE and not 0 < config.sigma_min < config.sigma_max:
            raise ValueError(
                f"0 < sigma_min < sigma_max is needed, got {config.sigma_min} and {config.sigma_max}: "
                "a std of 0 gives ratio 1 and learns nothing"
            )

    def draw_noise(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Noise rows, each a function of its own seed alone (numpy Philox keyed by it).

        ``x1`` [B, H, A]; ``eps`` [B, S, H, A] with S = 1 (hybrid) or K; ``step`` [B] int64, the stochastic step.
        """
        config = self.config
        stochastic = 1 if config.noise is NoiseKind.SDE_HYBRID else config.steps
        shape = (config.horizon, self.action_dim)
        normals = np.empty((len(seeds), 1 + stochastic, *shape), np.float32)
        steps = np.empty(len(seeds), np.int64)
        for row, seed in enumerate(seeds):
            rng = np.random.Generator(np.random.Philox(key=int(seed)))
            rng.standard_normal(out=normals[row], dtype=np.float32)
            steps[row] = rng.integers(config.steps)
        return {"x1": normals[:, 0], "eps": normals[:, 1:], "step": steps}

    def act(
        self, obs: Mapping[str, Tensor], noise: Mapping[str, Tensor], mode: SampleMode, with_value: bool = False
    ) -> ActionSample:
        """Draw chunks [B, H, A] in physical units; see :class:`landbridge.policies.protocol.Policy`."""
        embedded = self.velocity.embed(self._inputs(obs, self.config.actor_inputs))
        x = noise["x1"].reshape(len(embedded), -1)
        trace: dict[str, Tensor] = {}
        if mode is SampleMode.DETERMINISTIC:
            log_prob = torch.zeros(len(x), self.horizon)
            x = self._ode(embedded, x)
        elif self.config.noise is NoiseKind.SDE_HYBRID:
            x, log_prob, trace = self._hybrid(embedded, x, noise)
        else:
            x, log_prob, trace = self._all_steps(obs, embedded, x, noise)
        value = self.value(obs) if with_value else None
        return ActionSample(self.to_physical(self._chunk(x)), log_prob, value, trace)

    def _ode(self, embedded: Tensor, x: Tensor) -> Tensor:
        times = self.velocity.time(self.times)
        for step in range(self.config.steps):
            x = x - self._delta * self.velocity(embedded, x, times[step])
        return x

    def _hybrid(
        self, embedded: Tensor, x: Tensor, noise: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """One stochastic step a row, at ``noise["step"]``; the others follow the ODE."""
        chosen = noise["step"]
        eps = noise["eps"].reshape(len(x), -1)
        times = self.velocity.time(self.times)
        before, after, log_prob = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
        for step in range(self.config.steps):
            v = self.velocity(embedded, x, times[step])
            mean = self._x_list[step] * x + self._v_list[step] * v
            noised = mean + self._std_list[step] * eps
            here = (chosen == step)[:, None]
            before = torch.where(here, x, before)
            x = torch.where(here, noised, x - self._delta * v)
            after = torch.where(here, x, after)
            # From mean and sample, as the learner will recompute it; using eps itself would differ by rounding.
            log_prob = torch.where(here, gaussian_log_prob(noised, mean, self.sde_std[step]), log_prob)
        trace = {"x_before": self._chunk(before), "x_after": self._chunk(after), "step": chosen}
        return x, self._chunk(log_prob).sum(-1), trace

    def _all_steps(
        self, obs: Mapping[str, Tensor], embedded: Tensor, x: Tensor, noise: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Every step stochastic: Flow-SDE in its one-layer form, or Flow-Noise."""
        times = self.velocity.time(self.times)
        std = self._noise_std(obs)
        eps = noise["eps"].flatten(2)
        chain = [x]
        log_prob = torch.zeros_like(x)
        for step in range(self.config.steps):
            mean = self._step_mean(step, x, self.velocity(embedded, x, times[step]))
            step_std = self.sde_std[step] if std is None else std
            x = mean + step_std * eps[:, step]
            log_prob = log_prob + gaussian_log_prob(x, mean, step_std)
            chain.append(x)
        stacked = torch.stack(chain, 1).reshape(len(x), len(chain), self.horizon, self.action_dim)
        return x, self._chunk(log_prob).sum(-1), {"chain": stacked}

    def _step_mean(self, step: int, x: Tensor, v: Tensor) -> Tensor:
        if self.config.noise is NoiseKind.NOISE:
            return x - self._delta * v
        return self._x_list[step] * x + self._v_list[step] * v

    def _noise_std(self, obs: Mapping[str, Tensor]) -> Tensor | None:
        """Flow-Noise's std [B, H·A], tanh-squashed in log space; None for the SDE forms."""
        if self.config.noise is not NoiseKind.NOISE:
            return None
        low, high = math.log(self.config.sigma_min), math.log(self.config.sigma_max)
        share = 0.5 * (1.0 + torch.tanh(self.noise_head(self._inputs(obs, self.config.actor_inputs))))
        return torch.exp(low + share * (high - low))

    def evaluate(self, obs: Mapping[str, Tensor], trace: Mapping[str, Tensor], with_value: bool = True) -> Evaluation:
        """Recompute log-probability [B, H], entropy [B, H] and value [B] of the sample in ``trace``."""
        embedded = self.velocity.embed(self._inputs(obs, self.config.actor_inputs))
        times = self.velocity.time(self.times)
        if self.config.noise is NoiseKind.SDE_HYBRID:
            step = trace["step"]
            x = trace["x_before"].flatten(1)
            v = self.velocity(embedded, x, times[step])
            mean = self.sde_x[step][:, None] * x + self.sde_v[step][:, None] * v
            std = self.sde_std[step][:, None].expand_as(x)
            log_prob = gaussian_log_prob(trace["x_after"].flatten(1), mean, std)
            entropy = gaussian_entropy(std)
        else:
            log_prob, entropy = self._evaluate_chain(obs, embedded, times, trace["chain"].flatten(2))
        value = self.value(obs) if with_value else None
        return Evaluation(self._chunk(log_prob).sum(-1), self._chunk(entropy).sum(-1), value)

    def _evaluate_chain(
        self, obs: Mapping[str, Tensor], embedded: Tensor, times: Tensor, chain: Tensor
    ) -> tuple[Tensor, Tensor]:
        std = self._noise_std(obs)
        log_prob, entropy = torch.zeros_like(chain[:, 0]), torch.zeros_like(chain[:, 0])
        for step in range(self.config.steps):
            x = chain[:, step]
            mean = self._step_mean(step, x, self.velocity(embedded, x, times[step]))
            step_std = self.sde_std[step].expand_as(x) if std is None else std
            log_prob = log_prob + gaussian_log_prob(chain[:, step + 1], mean, step_std)
            entropy = entropy + gaussian_entropy(step_std)
        return log_prob, entropy

    def value(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The critic's estimate [B]."""
        return self.critic(self._inputs(obs, self.config.critic_inputs)).squeeze(-1)  # type: ignore[no-any-return]

    def flow_matching_loss(
        self, obs: Mapping[str, Tensor], actions: Tensor, mask: Tensor, generator: torch.Generator
    ) -> Tensor:
        """E‖v(x_t, t, o) − (ε − x₀)‖² over unmasked chunk steps.

        ``actions`` [B, H, A] physical; ``mask`` [B, H] False where the chunk is padding. Times are uniform in (0, 1).
        """
        target = self.to_normalised(actions).flatten(1)
        noise = torch.randn(target.shape, generator=generator)
        t = torch.rand((len(target), 1), generator=generator)
        x = (1.0 - t) * target + t * noise
        embedded = self.velocity.embed(self._inputs(obs, self.config.actor_inputs))
        features = self.velocity.time(time_features(t[:, 0], self.config.time_width))
        error = self._chunk((self.velocity(embedded, x, features) - (noise - target)) ** 2).mean(-1)
        return (error * mask).sum() / mask.sum().clamp_min(1)

    def actor_parameters(self) -> list[nn.Parameter]:
        """Everything the policy gradient moves."""
        return [*self.velocity.parameters(), *self.noise_head.parameters()]

    def critic_parameters(self) -> list[nn.Parameter]:
        """The value function's parameters."""
        return list(self.critic.parameters())

    def to_physical(self, normalised: Tensor) -> Tensor:
        """[..., A] in the contract's units."""
        return self.action_offset + self.action_scale * normalised

    def to_normalised(self, physical: Tensor) -> Tensor:
        """Inverse of :meth:`to_physical`."""
        return (physical - self.action_offset) / self.action_scale

    def reads(self) -> tuple[str, ...]:
        """Observation tensors the actor needs."""
        return self.config.actor_inputs

    def architecture(self) -> dict[str, Any]:
        """JSON-able: kind, configuration and input widths. Statistics are weights (buffers), not architecture."""
        config = dataclasses.asdict(self.config) | {"noise": self.config.noise.value}
        widths = {name: len(module.mean) for name, module in self.normalisers.items()}  # type: ignore[arg-type]
        return {"kind": "flow", "config": config, "inputs": widths, "action_dim": self.action_dim}

    def _inputs(self, obs: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
        parts = [self.normalisers[name](obs[name]) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _chunk(self, flat: Tensor) -> Tensor:
        return flat.reshape(len(flat), self.horizon, self.action_dim)


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
