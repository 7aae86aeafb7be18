"""Checkpoints a run goes on from: weights, both optimizers, random states, counters, the trajectory log's cursor.

One folder, replaced whole: ``policy/`` (a policy checkpoint, which ``landbridge policy serve`` takes as it is),
``optimizer.safetensors`` and ``learner.json``. Nothing is pickled. Beside it ``published`` holds the newest version
number that any policy server may have seen: numbers are never used twice, so a run restored to before that version
goes on above it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from landbridge.errors import DataLoss, FailedPrecondition, NotFound
from landbridge.policies.checkpoint import load_checkpoint, save_checkpoint, write_folder_atomically
from landbridge.policies.flow import FlowPolicy
from learner.algorithms.ppo import Optimizers
from learner.buffer import Cursor
from learner.intake import Counters

FORMAT = 1
FOLDER = "checkpoint"
_STATE = "learner.json"
_TENSORS = "optimizer.safetensors"


@dataclass(frozen=True)
class Progress:
    """Everything of a run that is neither weights nor optimizer."""

    version: int
    update: int
    counters: Counters
    cursor: Cursor
    next_ticket: int
    staleness: Mapping[int, int]
    """Versions behind → decisions consumed."""
    seconds: float
    """Spent in training so far."""
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds; :meth:`apply` puts the optimizers and random states back."""

    policy: FlowPolicy
    progress: Progress
    tensors: Mapping[str, Tensor]
    groups: Mapping[str, list[dict[str, Any]]]

    def apply(self, optimizers: Optimizers, generator: torch.Generator) -> None:
        """Put optimizers and generators into the saved state."""
        for name in ("actor", "critic"):
            optimizer: torch.optim.Optimizer = getattr(optimizers, name)
            saved = {k[len(name) + 1 :]: v for k, v in self.tensors.items() if k.startswith(f"{name}.")}
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in saved.items():
                number, _, slot = key.partition(".")
                state.setdefault(int(number), {})[slot] = tensor
            groups = optimizer.state_dict()["param_groups"]
            if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.groups[name]]:
                raise FailedPrecondition(f"the {name}'s optimizer has other parameters than the checkpoint's")
            # Learning rates and the like are the configuration's: a resumed run may change them.
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        generator.set_state(self.tensors["rng.generator"])
        torch.set_rng_state(self.tensors["rng.torch"])


def save(
    run_dir: Path, policy: FlowPolicy, optimizers: Optimizers, generator: torch.Generator, progress: Progress
) -> Path:
    """Write ``run_dir/checkpoint``; when this returns it is on disk whole, before it the old one was."""
    tensors = {"rng.generator": generator.get_state(), "rng.torch": torch.get_rng_state()}
    groups: dict[str, Any] = {}
    for name in ("actor", "critic"):
        state = getattr(optimizers, name).state_dict()
        groups[name] = state["param_groups"]
        for number, slots in state["state"].items():
            for slot, value in slots.items():
                if not isinstance(value, Tensor):
                    raise TypeError(f"{name} optimizer: {slot} is {type(value).__name__}; only tensors are saved")
                tensors[f"{name}.{number}.{slot}"] = value.detach().clone().contiguous()
    content = {"format": FORMAT, "groups": groups, "progress": dataclasses.asdict(progress)}

    def write(folder: Path) -> None:
        save_checkpoint(folder / "policy", policy, version=progress.version, training_step=progress.update)
        save_file(tensors, folder / _TENSORS)
        (folder / _STATE).write_text(json.dumps(content))

    write_folder_atomically(run_dir / FOLDER, write)
    return run_dir / FOLDER


def load(run_dir: Path) -> Restored:
    """Read ``run_dir/checkpoint``; NOT_FOUND where there is none."""
    folder = run_dir / FOLDER
    if not (folder / _STATE).is_file():
        raise NotFound(f"nothing to resume in {run_dir}: {folder / _STATE} is missing; start without --resume")
    try:
        content = json.loads((folder / _STATE).read_text())
        if content["format"] != FORMAT:
            raise FailedPrecondition(f"{folder}: format {content['format']}, this version reads {FORMAT}")
        raw = content["progress"]
        progress = Progress(
            version=raw["version"],
            update=raw["update"],
            counters=Counters(
                raw["counters"]["trained"],
                raw["counters"]["env_steps"],
                tuple((name, count) for name, count in raw["counters"]["dropped"]),
            ),
            cursor=Cursor(raw["cursor"]["next"], tuple(raw["cursor"]["pending"])),
            next_ticket=raw["next_ticket"],
            staleness={int(s): n for s, n in raw["staleness"].items()},
            seconds=raw["seconds"],
            config=raw["config"],
        )
        tensors = load_file(folder / _TENSORS)
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise DataLoss(f"{folder} cannot be read: {type(error).__name__}: {error}") from error
    return Restored(load_checkpoint(folder / "policy").policy, progress, tensors, content["groups"])


def note_published(run_dir: Path, version: int) -> None:
    """Remember, durably and before it is pushed, that ``version`` may be seen outside."""
    path, temporary = run_dir / "published", run_dir / "published.tmp"
    with temporary.open("w") as file:
        file.write(f"{version}\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def last_published(run_dir: Path) -> int:
    """The newest version that may have been seen; −1 for none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int((run_dir / "published").read_text())
    return -1
