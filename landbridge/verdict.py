"""Verdicts of compliance suites: what was checked, whether it held, and if not, what to fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from landbridge.errors import LandbridgeError


@dataclass(frozen=True)
class Verdict:
    """One line of a suite's report."""

    name: str
    passed: bool
    message: str = ""
    """What was expected and what came where it failed; otherwise empty, or why the case did not apply."""


class NotKept(AssertionError):
    """Raised by a case: the endpoint does not do what the protocol says."""


def expect(condition: bool, message: str) -> None:
    """:class:`NotKept` unless ``condition``; ``message`` says what was expected and what came."""
    if not condition:
        raise NotKept(message)


def judge(name: str, case: Callable[[], object]) -> Verdict:
    """Run one case; a string it returns is the verdict's message. Whatever it raises fails it."""
    try:
        remark = case()
    except NotKept as error:
        return Verdict(name, False, str(error))
    except LandbridgeError as error:
        return Verdict(name, False, f"{error.code.name} came, which is no right answer here: {error}")
    except Exception as error:  # an answer so far from the protocol that the case stumbled over it
        return Verdict(name, False, f"{type(error).__name__}: {error}")
    return Verdict(name, True, remark if isinstance(remark, str) else "")


def refused(
    kinds: type[LandbridgeError] | tuple[type[LandbridgeError], ...],
    call: Callable[..., object],
    *args: Any,
    **kwargs: Any,
) -> str:
    """Expect ``call(*args, **kwargs)`` to be refused with one of ``kinds``; returns the message it came with."""
    wanted = (kinds,) if isinstance(kinds, type) else kinds
    names = " or ".join(kind.code.name for kind in wanted)
    try:
        call(*args, **kwargs)
    except LandbridgeError as error:
        expect(isinstance(error, wanted), f"{names} expected, {error.code.name} came: {error}")
        expect(bool(error.message.strip()), f"{names} came without a message; say what was expected and what came")
        return error.message
    raise NotKept(f"{names} expected, but it was accepted")
