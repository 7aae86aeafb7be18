"""One trial: the robot or simulator put into its initial condition, and one version of the policy driving it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from landbridge.compatibility import Adapter
from landbridge.contract import Contract, Quantity
from landbridge.env.client import EnvSession, StepResult
from landbridge.errors import FailedPrecondition, Internal, InvalidArgument, LandbridgeError
from landbridge.policy.client import InferResult, PolicyClient
from landbridge.v1 import robot_pb2 as pb
from robot_bridge.campaign.design import Design, Trial, noise_seed
from robot_bridge.campaign.robot import Robot, caused_by_policy, mode_name

Record = Callable[[str, dict[str, Any]], None]
"""Writes an event (kind, data) of the trial under way."""

PLACES = {"tool": Quantity.EE_POSITION, "object": Quantity.OBJECT_POSITION, "goal": Quantity.GOAL_POSITION}


class TrialLost(LandbridgeError):
    """The trial says nothing about the policy (worker died, robot held for a reason of its own): run it again."""


@dataclass(frozen=True)
class Link:
    """The two ends of a trial, checked to fit."""

    policy: PolicyClient
    session: EnvSession
    adapter: Adapter
    contract: Contract
    """The environment's."""
    steps: int
    """Actions executed of each chunk."""
    robot: Robot | None
    """None for simulators."""


@dataclass(frozen=True)
class Outcome:
    """A finished trial."""

    success_once: bool
    success_at_end: bool
    end: str
    """``terminated``, ``truncated``, ``max_decisions``, or ``hold``: the policy made the safety layer stop it."""
    steps: int
    decisions: int
    version: int
    """As stamped on every one of the decisions."""
    messages: int
    """Decisions on which a safety layer changed or refused something."""
    seconds: float


def run_trial(link: Link, design: Design, trial: Trial, attempt: int, record: Record) -> Outcome:
    """Play it to its end. TrialLost: run it again; any other error: something has to be put right first."""
    begun = time.monotonic()
    first = link.session.reset([0], [trial.seed])
    observation, observation_id = first.observation, 0
    record("start", {"places": places(link.contract, observation)})
    messages = steps = 0
    success = (False, False)
    for decision in itertools.count(1):
        answer = link.policy.infer(
            link.adapter.observation(observation),
            deterministic=True,
            version=trial.arm.version,
            seeds=[noise_seed(design, trial, decision)],
            session_id=f"campaign-{design.digest()[:12]}-{trial.number}.{attempt}",
            episode_id=first.episode_ids[0],
            observation_id=observation_id,
        )
        _check(answer, trial.arm.version, first.episode_ids[0], observation_id)
        step = _move(link, link.adapter.action(answer.actions[:, : link.steps]), observation_id)
        end = "hold"
        if step is not None:
            observation, observation_id = step.observation, step.observation_ids[0]
            record("decision", _described(link, decision, answer, step))
            messages += bool(step.messages[0])
            steps = int(step.episode_steps[0])
            success = bool(step.success_once[0]), bool(step.success_at_end[0])
            end = "hold" if _held(link, step) else _end(step, design, decision)
        if end:
            once, at_end = success if end != "hold" else (False, False)
            spent = time.monotonic() - begun
            return Outcome(once, at_end, end, steps, decision, answer.version, messages, spent)
    raise AssertionError("count() does not end")


def places(contract: Contract, observation: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """{tool, object, goal: [x, y, z] in metres} as far as the measured observation, {name: [1, …]}, says them."""
    found: dict[str, list[float]] = {}
    for name, quantity in PLACES.items():
        for spec in contract.observed():
            for segment in spec.segments:
                if segment.quantity is quantity and segment.size == 3 and name not in found:
                    values = observation[spec.name][0, segment.start : segment.start + 3]
                    found[name] = [round(float(value), 4) for value in values]
    return found


def _check(answer: InferResult, version: int, episode_id: str, observation_id: int) -> None:
    if answer.version != version:
        raise FailedPrecondition(
            f"asked for version {version}, the policy server answered with version {answer.version}: not executed"
        )
    if (answer.episode_id, answer.observation_id) != (episode_id, observation_id):
        raise Internal(
            f"asked about observation {observation_id} of {episode_id!r}, the answer is to {answer.observation_id} "
            f"of {answer.episode_id!r}: not executed"
        )


def _move(link: Link, actions: np.ndarray, observation_id: int) -> StepResult | None:
    """Execute a chunk, [1, C, A]; None where the robot refused it and held because of what it asked for."""
    try:
        return link.session.step_chunk(actions, [0], observation_ids=[observation_id])
    except (FailedPrecondition, InvalidArgument) as error:
        state = link.robot.state() if link.robot is not None else None
        if state is None or state.mode != pb.SAFETY_MODE_HOLD:
            raise
        if caused_by_policy(state):
            return None
        raise TrialLost(f"the robot held: {error}") from error


def _held(link: Link, step: StepResult) -> bool:
    """Whether the policy made the robot hold. TrialLost where something else did, or the episode was lost."""
    abandoned = bool(step.abandoned[0])
    state = link.robot.state() if link.robot is not None else None
    if state is not None and state.mode != pb.SAFETY_MODE_ARMED:
        if state.mode == pb.SAFETY_MODE_HOLD and caused_by_policy(state):
            return True
        raise TrialLost(f"the robot went into {mode_name(state)}: {state.reason or step.messages[0]}")
    if abandoned:
        raise TrialLost(step.messages[0] or "the environment abandoned the episode")
    return False


def _end(step: StepResult, design: Design, decision: int) -> str:
    if step.terminated[0]:
        return "terminated"
    if step.truncated[0]:
        return "truncated"
    return "max_decisions" if decision == design.max_decisions else ""


def _described(link: Link, decision: int, answer: InferResult, step: StepResult) -> dict[str, Any]:
    return {
        "decision": decision,
        "version": answer.version,
        "executed": int(step.executed[0]),
        "success": bool(step.success_at_end[0]),
        "message": step.messages[0],
        "places": places(link.contract, step.observation),
    }
