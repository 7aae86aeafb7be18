"""Does an environment endpoint keep the protocol? ``landbridge check env HOST:PORT``, against anybody's server.

The cases are generated from what the endpoint says of itself. They want all its environments, for about ten seconds
(one lease must run out). A robot is reset at most: cases that execute actions are left out and say so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from landbridge.env import compliance_sessions, compliance_steps
from landbridge.env.client import EnvClient
from landbridge.env.compliance_probe import TIMEOUT, Probe, Skipped
from landbridge.errors import FailedPrecondition
from landbridge.verdict import Verdict, judge

Case = Callable[[Probe], None]

_GROUPS: tuple[tuple[tuple[Case, ...], bool], ...] = (
    (compliance_sessions.QUIET, False),
    (compliance_sessions.RESETTING, False),
    (compliance_steps.REFUSALS, False),
    (compliance_sessions.STEPPING, True),
    (compliance_steps.STEPPING, True),
)
"""Cases, and whether they execute actions."""


def run(address: str) -> list[Verdict]:
    """A verdict a case. FAILED_PRECONDITION when somebody holds some of the endpoint's environments."""
    return list(verdicts(address))


def verdicts(address: str) -> Iterator[Verdict]:
    """As :func:`run`, each as soon as it is known."""
    with EnvClient(address, TIMEOUT) as client:
        info = client.info(wait=True)
        if info.free_envs != info.num_envs:
            raise FailedPrecondition(
                f"{address}: {info.free_envs} of {info.num_envs} environments are free; the suite needs all of them"
            )
        probe = Probe(client, info)
        for cases, moves in _GROUPS:
            for case in cases:
                if moves and info.kind == "robot":
                    yield Verdict(_name(case), True, "skipped: it would move the robot")
                else:
                    yield judge(_name(case), functools.partial(_attempt, case, probe))


def _attempt(case: Case, probe: Probe) -> str:
    try:
        case(probe)
    except Skipped as reason:
        return f"skipped: {reason}"
    return ""


def _name(case: Case) -> str:
    return (case.__doc__ or case.__name__).strip()
