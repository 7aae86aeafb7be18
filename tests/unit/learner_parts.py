"""Made-up trajectories of the small policy in ``learning_parts``, and an intake to hand them in to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learning_parts import HORIZON, pendulum_policy

from landbridge.policies.protocol import SampleMode
from landbridge.v1 import learner_pb2 as pb
from learner.advantages import End
from learner.buffer import TrajectoryLog
from learner.intake import Intake
from learner.serve import layout_of
from learner.staleness import StalenessManager
from learner.trajectories import Meta, Trajectory, describe, from_message, to_message

POLICY = pendulum_policy()
LAYOUT = layout_of(POLICY)
STORED = pb.SubmitAcknowledgement.OUTCOME_STORED
DUPLICATE = pb.SubmitAcknowledgement.OUTCOME_DUPLICATE
REJECTED = pb.SubmitAcknowledgement.OUTCOME_REJECTED


def trajectory(
    ticket: str = "t-0", *, decisions: int = 3, version: int = 0, seed: int = 0, **changes: Any
) -> Trajectory:
    """What POLICY does with random observations; everything executed, reward 1 a step, ended by the time limit."""
    states = np.random.default_rng(seed).standard_normal((decisions + 1, 3)).astype(np.float32)
    noise = {n: torch.from_numpy(a) for n, a in POLICY.draw_noise(range(seed, seed + decisions)).items()}
    with torch.no_grad():
        sample = POLICY.act({"state": torch.from_numpy(states[:-1])}, noise, SampleMode.STOCHASTIC)
    made = Trajectory(
        id=f"id-{ticket}",
        ticket=ticket,
        worker_id="w",
        observation={"state": states},
        trace={name: tensor.numpy() for name, tensor in sample.trace.items()},
        log_prob=sample.log_prob.numpy(),
        actions=sample.actions.numpy(),
        rewards=np.ones((decisions, HORIZON), np.float32),
        evaluated=np.ones((decisions, HORIZON), bool),
        executed=np.full(decisions, HORIZON),
        versions=np.full(decisions, version),
        end=End.TRUNCATED,
        success_once=False,
        success_at_end=False,
        seed=seed,
        episode_id="e",
    )
    return dataclasses.replace(made, **changes)


def message(ticket: str = "t-0", **changes: Any) -> pb.Trajectory:
    return to_message(trajectory(ticket, **changes))


def check(sent: pb.Trajectory, newest: int) -> Trajectory:
    return from_message(sent, LAYOUT, newest)


def new_intake(
    folder: Path, *, eta: int = 1, batch: int = 2, max_buffered: int = 100, lease: float = 60.0, concurrent: int = 100
) -> tuple[Intake, StalenessManager, TrajectoryLog[Meta]]:
    manager = StalenessManager(eta, batch, concurrent, lease)
    log: TrajectoryLog[Meta] = TrajectoryLog(folder, describe)
    return Intake(manager, log, check, max_buffered=max_buffered), manager, log
