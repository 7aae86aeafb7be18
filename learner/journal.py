"""``consumed.jsonl``: which record of the trajectory log went where, so that anybody can count after us.

Lines: ``{"update": u, "trained": [sequence, …]}`` and ``{"dropped": sequence, "reason": …, "version": v,
"oldest_version": o}``. Every sequence number is in one line at most, or still pending.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learner.buffer import Cursor
from learner.intake import Drop


class Journal:
    """Appends lines; opening it for a resumed run removes those of consumption that was lost."""

    def __init__(self, path: Path, restored: Cursor | None) -> None:
        """``restored``: what the checkpoint says is consumed; the rest is pending again. None: a new run."""
        self._path = path
        kept = [] if restored is None or not path.exists() else _consumed(path.read_text(), restored)
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def trained(self, update: int, sequences: Sequence[int]) -> None:
        """These made that update."""
        self._write({"update": update, "trained": list(sequences)})

    def dropped(self, drop: Drop, version: int) -> None:
        """This was not trained on, while ``version`` was the one in training."""
        record = drop.record
        self._write(
            {"dropped": record.sequence, "reason": drop.reason}
            | {"version": version, "oldest_version": record.meta.oldest}
        )

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _consumed(text: str, cursor: Cursor) -> list[dict[str, Any]]:
    pending = set(cursor.pending)
    kept = []
    for raw in text.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:  # being written when the process died: after the checkpoint, so lost anyway
            continue
        sequences = line["trained"] if "trained" in line else [line["dropped"]]
        if all(s < cursor.next and s not in pending for s in sequences):
            kept.append(line)
    return kept
