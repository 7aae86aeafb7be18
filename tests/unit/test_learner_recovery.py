"""A run that is restored goes on as if it had never stopped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from learner_parts import trajectory
from learning_parts import json_lines, pendulum_policy

from landbridge.config import load
from landbridge.errors import DataLoss, FailedPrecondition, NotFound
from landbridge.policies.checkpoint import load_checkpoint
from learner import recovery
from learner.algorithms.registry import algorithm
from learner.buffer import Cursor, Record
from learner.config import LearnConfig
from learner.intake import Counters, Drop
from learner.journal import Journal
from learner.metrics import Metrics, Report
from learner.train import Model, train_on
from learner.trajectories import Meta

CONFIG = load(
    LearnConfig, None, ["policy=a:1", "checkpoint=x", "ppo.epochs=2", "ppo.minibatch=4", "ppo.learning_rate=1e-3"]
)
PROGRESS = recovery.Progress(
    version=7,
    update=3,
    counters=Counters(12, 480, (("too_old", 2),)),
    cursor=Cursor(20, (15, 19)),
    next_ticket=31,
    staleness={0: 40, 1: 8},
    seconds=12.5,
    config={"batch": 4},
)


def new_model(seed: int = 0) -> Model:
    policy, ppo = pendulum_policy(seed), algorithm("ppo")
    optimizers = ppo.make_optimizers(policy, CONFIG.ppo)
    return Model(policy, ppo, CONFIG.ppo, optimizers, torch.Generator().manual_seed(5))


def train(model: Model, updates: range) -> None:
    for update in updates:
        train_on(model, [trajectory(f"t-{i}", seed=10 * update + i) for i in range(4)], update, CONFIG)


def restore(run_dir: Path) -> Model:
    restored, ppo = recovery.load(run_dir), algorithm("ppo")
    optimizers = ppo.make_optimizers(restored.policy, CONFIG.ppo)
    generator = torch.Generator()
    restored.apply(optimizers, generator)
    return Model(restored.policy, ppo, CONFIG.ppo, optimizers, generator, restored.progress.update)


def save(model: Model, run_dir: Path, progress: recovery.Progress = PROGRESS) -> Path:
    return recovery.save(run_dir, model.policy, model.optimizers, model.generator, progress)


def test_updates_after_a_restore_equal_those_without_one_bit_for_bit(tmp_path: Path) -> None:
    model = new_model()
    train(model, range(3))
    save(model, tmp_path)
    torch.manual_seed(99)  # another process has other random states
    restored = restore(tmp_path)
    for continued in (model, restored):
        train(continued, range(3, 6))
    assert model.update == restored.update == 6
    for name, tensor in model.policy.state_dict().items():
        assert torch.equal(tensor, restored.policy.state_dict()[name]), name


def test_everything_else_comes_back_as_it_was(tmp_path: Path) -> None:
    save(new_model(), tmp_path)
    assert recovery.load(tmp_path).progress == PROGRESS
    assert load_checkpoint(tmp_path / "checkpoint" / "policy").version == 7, "a policy server takes it as it is"


def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(new_model(), tmp_path)

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recovery, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        save(new_model(1), tmp_path)
    assert recovery.load(tmp_path).progress == PROGRESS
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_nothing_to_resume_and_damage_are_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="without --resume"):
        recovery.load(tmp_path)
    folder = save(new_model(), tmp_path)
    whole = (folder / "learner.json").read_text()
    (folder / "learner.json").write_text(whole[:-20])
    with pytest.raises(DataLoss):
        recovery.load(tmp_path)
    (folder / "learner.json").write_text(json.dumps(json.loads(whole) | {"format": 99}))
    with pytest.raises(FailedPrecondition, match="99"):
        recovery.load(tmp_path)
    (folder / "learner.json").write_text(whole)
    (folder / "optimizer.safetensors").write_bytes(b"junk")
    with pytest.raises(DataLoss):
        recovery.load(tmp_path)


def test_the_newest_version_seen_outside_is_remembered(tmp_path: Path) -> None:
    assert recovery.last_published(tmp_path) == -1
    for version in (3, 12):
        recovery.note_published(tmp_path, version)
        assert recovery.last_published(tmp_path) == version


def test_metrics_of_updates_that_were_lost_go_when_a_run_is_restored(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for update in range(1, 5):
        metrics.add(Report(update, update, 1.0 * update, {"kl": 0.1}))
    metrics.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 5, "vers')  # the process died while writing
    restored = Metrics(tmp_path, restored_update=2)
    restored.add(Report(3, 9, 3.0, {"kl": 0.2}))
    lines = json_lines(tmp_path / "metrics.jsonl")
    assert [(line["update"], line["version"]) for line in lines] == [(1, 1), (2, 2), (3, 9)]
    assert [report.update for report in restored.from_update(2, 0.0)[0]] == [2, 3]
    restored.close()


def test_the_journal_keeps_what_the_checkpoint_had_consumed(tmp_path: Path) -> None:
    path = tmp_path / "consumed.jsonl"
    journal = Journal(path, None)
    journal.trained(1, [0, 2])
    journal.dropped(Drop(Record(1, "id", Meta(0, 0, 2, 1), b""), "too_old"), 1)
    journal.trained(2, [3, 5])
    journal.dropped(Drop(Record(4, "id", Meta(0, 0, 2, 1), b""), "too_old"), 2)
    Journal(path, Cursor(4, (3,)))
    assert [line.get("trained", line.get("dropped")) for line in json_lines(path)] == [[0, 2], 1]
    Journal(path, None)
    assert json_lines(path) == [], "a new run has a new journal"


def test_counts_are_of_numbers_not_text(tmp_path: Path) -> None:
    """JSON turns integer keys into text."""
    save(new_model(), tmp_path)
    assert Counter(recovery.load(tmp_path).progress.staleness) == Counter({0: 40, 1: 8})
