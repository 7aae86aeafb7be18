"""What a compliance suite says of one case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One line of a suite's report."""

    name: str
    passed: bool
    message: str
    """What was expected and what came where it failed; otherwise empty, or why the case did not apply."""
