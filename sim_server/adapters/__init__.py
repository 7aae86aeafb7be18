"""Adapters: simulators behind :class:`landbridge.env.protocol.SingleEnv`, found by name.

A simulator is one entry point of the group ``landbridge.simulators``, from this package or a user's own:
``NAME = "package.module:make"`` with ``make(task: str, options: dict) -> SingleEnv``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any

from landbridge.env.protocol import SingleEnv
from landbridge.errors import InvalidArgument

GROUP = "landbridge.simulators"

_BUILT_IN = {"maniskill": "sim_server.adapters.maniskill:make", "gymnasium": "sim_server.adapters.gymnasium:make"}
_PRELOAD = {"maniskill": ("sim_server.adapters.maniskill_preload",)}
"""Modules worth importing once for all workers of a simulator."""


def simulators() -> dict[str, str]:
    """Name → ``module:function`` of every simulator known; imports none."""
    return _BUILT_IN | {point.name: point.value for point in metadata.entry_points(group=GROUP)}


def split_spec(spec: str) -> tuple[str, str]:
    """``("maniskill", "PickCube-v1")`` of ``maniskill:PickCube-v1``; INVALID_ARGUMENT names the nearest simulator."""
    name, colon, task = spec.partition(":")
    known = simulators()
    if not colon or not task:
        raise InvalidArgument(f"expected SIMULATOR:TASK, got {spec!r}; simulators: {sorted(known)}", field="spec")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidArgument(f"no simulator {name!r}; {hint}there are {sorted(known)}", field="spec")
    return name, task


def preload(spec: str) -> tuple[str, ...]:
    """What the parent of the workers should import."""
    return _PRELOAD.get(split_spec(spec)[0], ())


def make_env(spec: str, options: dict[str, Any]) -> SingleEnv:
    """The environment ``SIMULATOR:TASK``."""
    name, task = split_spec(spec)
    module, _, attribute = simulators()[name].partition(":")
    make: Callable[[str, dict[str, Any]], SingleEnv] = getattr(importlib.import_module(module), attribute)
    return make(task, options)
