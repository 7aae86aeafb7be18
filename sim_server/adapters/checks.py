"""What adapters check in the same way: actions that are numbers, saved states that are theirs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from landbridge.errors import InvalidArgument


class NotFinite(InvalidArgument, ValueError):
    """An action holds NaN or infinity; ``field`` names the element."""


def require_finite(actions: np.ndarray) -> None:
    """:class:`NotFinite` where ``actions`` [C, A] holds anything that is not a number."""
    if not np.isfinite(actions).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(actions))[0])
        place = "".join(f"[{i}]" for i in where)
        raise NotFinite(
            f"actions{place} is {actions[where]}: expected a finite number; nothing was executed",
            field=f"actions{place}",
        )


def split_replay(state: bytes, identity: dict[str, Any], action_size: int) -> tuple[dict[str, Any], np.ndarray]:
    """Header and actions [S, A] float32 of a saved replay; INVALID_ARGUMENT where it is not of ``identity``.

    A replay is one line of JSON, then the actions' bytes.
    """
    line, newline, raw = state.partition(b"\n")
    try:
        header = json.loads(line)
        actions = np.frombuffer(raw, "<f4").reshape(-1, action_size)
    except ValueError as error:
        raise InvalidArgument(f"not a state that save_state of this adapter gave: {error}", field="state") from error
    expected = json.loads(json.dumps(identity))
    if not isinstance(header, dict) or not newline:
        raise InvalidArgument("not a state that save_state of this adapter gave", field="state")
    for key, value in expected.items():
        if header.get(key) != value:
            raise InvalidArgument(
                f"a state saved with {key} {value} is expected, {header.get(key)} came; "
                "restore it in an environment made the same way",
                field="state",
            )
    return header, actions.copy()
