"""What a campaign compares, on what, in which order, and how it will be judged: written down before the first trial.

Everything random about a campaign follows from its design: the order of trials, which arm is shown as A, the policy's
noise. Keys are SHA-256, so neither a library's version nor what ran before changes them.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from landbridge.config import from_mapping, load, option, to_mapping
from landbridge.errors import InvalidArgument
from robot_bridge.campaign import statistics
from robot_bridge.campaign.statistics import Alternative, Test


@dataclass(frozen=True)
class Arm:
    """One of the policies compared."""

    label: str
    version: int
    """Of its weights at the policy server."""


@dataclass(frozen=True)
class Design:
    """A campaign file. All of it is frozen by ``lock``, the two addresses excepted."""

    arms: dict[str, int] = option(help="label: version of the weights; others are compared with the first")
    trials: int = option(25, "trials of each arm, one an initial condition", minimum=1)
    name: str = option("campaign", "for people")
    policy: str = option("127.0.0.1:50051", "HOST:PORT of the policy server")
    env: str = option("127.0.0.1:50061", "HOST:PORT of a robot or a simulator")
    seeds: tuple[int, ...] = option((), "initial conditions, as reset seeds; none: count up from first_seed", minimum=0)
    first_seed: int = option(500_000, "of the initial conditions where seeds names none", minimum=0)
    block: int = option(5, "initial conditions a block; within a block all arms' trials are shuffled", minimum=1)
    randomisation: int = option(0, "seed of order, blinding and policy noise", minimum=0)
    max_decisions: int = option(0, "chunks after which a trial ends; 0: when the environment ends it", minimum=0)
    steps: int = option(0, "actions executed of each chunk; 0: as many as policy and environment allow", minimum=0)
    success: Literal["at_end", "once"] = option("once", "a trial succeeds if the task was solved: at its end, or once")
    test: Test = option("fisher", "fisher: Fisher's exact test; mcnemar: McNemar's, on pairs of one initial condition")
    alternative: Alternative = option("two-sided", "greater: only a later arm being better counts")
    alpha: float = option(0.05, "largest p-value at which the report says better", minimum=0.0, maximum=0.5)

    def __post_init__(self) -> None:
        if not 1 <= len(self.arms) <= len(string.ascii_uppercase):
            raise ValueError(f"arms: expected 1 to {len(string.ascii_uppercase)} of them, got {len(self.arms)}")
        if wrong := [label for label, version in self.arms.items() if not label or version < 0]:
            raise ValueError(f"arms: expected LABEL: VERSION with a version of 0 or more; got {wrong[0]!r}")
        if self.seeds and (len(self.seeds) != self.trials or len(set(self.seeds)) < len(self.seeds)):
            raise ValueError(
                f"seeds: expected {self.trials} different ones, one a trial of each arm; got {len(self.seeds)}, "
                f"{len(set(self.seeds))} of them different"
            )

    def conditions(self) -> tuple[int, ...]:
        """Reset seeds; each is used once by every arm."""
        return self.seeds or tuple(range(self.first_seed, self.first_seed + self.trials))

    def policies(self) -> tuple[Arm, ...]:
        """The arms, the reference first."""
        return tuple(Arm(label, version) for label, version in self.arms.items())

    def locked_part(self) -> dict[str, Any]:
        """What may not change once the first trial ran. The order of arms is part of it: the first is the reference."""
        locked = {key: value for key, value in to_mapping(self).items() if key not in ("policy", "env")}
        return locked | {"arms": [[label, version] for label, version in self.arms.items()]}

    def digest(self) -> str:
        """SHA-256, hexadecimal, of the locked part as canonical JSON (sorted keys, no spaces)."""
        text = json.dumps(self.locked_part(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def blinded(self) -> dict[str, str]:
        """Arm's label → the letter it is shown as while the campaign runs."""
        drawn = sorted(self.arms, key=lambda label: _key(self.randomisation, "letter", label))
        return {label: string.ascii_uppercase[place] for place, label in enumerate(drawn)}


@dataclass(frozen=True)
class Trial:
    """One planned trial."""

    number: int
    """Place in the order, from 1."""
    block: int
    seed: int
    """Its initial condition."""
    arm: Arm


def load_design(file: str | Path | None, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Design:
    """A campaign file with ``KEY=VALUE`` overrides; ``arms`` like ``"rl=31"`` stand in for the file's."""
    given = [_arm(text) for text in arms]
    if len(dict(given)) < len(given):
        raise InvalidArgument(f"--arm: every label once, got {[label for label, _ in given]}", field="arms")
    return load(Design, file, [*overrides, *([f"arms={json.dumps(dict(given))}"] if given else [])])


def from_locked(locked: Mapping[str, Any], policy: str, env: str) -> Design:
    """The design whose :meth:`Design.locked_part` this is."""
    return from_mapping(Design, {**locked, "arms": dict(locked["arms"]), "policy": policy, "env": env})


def schedule(design: Design) -> list[Trial]:
    """All trials in the order they are run: blocks of initial conditions, shuffled within."""
    conditions = design.conditions()
    trials: list[Trial] = []
    for block, start in enumerate(range(0, len(conditions), design.block)):
        members = [(seed, arm) for seed in conditions[start : start + design.block] for arm in design.policies()]
        members.sort(key=lambda pair: _key(design.randomisation, "order", pair[0], pair[1].label))
        trials += [Trial(len(trials) + place, block, seed, arm) for place, (seed, arm) in enumerate(members, 1)]
    return trials


def noise_seed(design: Design, trial: Trial, decision: int) -> int:
    """Of the policy's noise at a trial's ``decision``-th chunk; 64 bits. A repeated trial has the same ones."""
    return int.from_bytes(_key(design.randomisation, "noise", trial.number, decision)[:8], "little")


def plan_text(design: Design, wanted: float = 0.8) -> str:
    """What the design can find out, for people who can still change it."""
    arms = ", ".join(f"{arm.label} (version {arm.version})" for arm in design.policies())
    tests = {"fisher": "Fisher's exact test", "mcnemar": "McNemar's exact test"}
    lines = [
        f"campaign   {design.name}: {arms}",
        f"trials     {design.trials} of each arm, {design.trials * len(design.arms)} in all, "
        f"in blocks of {design.block} initial conditions, shuffled",
        f"success    {'at the end of the trial' if design.success == 'at_end' else 'at any moment of the trial'}",
        f"test       {tests[design.test]}, {design.alternative}, alpha {design.alpha:g}",
        f"design     {design.digest()}",
    ]
    if len(design.arms) < 2:
        return "\n".join(lines)
    comparisons = len(design.arms) - 1
    alpha = design.alpha / comparisons
    lines += ["", f"found with probability {100 * wanted:.0f} % or more, where the first arm's true rate is"]
    for rate in (0.1, 0.3, 0.5, 0.7, 0.9):
        found = statistics.detectable(design.test, design.trials, rate, alpha, wanted, design.alternative)
        what = "no difference, however large" if found is None else f"{100 * found:4.1f} points or more"
        lines.append(f"  {100 * rate:3.0f} %     {what}")
    if comparisons > 1:
        lines.append(f"({comparisons} comparisons: each at alpha {alpha:.4g}; Holm's rule finds a little more)")
    return "\n".join(lines)


def _arm(text: str) -> tuple[str, int]:
    label, _, version = text.rpartition("=")
    if not label or not version.isdecimal():
        raise InvalidArgument(f"--arm {text!r}: expected LABEL=VERSION, e.g. rl=31", field="arms")
    return label, int(version)


def _key(*parts: object) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
