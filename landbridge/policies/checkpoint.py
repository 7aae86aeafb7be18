"""Checkpoints: ``weights.safetensors`` and ``manifest.json`` in one folder, written atomically, never pickled.

The manifest says what the weights are: architecture and its hash, contract, version, training step. Normalisation
statistics are buffers of the policy and travel with the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_json, contract_to_json
from landbridge.errors import DataLoss, FailedPrecondition, NotFound
from landbridge.policies.flow import FlowPolicy, build_flow

FORMAT = 1
WEIGHTS, MANIFEST = "weights.safetensors", "manifest.json"

_BUILDERS: dict[str, Callable[[Mapping[str, Any], Contract], FlowPolicy]] = {"flow": build_flow}


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A policy with its weights, and what its manifest says."""

    policy: FlowPolicy
    version: int
    training_step: int
    extra: Mapping[str, Any]


def architecture_json(architecture: Mapping[str, Any]) -> str:
    """Canonical JSON of an architecture: sorted keys, no spaces."""
    return json.dumps(architecture, sort_keys=True, separators=(",", ":"))


def architecture_hash(architecture: Mapping[str, Any]) -> str:
    """sha-256, hex, of the canonical JSON. Weights fit a policy exactly when these agree."""
    return hashlib.sha256(architecture_json(architecture).encode()).hexdigest()


def build_policy(architecture: Mapping[str, Any], contract: Contract) -> FlowPolicy:
    """An untrained policy of this architecture."""
    kind = architecture.get("kind")
    if kind not in _BUILDERS:
        raise FailedPrecondition(f"architecture kind {kind!r} is unknown; this version builds {sorted(_BUILDERS)}")
    return _BUILDERS[kind](architecture, contract)


def save_checkpoint(
    folder: Path, policy: FlowPolicy, *, version: int, training_step: int, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write ``folder`` whole or not at all (a temporary sibling, synced, then renamed over it)."""
    architecture = policy.architecture()
    manifest = {
        "format": FORMAT,
        "architecture": architecture,
        "architecture_hash": architecture_hash(architecture),
        "contract": contract_to_json(policy.contract),
        "reads": list(policy.reads()),
        "version": version,
        "training_step": training_step,
        "extra": dict(extra or {}),
    }

    def write(target: Path) -> None:
        save_file({k: v.contiguous() for k, v in policy.state_dict().items()}, target / WEIGHTS)
        (target / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))

    write_folder_atomically(folder, write)
    return folder


def write_folder_atomically(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary folder, sync it to disk, and put it in the place of ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write(temporary)
    for path in [*temporary.iterdir(), temporary]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Read a checkpoint; every mismatch between manifest and weights is an error that says which."""
    manifest = read_manifest(folder)
    architecture = manifest["architecture"]
    actual = architecture_hash(architecture)
    if actual != manifest["architecture_hash"]:
        raise DataLoss(
            f"{folder / MANIFEST}: the architecture's hash is {actual[:12]}…, the manifest says "
            f"{manifest['architecture_hash'][:12]}…; the file was edited or damaged"
        )
    policy = build_policy(architecture, contract_from_json(manifest["contract"]))
    try:
        weights = load_file(folder / WEIGHTS)
    except Exception as error:  # safetensors raises its own type, and OSError for a missing file
        raise DataLoss(f"{folder / WEIGHTS} cannot be read: {error}") from error
    load_weights(policy, weights, str(folder))
    return LoadedCheckpoint(policy, int(manifest["version"]), int(manifest["training_step"]), manifest["extra"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest alone: needs no weights."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFound(f"no checkpoint at {folder}: {MANIFEST} is missing; give the folder that save_checkpoint wrote")
    manifest: dict[str, Any] = json.loads(path.read_text())
    if manifest.get("format") != FORMAT:
        raise FailedPrecondition(f"{path}: format {manifest.get('format')!r}, this version reads format {FORMAT}")
    return manifest


def load_weights(policy: torch.nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Strict ``load_state_dict`` whose error names the first tensor at fault."""
    wanted = policy.state_dict()
    missing, unknown = sorted(wanted.keys() - weights.keys()), sorted(weights.keys() - wanted.keys())
    if missing or unknown:
        raise DataLoss(f"{source}: missing tensors {missing[:3]}, unknown tensors {unknown[:3]}")
    for name, tensor in wanted.items():
        if tensor.shape != weights[name].shape or tensor.dtype != weights[name].dtype:
            raise DataLoss(
                f"{source}: {name} is {weights[name].dtype} {list(weights[name].shape)}, "
                f"{tensor.dtype} {list(tensor.shape)} expected"
            )
    policy.load_state_dict(dict(weights))
