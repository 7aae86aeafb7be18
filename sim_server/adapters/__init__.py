"""Adapters: simulators behind :class:`landbridge.env.protocol.SingleEnv`, found by name.

A simulator is one entry point of the group ``landbridge.simulators``, from this package or a user's own:
``NAME = "package.module:make"`` with ``make(task: str, options: dict) -> SingleEnv``.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from landbridge.env.protocol import SingleEnv
from landbridge.errors import FailedPrecondition, InvalidArgument

GROUP = "landbridge.simulators"

_BUILT_IN = {"maniskill": "sim_server.adapters.maniskill:make", "gymnasium": "sim_server.adapters.gymnasium:make"}
_ENVIRONMENTS = ("maniskill",)
"""Simulators that live in a Python environment of their own (``landbridge env install NAME``)."""


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


def make_env(spec: str, options: dict[str, Any]) -> SingleEnv:
    """The environment ``SIMULATOR:TASK``."""
    name, task = split_spec(spec)
    module, _, attribute = simulators()[name].partition(":")
    try:
        make: Callable[[str, dict[str, Any]], SingleEnv] = getattr(importlib.import_module(module), attribute)
        return make(task, options)
    except ModuleNotFoundError as error:
        where = f"`landbridge env install {name}`, and use its Python" if name in _ENVIRONMENTS else "install it"
        raise FailedPrecondition(
            f"simulator {name!r} needs the module {error.name!r}, which {sys.executable} lacks: {where}"
        ) from error
