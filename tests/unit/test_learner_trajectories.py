"""What travels is what was recorded; what a broken sender can get wrong is refused by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learner_parts import LAYOUT, message, trajectory

from landbridge.errors import InvalidArgument
from landbridge.tensors import encode
from landbridge.v1 import learner_pb2 as pb
from learner.advantages import End
from learner.seeds import TRAINING_SEEDS, env_seed, episode_seed, noise_seed
from learner.trajectories import describe, from_message, to_message

F32 = np.float32


def test_a_trajectory_survives_the_wire() -> None:
    sent = trajectory("run-12", decisions=4, version=2, end=End.TERMINATED, success_once=True, seed=2**64 - 5)
    received = from_message(pb.Trajectory.FromString(to_message(sent).SerializeToString()), LAYOUT, 2)
    for name in ("id", "ticket", "worker_id", "end", "success_once", "success_at_end", "seed", "episode_id"):
        assert getattr(received, name) == getattr(sent, name)
    for name in ("log_prob", "actions", "rewards", "evaluated", "executed", "versions"):
        np.testing.assert_array_equal(getattr(received, name), getattr(sent, name))
    np.testing.assert_array_equal(received.observation["state"], sent.observation["state"])
    for name, array in sent.trace.items():
        np.testing.assert_array_equal(received.trace[name], array)


def test_what_the_log_knows_of_it() -> None:
    identity, meta = describe(message("run-12", versions=np.array([4, 3, 5])).SerializeToString())
    assert identity == "id-run-12"
    assert (meta.index, meta.oldest, meta.env_steps, meta.decisions) == (12, 3, 6, 3)


NAN = np.full((3, 2), np.nan, F32)
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("trajectory_id", {"id": ""}),
    ("trajectory_id", {"id": "two\nlines"}),
    ("executed", {"executed": np.array([2, 2, 3])}),
    ("executed", {"executed": np.array([2, -1, 2])}),
    ("executed", {"decisions": 1, "end": End.ABANDONED}),
    ("versions", {"versions": np.array([0, 8, 0])}),
    ("versions", {"versions": np.array([-1, 0, 0])}),
    ("versions.shape", {"versions": np.zeros(2, np.int64)}),
    ("versions.dtype", {"versions": np.zeros(3, F32)}),
    ("evaluated.dtype", {"evaluated": np.ones((3, 2), np.uint8)}),
    ("rewards", {"rewards": NAN}),
    ("rewards.shape", {"rewards": np.ones((3, 3), F32)}),
    ("log_prob", {"log_prob": NAN}),
    ("actions.shape", {"actions": np.ones((3, 2, 2), F32)}),
    ('observation["state"]', {"observation": {}}),
    ('observation["state"].shape', {"observation": {"state": np.zeros((3, 3), F32)}}),
    ('observation["state"]', {"observation": {"state": np.full((4, 3), np.inf, F32)}}),
    ("trace", {"trace": {}}),
]


@pytest.mark.parametrize(("field", "changes"), BROKEN, ids=[f"{i}-{field}" for i, (field, _) in enumerate(BROKEN)])
def test_what_is_broken_is_refused_by_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_message(message(**changes), LAYOUT, 7)
    assert caught.value.field == field


def test_a_trajectory_that_does_not_say_how_it_ended_is_refused() -> None:
    sent = message()
    for end in (0, 9):
        sent.end = end  # type: ignore[assignment]
        with pytest.raises(InvalidArgument, match="end"):
            from_message(sent, LAYOUT, 0)


def test_a_trace_of_another_policy_is_refused() -> None:
    sent = message()
    sent.trace["step"].CopyFrom(encode(np.zeros((3, 2), np.int64)))
    with pytest.raises(InvalidArgument, match=r"trace\[\"step\"\]"):
        from_message(sent, LAYOUT, 0)


def test_seeds_are_functions_of_run_ticket_and_decision_and_never_evaluations() -> None:
    seeds = {episode_seed(run, index) for run in range(20) for index in range(500)}
    assert len(seeds) == 10_000 and all(0 <= seed < 1 << 64 for seed in seeds)
    assert all(TRAINING_SEEDS <= env_seed(seed) < 2 * TRAINING_SEEDS for seed in seeds)
    noise = {noise_seed(seed, decision) for seed in list(seeds)[:500] for decision in range(20)}
    assert len(noise) == 10_000 and not noise & seeds
    assert (episode_seed(0, 0), noise_seed(1, 0)) == (episode_seed(0, 0), noise_seed(1, 0))
