"""Supervised fine-tuning: imitation of demonstrations on the flow-matching loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from landbridge.config import option
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_json
from landbridge.errors import InvalidArgument, NotFound
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, Statistics, from_bounds


@dataclass(frozen=True)
class SFTConfig:
    """Options of imitation."""

    steps: int = option(3000, "gradient steps", minimum=1)
    batch: int = option(256, "chunks a step", minimum=1)
    learning_rate: float = option(1e-3, "peak; decays by a cosine to a tenth", minimum=0.0)
    weight_decay: float = option(1e-4, "of AdamW", minimum=0.0)
    ema: float = option(
        0.995, "decay of the averaged weights that are kept, 0 for the last", minimum=0.0, maximum=0.9999
    )
    seed: int = option(0, "of weights, batches and noise")


@dataclass(frozen=True)
class Demonstrations:
    """Episodes end to end: observations {name: [S, …]}, actions [S, A], lengths [E] with Σ = S."""

    contract: Contract
    observations: Mapping[str, np.ndarray]
    actions: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        steps = int(self.lengths.sum())
        if steps < 1 or self.lengths.min() < 1:
            raise InvalidArgument(f"{len(self.lengths)} episodes of {steps} steps: each needs one step at least")
        if self.actions.ndim != 2 or self.actions.shape[1:] != self.contract.action.shape:
            raise InvalidArgument(
                f"actions {self.actions.shape}: [steps, {list(self.contract.action.shape)}] expected", field="actions"
            )
        for name, value in {"actions": self.actions, **self.observations}.items():
            if len(value) != steps:
                raise InvalidArgument(f"lengths add up to {steps}, {name} has {len(value)} steps", field=name)

    @staticmethod
    def load(path: Path) -> Demonstrations:
        """Read the ``.npz`` that ``landbridge sim demos`` wrote (no pickles inside)."""
        if not path.is_file():
            raise NotFound(f"no demonstrations at {path}; make them with `landbridge sim demos`")
        with np.load(path, allow_pickle=False) as data:
            if lacking := sorted({"contract", "actions", "lengths"} - set(data.files)):
                raise InvalidArgument(f"{path}: no {', '.join(lacking)}; it holds {sorted(data.files)}")
            contract = contract_from_json(json.loads(str(data["contract"])))
            names = [name.removeprefix("obs_") for name in data.files if name.startswith("obs_")]
            made = Demonstrations(contract, {n: data[f"obs_{n}"] for n in names}, data["actions"], data["lengths"])
        return made

    def first(self, episodes: int) -> Demonstrations:
        """The first ``episodes`` of them: fewer demonstrations, a weaker start."""
        if episodes > len(self.lengths):
            raise InvalidArgument(f"{episodes} episodes asked for, {len(self.lengths)} are there")
        steps = int(self.lengths[:episodes].sum())
        cut = {name: value[:steps] for name, value in self.observations.items()}
        return Demonstrations(self.contract, cut, self.actions[:steps], self.lengths[:episodes])

    def chunks(self, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """For every step the next ``horizon`` actions [S, H, A], and which of them exist [S, H]."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        ends = np.repeat(starts + self.lengths, self.lengths)
        index = np.arange(len(self.actions))[:, None] + np.arange(horizon)[None, :]
        mask = index < ends[:, None]
        return self.actions[np.minimum(index, ends[:, None] - 1)], mask


def statistics_of(demos: Demonstrations, names: tuple[str, ...], scale: tuple[float, ...] = ()) -> Statistics:
    """Mean and std of the observations named; actions scaled by the contract's bounds, or by ``scale``."""
    low, high = demos.contract.action.bounds()
    if scale:
        bounded = np.isfinite(low) & np.isfinite(high)
        offset = (0.5 * (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0))).tolist()
        scales = list(scale)
    else:
        offset, scales = from_bounds(low.tolist(), high.tolist(), "action")
    return Statistics(
        observation={n: (demos.observations[n].mean(0).tolist(), demos.observations[n].std(0).tolist()) for n in names},
        action_offset=offset,
        action_scale=scales,
    )


def new_policy(demos: Demonstrations, config: FlowPolicyConfig, seed: int, scale: tuple[float, ...] = ()) -> FlowPolicy:
    """An untrained policy for the demonstrations' contract, with their statistics."""
    torch.manual_seed(seed)
    names = tuple(sorted({*config.actor_inputs, *config.critic_inputs}))
    return FlowPolicy(demos.contract, config, statistics_of(demos, names, scale))


class Rehearsal:
    """The policy's flow-matching loss on random chunks of demonstrations."""

    def __init__(self, policy: FlowPolicy, demos: Demonstrations, batch: int) -> None:
        """``batch`` chunks a call."""
        self._policy, self._batch = policy, batch
        chunks, mask = demos.chunks(policy.horizon)
        self._actions, self._present = torch.from_numpy(chunks).float(), torch.from_numpy(mask)
        self._obs = {n: torch.from_numpy(demos.observations[n]).float() for n in policy.config.actor_inputs}

    def __call__(self, generator: torch.Generator) -> torch.Tensor:
        """The loss [], of a batch that ``generator`` draws."""
        index = torch.randint(len(self._actions), (self._batch,), generator=generator)
        rows = {name: value[index] for name, value in self._obs.items()}
        return self._policy.flow_matching_loss(rows, self._actions[index], self._present[index], generator)


def train_sft(
    policy: FlowPolicy,
    demos: Demonstrations,
    config: SFTConfig,
    on_progress: Callable[[int, float], None] = lambda step, loss: None,
) -> dict[str, float]:
    """Train in place; returns first and last loss (means over 100 steps)."""
    generator = torch.Generator().manual_seed(config.seed)
    rehearse = Rehearsal(policy, demos, config.batch)
    parameters = policy.actor_parameters()
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps, 0.1 * config.learning_rate)
    average = [p.detach().clone() for p in parameters]
    losses = []
    for step in range(config.steps):
        loss = rehearse(generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        # A short run has no time to forget its first weights: the decay grows from 0.1 to its final value.
        decay = min(config.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1.0 - decay)
        losses.append(float(loss.detach()))
        if step % 50 == 49 or step + 1 == config.steps:
            on_progress(step + 1, float(np.mean(losses[-50:])))
    if config.ema:
        with torch.no_grad():
            for parameter, value in zip(parameters, average, strict=True):
                parameter.copy_(value)
    return {"first_loss": float(np.mean(losses[:100])), "last_loss": float(np.mean(losses[-100:]))}
