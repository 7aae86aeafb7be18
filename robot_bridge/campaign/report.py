"""What a campaign found: a table for the terminal, one HTML file for everybody else.

``better`` and ``worse`` come from the test that was locked, and only when every trial of the design has its result:
looking earlier and stopping when it suits finds differences that are not there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landbridge.errors import InvalidArgument
from landbridge.intervals import Rate
from landbridge.report import html
from landbridge.report.animation import Rollout, animation
from landbridge.report.charts import rates_chart
from landbridge.report.learning import learning_section
from robot_bridge.campaign import statistics
from robot_bridge.campaign.design import Arm, Design, Trial, schedule
from robot_bridge.campaign.run import succeeded
from robot_bridge.campaign.store import Store

_TESTS = {"fisher": "Fisher's exact test", "mcnemar": "McNemar's exact test on pairs of one initial condition"}


@dataclass(frozen=True)
class TrialResult:
    """A finished trial, as the report lists it."""

    trial: Trial
    success: bool
    end: str
    steps: int
    decisions: int
    messages: int
    seconds: float
    attempt: int
    rollout: Rollout


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference."""

    first: Arm
    second: Arm
    difference: float
    interval: tuple[float, float]
    """95 %, Newcombe."""
    p: float
    """Of the locked test, adjusted by Holm's rule where there are several comparisons."""
    verdict: str


@dataclass(frozen=True)
class Results:
    """Everything a report says."""

    design: Design
    endpoints: Mapping[str, Any]
    trials: tuple[TrialResult, ...]
    rates: Mapping[str, Rate]
    comparisons: tuple[Comparison, ...]
    aborted: tuple[tuple[int, str], ...]
    """(trial, reason) of attempts that were run again."""
    armed: int
    """Times the robot was armed again after it had held."""

    @property
    def complete(self) -> bool:
        """Whether every trial of the design has a result."""
        return len(self.trials) == self.design.trials * len(self.design.arms)


def read_results(store: Store) -> Results:
    """From a store, also while the campaign runs."""
    design = store.design()
    endpoints = next((event.data for event in store.events("connected")), {})
    planned, finished = schedule(design), store.finished()
    trials = tuple(
        _trial(store, design, trial, float(endpoints.get("control_rate_hz", 0.0)))
        for trial in planned
        if trial.number in finished
    )
    rates = {label: _rate([t for t in trials if t.trial.arm.label == label]) for label in design.arms}
    complete = len(trials) == len(planned)
    return Results(
        design=design,
        endpoints=endpoints,
        trials=trials,
        rates=rates,
        comparisons=_compare(design, trials, rates, complete),
        aborted=tuple((event.trial, event.data["reason"]) for event in store.events("aborted")),
        armed=sum(event.data["before"] == "HOLD" for event in store.events("armed")),
    )


def _trial(store: Store, design: Design, trial: Trial, rate_hz: float) -> TrialResult:
    event = next(store.events("finished", trial.number))
    data, success = event.data, succeeded(event.data, design)
    moments = [
        e.data for e in store.events(trial=trial.number)
        if e.attempt == event.attempt and e.kind in ("start", "decision")
    ]  # fmt: skip
    period = 1.0 / rate_hz if rate_hz else 0.05  # without a rate time has no unit: any will do to play it
    times = [round(n * period, 4) for n in itertools.accumulate(m.get("executed", 0) for m in moments)]
    names = set.intersection(*(set(m["places"]) for m in moments)) if moments else set()
    places: dict[str, Sequence[Sequence[float]]] = {
        name: [m["places"][name] for m in moments] for name in sorted(names)
    }
    shown = f"trial {trial.number}: {'success' if success else 'failure'}"
    rollout = Rollout(trial.arm.label, str(trial.seed), shown, times, places)
    counts = {name: int(data[name]) for name in ("steps", "decisions", "messages")}
    return TrialResult(
        trial, success, data["end"], **counts, seconds=data["seconds"], attempt=event.attempt, rollout=rollout
    )


def _rate(trials: Sequence[TrialResult]) -> Rate:
    return Rate(sum(t.success for t in trials), len(trials))


def _compare(
    design: Design, trials: Sequence[TrialResult], rates: Mapping[str, Rate], complete: bool
) -> tuple[Comparison, ...]:
    first, *others = design.policies()
    outcomes = {(t.trial.arm.label, t.trial.seed): t.success for t in trials}
    raw = []
    for second in others:
        pairs = [
            (outcomes[first.label, seed], outcomes[second.label, seed])
            for seed in design.conditions()
            if (first.label, seed) in outcomes and (second.label, seed) in outcomes
        ]
        both, only_first, only_second = (pairs.count(kind) for kind in ((True, True), (True, False), (False, True)))
        one, other = rates[first.label], rates[second.label]
        if design.test == "mcnemar":
            p = statistics.mcnemar(only_first, only_second, design.alternative)
            neither = len(pairs) - both - only_first - only_second
            raw.append((second, p, statistics.newcombe_paired(both, only_first, only_second, neither)))
        else:
            raw.append((second, statistics.fisher(one, other, design.alternative), statistics.newcombe(one, other)))
    adjusted = statistics.holm([p for _, p, _ in raw])
    made = []
    for (second, _, interval), p in zip(raw, adjusted, strict=True):
        difference = rates[second.label].value - rates[first.label].value
        verdict = _verdict(design, first, second, difference, p) if complete else "no verdict before the last trial"
        made.append(Comparison(first, second, difference, interval, p, verdict))
    return tuple(made)


def _verdict(design: Design, first: Arm, second: Arm, difference: float, p: float) -> str:
    if p <= design.alpha and difference > 0.0:
        return f"{second.label} is better than {first.label}"
    if p <= design.alpha and difference < 0.0:
        return f"{second.label} is worse than {first.label}"
    return f"no difference between {second.label} and {first.label} is shown"


def table(results: Results) -> str:
    """For a terminal."""
    width = max(len(label) for label in results.design.arms)
    lines = [
        f"  {arm.label:<{width}}  version {arm.version:<5} {results.rates[arm.label]}"
        for arm in results.design.policies()
    ]
    for comparison in results.comparisons:
        lines += ["", f"  {comparison.verdict}: {_evidence(results.design, comparison)}"]
    done = len(results.trials)
    planned = results.design.trials * len(results.design.arms)
    return "\n".join([f"campaign {results.design.name}: {done}/{planned} trials", *lines])


def report_html(results: Results, learning: Path | None = None, evaluations: Sequence[Path] = ()) -> str:
    """The whole report as one document."""
    design = results.design
    where = results.endpoints.get("environment", "an environment not yet met")
    kind = results.endpoints.get("kind", "")
    sections = [_findings(results), _rollouts(results)]
    if evaluations:
        sections.append(_evaluations(design, evaluations))
    if learning is not None:
        sections.append(learning_section(learning))
    sections += [_trials(results), _method(results)]
    subtitle = f"{len(results.trials)} trials on {where}" + (f" ({kind})" if kind else "")
    return html.page(f"Campaign {design.name}", subtitle, [text for text in sections if text])


def _findings(results: Results) -> str:
    arms = results.design.policies()
    bodies = []
    for comparison in results.comparisons:
        good = " good" if "better" in comparison.verdict else ""
        bodies.append(html.paragraph(comparison.verdict, f"verdict{good}"))
        bodies.append(html.paragraph(_evidence(results.design, comparison)))
    bodies.append(rates_chart([(arm.label, results.rates[arm.label]) for arm in arms]))
    rows = []
    for arm in arms:
        own, rate = [t for t in results.trials if t.trial.arm == arm], results.rates[arm.label]
        low, high = rate.interval()
        steps = f"{sum(t.steps for t in own) / len(own):.1f}" if own else ""
        shown = f"{100 * rate.value:.1f} %" if own else ""
        holds = sum(t.end == "hold" for t in own)
        rows.append(
            (arm.label, arm.version, f"{rate.successes} of {rate.trials}", shown,
             f"{100 * low:.1f} to {100 * high:.1f} %", steps, holds, sum(t.messages for t in own))
        )  # fmt: skip
    headers = ("policy", "version", "successes", "rate", "95 % interval", "mean steps", "holds", "safety messages")
    bodies.append(html.table(headers, rows, (1, 2, 3, 5, 6, 7)))
    return html.section("Result", *bodies)


def _evidence(design: Design, comparison: Comparison) -> str:
    low, high = comparison.interval
    return (
        f"{comparison.second.label} minus {comparison.first.label} is {100 * comparison.difference:+.1f} points, "
        f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}; {_TESTS[design.test]}, {design.alternative}, "
        f"p = {comparison.p:.2g}, alpha {design.alpha:g}"
    )


def _rollouts(results: Results) -> str:
    order = sorted(results.trials, key=lambda t: (t.trial.seed, list(results.design.arms).index(t.trial.arm.label)))
    player = animation([t.rollout for t in order])
    if not player:
        return ""
    legend = "Small dot: tool, with its path. Filled green: the object. Ring: the goal. Grid lines are 0.1 m apart."
    return html.section("Rollouts", player, html.paragraph(legend, "soft"))


def _evaluations(design: Design, files: Sequence[Path]) -> str:
    rows = []
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            rate, versions = Rate(int(content["successes"]), int(content["episodes"])), list(content["versions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{file} is no result of `landbridge learn eval --out`: {error}") from error
        labels = [label for label, version in design.arms.items() if versions == [version]]
        rows.append((labels[0] if labels else file.stem, ", ".join(map(str, versions)), rate))
    note = "Success of the deterministic policy in the training simulator, on seeds training never sees."
    body = html.table(("policy", "version", "success, 95 % Wilson interval"), rows, (1,))
    return html.section("In simulation", html.paragraph(note, "soft"), body)


def _trials(results: Results) -> str:
    rows = [
        (t.trial.number, t.trial.block + 1, t.trial.seed, t.trial.arm.label, "success" if t.success else "failure",
         t.end, t.steps, t.decisions, f"{t.seconds:.1f}", t.messages, t.attempt)
        for t in results.trials
    ]  # fmt: skip
    headers = (
        "trial", "block", "condition", "policy", "result", "end", "steps", "decisions", "s", "messages", "attempt",
    )  # fmt: skip
    bodies = [html.details(f"all {len(rows)} trials, in the order they were run", html.table(headers, rows, (0, 1, 2)))]
    if results.aborted:
        rerun = html.table(("trial", "why it was run again"), results.aborted, (0,))
        bodies.append(html.details(f"{len(results.aborted)} attempts that were run again", rerun))
    return html.section("Trials", *bodies)


def _method(results: Results) -> str:
    design = results.design
    success = "at the end of the trial" if design.success == "at_end" else "at any moment of the trial"
    text = (
        f"The design was locked before the first trial. Every policy met each of {design.trials} initial conditions "
        f"once, in blocks of {design.block}, in an order drawn beforehand; while it ran, policies were shown by "
        f"letters only. Success is the task being solved {success}. Every decision carries the version of "
        f"the weights that computed it; an answer of any other version would have been refused. Holds a policy "
        f"caused are failures; trials lost to anything else were "
        f"run again. The robot was armed again after a hold {results.armed} times."
    )
    rows = [("design (SHA-256)", design.digest()), *((k, v) for k, v in results.endpoints.items())]
    settings = [(key, value) for key, value in design.locked_part().items() if key != "arms"]
    return html.section(
        "Method", html.paragraph(text), html.details("design and endpoints", html.table(("", ""), [*rows, *settings]))
    )
