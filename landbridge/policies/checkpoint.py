"""Checkpoints: ``weights.safetensors`` and ``manifest.json`` in one folder, written atomically, never pickled.

The manifest says what the weights are: architecture and its hash, contract, version, training step, and the sha-256
of the weights' file. Normalisation statistics are buffers of the policy and travel with the weights; the manifest
repeats them for its reader, and a checkpoint whose two copies differ is refused.
"""

from __future__ import annotations

import ctypes
import dataclasses
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
from landbridge.errors import DataLoss, FailedPrecondition, InvalidArgument, NotFound
from landbridge.policies.flow import FlowPolicy, build_flow

FORMAT = 1
WEIGHTS, MANIFEST = "weights.safetensors", "manifest.json"

_KEYS = {
    "architecture": dict,
    "architecture_hash": str,
    "contract": dict,
    "extra": dict,
    "format": int,
    "normalisation": dict,
    "reads": list,
    "training_step": int,
    "version": int,
    "weights_sha256": str,
}
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
    try:
        return _BUILDERS[kind](architecture, contract)
    except (KeyError, TypeError, ValueError) as error:
        raise FailedPrecondition(f"architecture of kind {kind!r} does not build: {error}") from error


def save_checkpoint(
    folder: Path, policy: FlowPolicy, *, version: int, training_step: int, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write ``folder`` whole or not at all (a temporary sibling, synced, then put in its place).

    ``extra`` must be JSON-able; it comes back as given.
    """
    architecture = policy.architecture()
    manifest = {
        "format": FORMAT,
        "architecture": architecture,
        "architecture_hash": architecture_hash(architecture),
        "contract": contract_to_json(policy.contract),
        "reads": list(policy.reads()),
        "normalisation": dataclasses.asdict(policy.statistics()),
        "version": version,
        "training_step": training_step,
        "extra": dict(extra or {}),
    }

    def write(target: Path) -> None:
        save_file({k: v.contiguous() for k, v in policy.state_dict().items()}, target / WEIGHTS)
        manifest["weights_sha256"] = _sha256(target / WEIGHTS)
        (target / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))

    write_folder_atomically(folder, write)
    return folder


def write_folder_atomically(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary folder, sync it to disk, and put it in the place of ``folder``.

    A reader, or a crash at any moment, finds the old folder or the new one. When ``write`` raises, the old one stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        write(temporary)
        for path in [*temporary.iterdir(), temporary]:
            _sync(path)
        if not folder.exists():
            temporary.rename(folder)
        elif not _exchange(temporary, folder):
            # Without the exchange there is a moment with neither; the old one is then beside it, under this name.
            old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            folder.rename(old)
            temporary.rename(folder)
            shutil.rmtree(old)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step (Linux's renameat2); False where kernel or file system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataLoss(f"{path} is missing; the checkpoint is incomplete")
    if (found := _sha256(path)) != manifest["weights_sha256"]:
        raise DataLoss(
            f"{path}: its sha-256 is {found[:12]}…, the manifest says {manifest['weights_sha256'][:12]}…; "
            "the file was damaged, or belongs to another checkpoint"
        )
    try:
        contract = contract_from_json(manifest["contract"])
    except InvalidArgument as error:
        raise DataLoss(f"{folder / MANIFEST}: {error}") from error
    policy = build_policy(architecture, contract)
    try:
        weights = load_file(path)
    except Exception as error:  # safetensors raises a type of its own
        raise DataLoss(f"{path} cannot be read: {error}") from error
    load_weights(policy, weights, str(folder))
    _check_normalisation(policy, manifest["normalisation"], folder)
    return LoadedCheckpoint(policy, manifest["version"], manifest["training_step"], manifest["extra"])


def _check_normalisation(policy: FlowPolicy, stated: Mapping[str, Any], folder: Path) -> None:
    # Through JSON, so that tuples and lists compare alike; float32 values survive it exactly.
    held = json.loads(json.dumps(dataclasses.asdict(policy.statistics())))
    wrong = [name for name in held.keys() | stated.keys() if held.get(name) != stated.get(name)]
    if wrong:
        raise DataLoss(f"{folder / MANIFEST}: normalisation of {sorted(wrong)} differs from that in {WEIGHTS}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest alone: needs no weights. Every key is there and of its type; NOT_FOUND, DATA_LOSS otherwise."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFound(f"no checkpoint at {folder}: {MANIFEST} is missing; give the folder that save_checkpoint wrote")
    try:
        manifest = json.loads(path.read_text())
    except ValueError as error:
        raise DataLoss(f"{path} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        held = manifest.get("format") if isinstance(manifest, dict) else None
        raise FailedPrecondition(f"{path}: format {held!r}, this version reads format {FORMAT}")
    for key, kind in _KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise DataLoss(f"{path}: {key!r} is {manifest.get(key)!r}, {kind.__name__} expected")
    if unknown := sorted(manifest.keys() - _KEYS.keys()):
        raise DataLoss(f"{path}: unknown keys {unknown}; there are {sorted(_KEYS)}")
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
