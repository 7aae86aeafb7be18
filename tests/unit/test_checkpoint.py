"""Checkpoints come back as they went, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flow_parts import CONTRACT, make_policy, noise_for, observations
from safetensors.torch import load_file, save_file

from landbridge.errors import DataLoss, FailedPrecondition, LandbridgeError, NotFound
from landbridge.policies import checkpoint as module
from landbridge.policies.checkpoint import (
    MANIFEST,
    WEIGHTS,
    architecture_hash,
    build_policy,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
    write_folder_atomically,
)
from landbridge.policies.flow import NoiseKind
from landbridge.policies.protocol import SampleMode


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "point", make_policy(), version=3, training_step=70, extra={"note": [1, 2]})


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def reseal(folder: Path) -> None:
    """Make the manifest's checksum match the weights, as a careful forger would."""
    edit(folder, lambda m: m.update(weights_sha256=module._sha256(folder / WEIGHTS)))


@pytest.mark.parametrize("kind", list(NoiseKind))
def test_a_policy_comes_back_computing_the_same_to_the_bit(tmp_path: Path, kind: NoiseKind) -> None:
    policy = make_policy(kind, critic_inputs=("privileged", "state"))
    loaded = load_checkpoint(save_checkpoint(tmp_path / "a", policy, version=3, training_step=70, extra={"x": [1]}))
    assert (loaded.version, loaded.training_step, loaded.extra) == (3, 70, {"x": [1]})
    assert loaded.policy.contract == CONTRACT and loaded.policy.config == policy.config
    obs, noise = observations(5), noise_for(policy, range(5))
    with torch.no_grad():
        one, other = (p.act(obs, noise, SampleMode.STOCHASTIC, True) for p in (policy, loaded.policy))
    assert torch.equal(one.actions, other.actions) and torch.equal(one.log_prob, other.log_prob)
    assert one.value is not None and other.value is not None and torch.equal(one.value, other.value)


def test_the_manifest_says_what_a_reader_needs(saved: Path) -> None:
    manifest = read_manifest(saved)
    assert manifest["reads"] == ["state"]
    assert manifest["normalisation"]["observation"]["state"][1] == [0.5] * 6
    assert manifest["architecture"]["config"]["noise"] == "sde_hybrid"
    assert manifest["contract"]["task"] == "toy"
    assert sorted(path.name for path in saved.iterdir()) == [MANIFEST, WEIGHTS]


def test_the_hash_tells_architectures_apart_and_not_weights() -> None:
    assert architecture_hash(make_policy(seed=0).architecture()) == architecture_hash(
        make_policy(seed=1).architecture()
    )
    seen = {
        architecture_hash(make_policy(**options).architecture())  # type: ignore[arg-type]
        for options in ({}, {"hidden": (32, 33)}, {"steps": 5}, {"noise_level": 0.5}, {"noise": NoiseKind.NOISE})
    }
    assert len(seen) == 5


def test_the_hash_survives_json() -> None:
    architecture = make_policy().architecture()
    assert architecture_hash(json.loads(json.dumps(architecture))) == architecture_hash(architecture)


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], object], type[LandbridgeError], str]] = {
    "architecture": (lambda m: m["architecture"]["config"].update(noise_level=0.1), DataLoss, "architecture's hash"),
    "hash": (lambda m: m.update(architecture_hash="0" * 64), DataLoss, "architecture's hash"),
    "contract": (lambda m: m["contract"].update(tsk="x"), DataLoss, "not a contract.*tsk"),
    "normalisation": (lambda m: m["normalisation"]["action_scale"].__setitem__(0, 9.0), DataLoss, "action_scale"),
    "checksum": (lambda m: m.update(weights_sha256="0" * 64), DataLoss, "sha-256"),
    "a missing key": (lambda m: m.pop("version"), DataLoss, "'version' is None, int expected"),
    "a key of another type": (lambda m: m.update(training_step="7"), DataLoss, "'training_step' is '7', int expected"),
    "an unknown key": (lambda m: m.update(pickle="gASV"), DataLoss, r"unknown keys \['pickle'\]"),
    "format": (lambda m: m.update(format=99), FailedPrecondition, "format 99, this version reads format 1"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_manifest_that_was_edited_is_refused(saved: Path, what: str) -> None:
    change, error, message = TAMPERED[what]
    edit(saved, change)
    with pytest.raises(error, match=message):
        load_checkpoint(saved)


def rehash(manifest: dict[str, Any]) -> None:
    manifest["architecture_hash"] = architecture_hash(manifest["architecture"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a["config"].update(hidden=[32, 33]), DataLoss, "is torch.float32 .* expected"),
        (lambda a: a["config"].update(hidden=[32, 32, 32]), DataLoss, "missing tensors"),
        (lambda a: a.update(kind="diffusion"), FailedPrecondition, r"'diffusion' is unknown.*\['flow'\]"),
        (lambda a: a["config"].update(depth=3), FailedPrecondition, "does not build.*depth"),
        (lambda a: a["config"].update(noise="pink"), FailedPrecondition, "does not build.*pink"),
        (lambda a: a.pop("inputs"), FailedPrecondition, "does not build.*inputs"),
        (lambda a: a["inputs"].update(state=5), FailedPrecondition, "width 5, the contract says 6"),
    ],
)
def test_an_architecture_that_does_not_fit_its_weights_is_refused_even_with_the_right_hash(
    saved: Path, change: Callable[[dict[str, Any]], object], error: type[LandbridgeError], message: str
) -> None:
    edit(saved, lambda m: (change(m["architecture"]), rehash(m)))
    with pytest.raises(error, match=message):
        load_checkpoint(saved)


def test_a_flipped_bit_in_the_weights_is_noticed(saved: Path) -> None:
    data = bytearray((saved / WEIGHTS).read_bytes())
    data[-5] ^= 1
    (saved / WEIGHTS).write_bytes(data)
    with pytest.raises(DataLoss, match="sha-256"):
        load_checkpoint(saved)


def test_weights_cut_short_are_refused(saved: Path) -> None:
    (saved / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes()[:-100])
    reseal(saved)
    with pytest.raises(DataLoss, match="cannot be read"):
        load_checkpoint(saved)


@pytest.mark.parametrize("how", ["missing", "extra", "dtype"])
def test_tensors_missing_unknown_or_of_another_type_are_named(saved: Path, how: str) -> None:
    weights = load_file(saved / WEIGHTS)
    name = "critic.head.bias"
    if how == "missing":
        del weights[name]
    elif how == "extra":
        weights["stranger"] = torch.zeros(1)
    else:
        weights[name] = weights[name].double()
    save_file(weights, saved / WEIGHTS)
    reseal(saved)
    with pytest.raises(DataLoss, match="stranger" if how == "extra" else name):
        load_checkpoint(saved)


def test_what_is_not_there_or_not_json_is_said(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint at"):
        load_checkpoint(tmp_path / "nowhere")
    (saved / WEIGHTS).unlink()
    with pytest.raises(DataLoss, match="is missing; the checkpoint is incomplete"):
        load_checkpoint(saved)
    (saved / MANIFEST).write_text("{")
    with pytest.raises(DataLoss, match="is not JSON"):
        load_checkpoint(saved)
    (saved / MANIFEST).write_text("[]")
    with pytest.raises(FailedPrecondition, match="format None"):
        load_checkpoint(saved)


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "renamed"])
def test_saving_over_a_checkpoint_leaves_the_new_one_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(module, "_exchange", lambda one, other: False)
    save_checkpoint(saved, make_policy(seed=5), version=4, training_step=80)
    assert load_checkpoint(saved).version == 4
    assert [path.name for path in saved.parent.iterdir()] == ["point"]


def test_a_failed_save_leaves_the_old_checkpoint_and_nothing_else(saved: Path) -> None:
    def fail(target: Path) -> None:
        (target / MANIFEST).write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_folder_atomically(saved, fail)
    assert load_checkpoint(saved).version == 3
    assert [path.name for path in saved.parent.iterdir()] == ["point"]


def test_everything_is_on_disk_before_the_folder_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    existed: list[bool] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        existed.append((tmp_path / "point").exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save_checkpoint(tmp_path / "point", make_policy(), version=0, training_step=0)
    assert {MANIFEST, WEIGHTS} <= set(synced[:-2]) and synced[-1] == tmp_path.name
    assert existed == [False] * (len(existed) - 1) + [True], "and the folder that holds it after"


def test_a_built_policy_has_the_architecture_asked_for() -> None:
    architecture = make_policy(NoiseKind.NOISE, hidden=(8, 9)).architecture()
    assert build_policy(json.loads(json.dumps(architecture)), CONTRACT).architecture() == architecture
