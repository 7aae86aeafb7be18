"""Runs a campaign: the same for a robot and for a simulator, only the address differs."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from landbridge import compatibility
from landbridge.env.client import EnvClient, EnvDescription, EnvSession
from landbridge.errors import (
    Aborted,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from landbridge.intervals import Rate
from landbridge.policy.client import PolicyClient, PolicyDescription
from robot_bridge.campaign.design import Design, Trial, schedule
from robot_bridge.campaign.robot import Robot
from robot_bridge.campaign.store import Store
from robot_bridge.campaign.trial import Link, Outcome, TrialLost, run_trial

ATTEMPTS = 3
"""Times a trial is begun in one session before the campaign gives up: something is broken then."""
_LOST = (TrialLost, Unavailable, DeadlineExceeded, ResourceExhausted, Aborted)
_PAUSE = 1.0
_LEASE = 8.0
"""Seconds after which the robot is free again when this process was killed."""
_WAIT_FREE = 75.0
"""How long to wait for it to be free: a little more than the longest lease clients take by default."""

Say = Callable[[str], None]


def run_campaign(design: Design, store: Store, say: Say, *, clear: bool = False, timeout: float = 60.0) -> None:
    """Run every trial that has no result yet. Returns when all have one.

    ``clear``: an emergency stop or fault of the robot may be cleared once, at the start. ``timeout``: seconds a chunk
    or a reset may take. FAILED_PRECONDITION before the first motion: design, policy or environment do not fit.
    """
    store.lock(design)
    for trial in store.abort_unfinished("the campaign's process ended"):
        say(f"trial {trial} had not ended: it is run again")
    remaining = store.remaining(design)
    if not remaining:
        return
    with _connected(design, store, timeout, say) as link:
        _Runner(design, store, link, say).run(remaining, clear)


@contextlib.contextmanager
def _connected(design: Design, store: Store, timeout: float, say: Say) -> Iterator[Link]:
    with PolicyClient(design.policy) as policy, EnvClient(design.env, timeout) as env:
        served, offered = policy.info(wait=True), env.info(wait=True)
        adapter = _check(design, served, offered)
        store.connected(
            environment=offered.name,
            kind=offered.kind,
            control_rate_hz=offered.contract.control_rate_hz,
            policy=served.name,
            architecture=served.architecture_hash,
        )
        most = min(served.horizon, offered.max_chunk or served.horizon)
        with _open(env, f"campaign {design.name}", say) as session, contextlib.ExitStack() as stack:
            robot = None
            if offered.kind == "robot":
                robot = Robot(design.env, session.id)
                stack.callback(robot.close)
            yield Link(policy, session, adapter, offered.contract, min(design.steps or most, most), robot)


def _open(env: EnvClient, name: str, say: Say) -> EnvSession:
    """One environment, waiting for whoever holds it: the session of a process that was killed ends by itself."""
    until = time.monotonic() + _WAIT_FREE
    while True:
        try:
            return env.open(1, name=name, lease=_LEASE)
        except ResourceExhausted as error:
            if time.monotonic() > until:
                raise
            say(f"waiting for {env.address}: {error}")
            time.sleep(2.0)


def _check(design: Design, served: PolicyDescription, offered: EnvDescription) -> compatibility.Adapter:
    """Everything that can be known before the first motion."""
    kind: compatibility.Kind = "robot" if offered.kind == "robot" else "simulator"
    fit = compatibility.check(served.contract, offered.contract, kind, served.reads or None)
    fit.raise_if_failed()
    if absent := [arm for arm in design.policies() if arm.version not in served.held_versions]:
        raise NotFound(
            f"the policy server at {design.policy} does not hold {absent[0].label!r} (version {absent[0].version}); "
            f"it holds {list(served.held_versions)}"
        )
    if not (offered.max_episode_steps or design.max_decisions):
        raise InvalidArgument(
            f"episodes of {offered.name} have no time limit: set max_decisions", field="max_decisions"
        )
    return fit.adapter()


class _Runner:
    """Trials, one after another."""

    def __init__(self, design: Design, store: Store, link: Link, say: Say) -> None:
        self._design, self._store, self._link, self._say = design, store, link, say
        self._letters = design.blinded()
        self._total = design.trials * len(design.arms)

    def run(self, remaining: list[Trial], clear: bool) -> None:
        begun = time.monotonic()
        for place, trial in enumerate(remaining, 1):
            outcome = self._until_finished(trial, clear and place == 1)
            spent = time.monotonic() - begun
            self._say(self._line(trial, outcome, spent / place * (len(remaining) - place)))

    def _until_finished(self, trial: Trial, clear: bool) -> Outcome:
        before = self._store.attempts(trial.number)
        for attempt in range(before + 1, before + ATTEMPTS + 1):
            try:
                return self._attempt(trial, attempt, clear and attempt == before + 1)
            except _LOST as error:
                self._say(f"trial {trial.number} was lost and is run again: {error}")
                if attempt == before + ATTEMPTS:
                    raise FailedPrecondition(
                        f"trial {trial.number} was lost {ATTEMPTS} times, the last time to: {error}. "
                        "Put it right, then go on with --resume"
                    ) from error
                time.sleep(_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, trial: Trial, attempt: int, clear: bool) -> Outcome:
        store, number = self._store, trial.number
        store.append(
            "started", number, attempt, seed=trial.seed, block=trial.block, arm=trial.arm.label,
            version=trial.arm.version,
        )  # fmt: skip

        def record(kind: str, data: dict[str, Any]) -> None:
            store.append(kind, number, attempt, **data)

        try:
            self._arm(record, clear)
            outcome = run_trial(self._link, self._design, trial, attempt, record)
        except KeyboardInterrupt:
            self._stop(record)
            record("aborted", {"reason": "interrupted by the operator"})
            raise
        except Exception as error:
            record("aborted", {"reason": f"{type(error).__name__}: {error}"})
            raise
        record("finished", dataclasses.asdict(outcome))
        return outcome

    def _arm(self, record: Callable[[str, dict[str, Any]], None], clear: bool) -> None:
        if self._link.robot is not None and (before := self._link.robot.arm(clear=clear)):
            record("armed", {"before": before})

    def _stop(self, record: Callable[[str, dict[str, Any]], None]) -> None:
        if self._link.robot is not None:
            self._link.robot.emergency_stop("the operator interrupted the campaign")  # first of all
            record("emergency_stop", {})

    def _line(self, trial: Trial, outcome: Outcome, left: float) -> str:
        """For the screen: arms by their letters only."""
        done, rates = rates_by_arm(self._store, self._design)
        shown = {self._letters[label]: rate for label, rate in rates.items()}
        so_far = "  ".join(f"{letter} {rate.successes} of {rate.trials}" for letter, rate in sorted(shown.items()))
        result = "success" if succeeded(dataclasses.asdict(outcome), self._design) else "failure"
        minutes, seconds = divmod(round(left), 60)
        return (
            f"{done}/{self._total} trials  {self._letters[trial.arm.label]}: {result} ({outcome.end}, "
            f"{outcome.decisions} decisions, {outcome.seconds:.1f} s)  so far {so_far}  {minutes}:{seconds:02d} left"
        )


def succeeded(result: dict[str, Any], design: Design) -> bool:
    """Whether a ``finished`` event's data is a success, as the design defines it."""
    return bool(result["success_at_end" if design.success == "at_end" else "success_once"])


def rates_by_arm(store: Store, design: Design) -> tuple[int, dict[str, Rate]]:
    """Number of finished trials, and successes by the arm's label."""
    arms = {trial.number: trial.arm.label for trial in schedule(design)}
    results: dict[str, list[bool]] = {label: [] for label in design.arms}
    for number, event in store.finished().items():
        results[arms[number]].append(succeeded(event.data, design))
    rates = {label: Rate(sum(own), len(own)) for label, own in results.items()}
    return sum(rate.trials for rate in rates.values()), rates
