"""May this policy drive that environment? Decided before the first motion, from the two contracts alone.

Conversions that lose nothing are made and listed: a wider dtype, other order or a superset of named segments, tensors
nobody reads. Whatever changes a meaning (unit, frame, rotation representation, gripper ends, delta reference, rate,
picture layout) is a problem, never a warning, and is not converted: the author of the policy or of the environment
has to state it right.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from landbridge.contract import Contract, Quantity, Segment, TensorSpec, Unit
from landbridge.errors import FailedPrecondition, InvalidArgument

Kind = Literal["simulator", "robot"]

_FLOATS = {"float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)}
"""Significand bits and largest exponent."""
_WHOLE = {"bool": (0, 1)} | {f"{u}int{b}": (int(not u), b - int(not u)) for b in (8, 16, 32, 64) for u in ("", "u")}
"""Sign and value bits."""
_JOINT = {Quantity.JOINT_POSITION, Quantity.JOINT_VELOCITY, Quantity.JOINT_POSITION_DELTA}


@dataclass(frozen=True)
class Problem:
    """One reason why not."""

    rule: str
    """A word for programs: ``missing``, ``shape``, ``unit``, ``gripper``, ``rate``, ..."""
    where: str
    expected: str
    """What the policy was trained with."""
    got: str
    """What the environment has."""
    advice: str

    def __str__(self) -> str:
        return f"{self.where}: the policy expects {self.expected}, the environment has {self.got}; {self.advice}"


@dataclass(frozen=True)
class _Plan:
    """How one tensor gets from one side to the other; None: as it is."""

    name: str
    take: np.ndarray | None = None
    dtype: str | None = None


@dataclass
class Report:
    """The outcome of :func:`check`."""

    conversions: list[str] = field(default_factory=list)
    """Made by :meth:`adapter`; each loses nothing."""
    notes: list[str] = field(default_factory=list)
    """Worth knowing; nothing is changed."""
    problems: list[Problem] = field(default_factory=list)
    _observation: list[_Plan] = field(default_factory=list)
    _action: _Plan = field(default_factory=lambda: _Plan("action"))

    @property
    def ok(self) -> bool:
        """Whether the policy may drive the environment."""
        return not self.problems

    def raise_if_failed(self) -> None:
        """FAILED_PRECONDITION listing every problem."""
        if self.problems:
            listed = "".join(f"\n  - {problem}" for problem in self.problems)
            raise FailedPrecondition(
                f"the policy does not fit the environment ({len(self.problems)} problems):{listed}"
            )

    def adapter(self) -> Adapter:
        """The conversions, ready to apply; FAILED_PRECONDITION where there are problems."""
        self.raise_if_failed()
        return Adapter(self._observation, self._action)


class Adapter:
    """Applies a report's conversions. Arrays may have any leading axes; what needs no change is passed on uncopied."""

    def __init__(self, observation: Collection[_Plan], action: _Plan) -> None:
        self._observation = tuple(observation)
        self._action = action

    def observation(self, observed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors the policy reads, as it reads them, from what the environment gave."""
        for plan in self._observation:
            if plan.name not in observed:
                raise InvalidArgument(
                    f"observation {plan.name!r} is missing; got {sorted(observed)}", field=f'observation["{plan.name}"]'
                )
        return {plan.name: _apply(plan, observed[plan.name]) for plan in self._observation}

    def action(self, actions: np.ndarray) -> np.ndarray:
        """The environment's action array from the policy's, both [..., A]."""
        return _apply(self._action, actions)


def check(policy: Contract, env: Contract, env_kind: Kind, reads: Collection[str] | None = None) -> Report:
    """Compare what a policy was trained for with what an environment offers.

    ``reads`` names the observation tensors the acting part reads (``PolicyInfo.reads``); None: all in its contract.
    """
    report = Report()
    wanted = [spec for spec in policy.observation if reads is None or spec.name in reads]
    offered = {spec.name: spec for spec in env.observation}
    for spec in wanted:
        where = f"observation {spec.name!r}"
        if env_kind == "robot" and (spec.privileged or (spec.name in offered and offered[spec.name].privileged)):
            advice = "a robot cannot measure it: train a policy that does not read it"
            report.problems.append(Problem("privileged", where, "privileged information", "a robot", advice))
        elif spec.name not in offered:
            report.problems.append(_missing(spec.name, where, offered))
        else:
            report._observation.append(_compare(report, spec, offered[spec.name], where, env_kind, acts=False))
    if ignored := sorted(set(offered) - {spec.name for spec in wanted}):
        report.conversions.append(f"observations the policy does not read are dropped: {', '.join(ignored)}")
    report._action = _compare(report, policy.action, env.action, "action", env_kind, acts=True)
    _compare_bounds(report, policy.action, env.action, env_kind)
    _compare_rate(report, policy.control_rate_hz, env.control_rate_hz, env_kind)
    _compare_names(report, policy, env, wanted)
    return report


def _compare(report: Report, policy: TensorSpec, env: TensorSpec, where: str, kind: Kind, *, acts: bool) -> _Plan:
    """Everything about one tensor; ``acts``: it goes from the policy to the environment."""
    report.problems.extend(_image_problems(policy, env, where))
    source, target = (policy, env) if acts else (env, policy)
    dtype = None
    if source.dtype != target.dtype:
        if policy.image is None and _exact(source.dtype, target.dtype):
            dtype = target.dtype
            report.conversions.append(f"{where}: {source.dtype} is widened to {target.dtype}")
        else:
            advice = f"{source.dtype} to {target.dtype} changes values or their scale: make the two agree"
            report.problems.append(Problem("dtype", where, policy.dtype, env.dtype, advice))
    take = _compare_segments(report, policy, env, where, kind, acts=acts)
    return _Plan(env.name if not acts else "action", take, dtype)


def _compare_segments(
    report: Report, policy: TensorSpec, env: TensorSpec, where: str, kind: Kind, *, acts: bool
) -> np.ndarray | None:
    """Compare shapes and meanings; returns indices into the source's last axis where it has to be re-ordered."""
    if policy.image is not None or not (policy.segments or env.segments):
        if not _same_shape(policy.shape, env.shape):
            report.problems.append(_shape_problem(policy, env, where))
        if kind == "robot" and policy.image is None:
            advice = "state segments in both contracts: a robot moves on meanings, not on shapes"
            report.problems.append(Problem("meaning", where, "no stated meaning", "no stated meaning", advice))
        return None
    if not (policy.segments and env.segments):
        has, lacks = ("segments", "none") if policy.segments else ("no segments", "some")
        report.problems.append(Problem("meaning", where, has, lacks, "state the segments in both contracts"))
        return None
    mine, theirs = _by_name(policy), _by_name(env)
    if not (mine and theirs and _covers(policy) and _covers(env)):
        _compare_in_place(report, policy, env, where, kind)
        return None
    for name in [name for name in mine if name not in theirs]:
        report.problems.append(_missing(name, f"{where}, segment {name!r}", theirs))
    for name in [name for name in theirs if name not in mine] if acts else []:
        advice = "every part of the action must be commanded"
        report.problems.append(Problem("missing", f"{where}, segment {name!r}", "no such segment", "one", advice))
    for name in [name for name in mine if name in theirs]:
        report.problems.extend(_meaning_problems(mine[name], theirs[name], f"{where}, segment {name!r}", kind))
    if not _same_shape(policy.shape[:-1], env.shape[:-1]):
        report.problems.append(_shape_problem(policy, env, where))
    return _order(report, mine, theirs, where, acts=acts)


def _order(
    report: Report, mine: Mapping[str, Segment], theirs: Mapping[str, Segment], where: str, *, acts: bool
) -> np.ndarray | None:
    source, target = (mine, theirs) if acts else (theirs, mine)
    shared = [source[name] for name in sorted(target, key=lambda name: target[name].start) if name in source]
    take = np.array([i for segment in shared for i in range(segment.start, segment.start + segment.size)], np.intp)
    length = sum(segment.size for segment in source.values())
    if np.array_equal(take, np.arange(length)):
        return None
    dropped = [name for name in source if name not in target]
    if dropped and not acts:
        report.conversions.append(f"{where}: segments the policy does not read are dropped: {', '.join(dropped)}")
    if not np.all(np.diff(take) > 0):
        report.conversions.append(f"{where}: segments are re-ordered to {', '.join(s.name for s in shared)}")
    return take


def _compare_in_place(report: Report, policy: TensorSpec, env: TensorSpec, where: str, kind: Kind) -> None:
    """Segments that are not uniquely named or leave gaps cannot be matched by name: they have to agree one by one."""
    if not _same_shape(policy.shape, env.shape):
        report.problems.append(_shape_problem(policy, env, where))
    mine, theirs = ([(s.name, s.start) for s in spec.segments] for spec in (policy, env))
    if mine != theirs:
        advice = "name segments uniquely and cover the whole axis, and they are matched by name"
        report.problems.append(Problem("layout", where, f"segments {mine}", f"{theirs}", advice))
        return
    for one, other in zip(policy.segments, env.segments, strict=True):
        report.problems.extend(_meaning_problems(one, other, f"{where}, segment {one.name!r}", kind))


def _meaning_problems(policy: Segment, env: Segment, where: str, kind: Kind) -> Iterator[Problem]:
    """Every difference in meaning between two segments of one name."""
    if policy.size != env.size:
        yield Problem("shape", where, f"{policy.size} numbers", str(env.size), "the two name different things alike")
    rules = [
        ("quantity", policy.quantity.value, env.quantity.value, "it is another thing"),
        ("unit", policy.unit.value, env.unit.value, "convert in the environment's adapter and state it"),
        ("frame", policy.frame, env.frame, "transform in the environment's adapter and state it"),
        ("rotation", policy.rotation.value, env.rotation.value, "convert in the environment's adapter and state it"),
        (
            "delta_reference",
            policy.delta_reference.value,
            env.delta_reference.value,
            "set the environment to the control mode the policy was trained in",
        ),
    ]
    for rule, expected, got, advice in rules:
        if expected != got:
            yield Problem(rule, where, f"{rule} {expected or '(none)'}", got or "(none)", advice)
    yield from _gripper_problems(policy, env, where)
    if kind == "robot" and Unit.NORMALISED in (policy.unit, env.unit):
        advice = "a robot takes physical units: train with actions and observations in them"
        yield Problem("normalised", where, f"unit {policy.unit.value}", f"{env.unit.value} on a robot", advice)


def _gripper_problems(policy: Segment, env: Segment, where: str) -> Iterator[Problem]:
    if Quantity.GRIPPER not in (policy.quantity, env.quantity):
        return
    mine, theirs = (policy.gripper_closed, policy.gripper_open), (env.gripper_closed, env.gripper_open)
    if None in mine or None in theirs:
        advice = "state gripper_closed and gripper_open in both contracts: polarity is never guessed"
    elif mine == theirs:
        return
    elif mine == theirs[::-1]:
        advice = "the polarity is flipped: mend the contract that is wrong"
    else:
        advice = "map the opening in the environment's adapter and state it"
    yield Problem("gripper", where, "closed {} and open {}".format(*mine), "closed {}, open {}".format(*theirs), advice)


def _image_problems(policy: TensorSpec, env: TensorSpec, where: str) -> Iterator[Problem]:
    mine, theirs = policy.image, env.image
    if mine is None and theirs is None:
        return
    if mine is None or theirs is None:
        expected, got = ("a picture", "numbers") if mine else ("numbers", "a picture")
        yield Problem("image", where, expected, got, "state the image layout in both contracts")
        return
    rules = [
        ("axes", mine.axes, theirs.axes),
        ("colour", mine.colour, theirs.colour),
        ("orientation", _orientation(mine.upright), _orientation(theirs.upright)),
        ("camera", mine.camera or "any camera", theirs.camera if mine.camera else "any camera"),
        ("range", _range(policy) or "any range", (_range(env) if _range(policy) else "") or "any range"),
    ]
    for rule, expected, got in rules:
        if expected != got:
            yield Problem(rule, where, expected, got or "(none)", "convert once, in the environment's adapter")


def _compare_bounds(report: Report, policy: TensorSpec, env: TensorSpec, kind: Kind) -> None:
    """What the policy may ask must be what the environment takes; a simulator clips, a robot is not asked to."""
    if any(p.where.startswith("action") for p in report.problems) or min((*policy.shape, *env.shape), default=0) < 0:
        return
    asked, taken = policy.bounds(), env.bounds()
    if report._action.take is not None:
        asked = (asked[0][..., report._action.take], asked[1][..., report._action.take])
    outside = (asked[0] < taken[0]) | (asked[1] > taken[1])
    if not outside.any():
        return
    element = tuple(int(i) for i in np.argwhere(outside)[0])
    expected, got = (f"[{low[element]:g}, {high[element]:g}] at {list(element)}" for low, high in (asked, taken))
    if kind == "robot":
        advice = "state the policy's action bounds within the robot's, or widen the robot's if that is safe"
        report.problems.append(Problem("bounds", "action", expected, got, advice))
    else:
        report.notes.append(f"action: the environment clips to {got}; the policy may ask {expected}")


def _compare_rate(report: Report, policy: float, env: float, kind: Kind) -> None:
    advice = "run the environment at the policy's rate: a chunk played at another moves at another speed"
    if not math.isclose(policy, env, rel_tol=1e-6):
        report.problems.append(Problem("rate", "control rate", f"{policy:g} Hz", f"{env:g} Hz", advice))
    elif kind == "robot" and not policy > 0:
        report.problems.append(Problem("rate", "control rate", f"{policy:g} Hz", f"{env:g} Hz", "state the real rate"))


def _compare_names(report: Report, policy: Contract, env: Contract, wanted: list[TensorSpec]) -> None:
    if policy.task and env.task and policy.task != env.task:
        report.notes.append(f"the policy was trained for task {policy.task!r}, the environment is {env.task!r}")
    if not (policy.embodiment and env.embodiment) or policy.embodiment == env.embodiment:
        return
    joints = any(segment.quantity in _JOINT for spec in (*wanted, policy.action) for segment in spec.segments)
    if joints:
        advice = "joint values of one arm mean nothing on another"
        report.problems.append(Problem("embodiment", "robot", policy.embodiment, env.embodiment, advice))
    else:
        report.notes.append(f"the policy was trained on {policy.embodiment!r}, the environment is {env.embodiment!r}")


def _missing(name: str, where: str, offered: Collection[str]) -> Problem:
    close = difflib.get_close_matches(name, offered, n=1)
    advice = f"is it {close[0]!r}? " if close else ""
    return Problem("missing", where, "it", ", ".join(offered) or "nothing", f"{advice}offer it under this name")


def _shape_problem(policy: TensorSpec, env: TensorSpec, where: str) -> Problem:
    return Problem("shape", where, f"shape {list(policy.shape)}", f"{list(env.shape)}", "they are different tensors")


def _same_shape(policy: tuple[int, ...], env: tuple[int, ...]) -> bool:
    return len(policy) == len(env) and all(p in (-1, e) for p, e in zip(policy, env, strict=True))


def _by_name(spec: TensorSpec) -> dict[str, Segment]:
    """Segments by name; empty where names repeat."""
    found = {segment.name: segment for segment in spec.segments}
    return found if len(found) == len(spec.segments) else {}


def _covers(spec: TensorSpec) -> bool:
    at = 0
    for segment in sorted(spec.segments, key=lambda segment: segment.start):
        if segment.start != at:
            return False
        at += segment.size
    return bool(spec.shape) and at == spec.shape[-1]


def _orientation(upright: bool) -> str:
    return "upright" if upright else "upside-down"


def _range(spec: TensorSpec) -> str:
    return f"values {min(spec.low):g} to {max(spec.high):g}" if spec.low and spec.high else ""


def _exact(source: str, target: str) -> bool:
    """Whether every value of dtype ``source`` is one of ``target``."""
    if source in _FLOATS:
        return target in _FLOATS and all(s <= t for s, t in zip(_FLOATS[source], _FLOATS[target], strict=True))
    if source not in _WHOLE:
        return False
    if target in _FLOATS:
        significand, exponent = _FLOATS[target]
        return _WHOLE[source][1] <= significand and _WHOLE[source][1] <= exponent
    return target in _WHOLE and all(s <= t for s, t in zip(_WHOLE[source], _WHOLE[target], strict=True))


def _apply(plan: _Plan, array: np.ndarray) -> np.ndarray:
    if plan.take is not None:
        array = array[..., plan.take]
    if plan.dtype is not None and array.dtype != plan.dtype:
        array = array.astype(plan.dtype)
    return array
