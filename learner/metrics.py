"""What an update reports: a line of ``metrics.jsonl``, TensorBoard scalars, a message, a line to read."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from landbridge.v1 import learner_pb2 as pb
from learner.trajectories import Trajectory


@dataclass(frozen=True)
class Report:
    """One update. ``values`` are finite numbers by name."""

    update: int
    version: int
    seconds: float
    """Since training began, earlier sessions included."""
    values: Mapping[str, float]

    def as_message(self) -> pb.UpdateReport:
        """For StreamMetrics."""
        return pb.UpdateReport(
            update=self.update, version=self.version, seconds_since_start=self.seconds, values=dict(self.values)
        )


def batch_metrics(trajectories: Sequence[Trajectory], version: int) -> tuple[dict[str, float], Counter[int]]:
    """Means over a batch's trajectories, and staleness (``version`` − server-stamped version) → decisions."""
    staleness = Counter((version - np.concatenate([t.versions for t in trajectories])).tolist())
    total = staleness.total()
    returns = [float(np.where(t.evaluated, t.rewards, 0.0).sum()) for t in trajectories]
    steps = np.array([t.executed.sum() for t in trajectories])
    ends = Counter(t.end.name.lower() for t in trajectories)
    values = {
        "success_once": float(np.mean([t.success_once for t in trajectories])),
        "success_at_end": float(np.mean([t.success_at_end for t in trajectories])),
        "return": float(np.mean(returns)),
        "episode_steps": float(steps.mean()),
        "batch_trajectories": float(len(trajectories)),
        "batch_decisions": float(total),
        "batch_env_steps": float(steps.sum()),
        "staleness_mean": sum(s * n for s, n in staleness.items()) / total,
        "staleness_max": float(max(staleness)),
    }
    values |= {f"ended_{name}": float(count) for name, count in sorted(ends.items())}
    values |= {f"staleness_{s}": float(n) for s, n in sorted(staleness.items())}
    return values, staleness


class Metrics:
    """Writes and remembers reports; thread-safe."""

    def __init__(self, run_dir: Path, restored_update: int = -1) -> None:
        """``restored_update``: the update a checkpoint was made after; lines of later ones, lost with the weights they
        describe, are removed. −1: a new run.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / "metrics.jsonl"
        self._changed = threading.Condition()
        self._reports: list[Report] = []
        self._closed = False
        if restored_update >= 0 and self._path.exists():
            self._reports = [r for r in map(_parse, self._path.read_text().splitlines()) if r]
            self._reports = [report for report in self._reports if report.update <= restored_update]
        self._path.write_text("".join(_line(report) for report in self._reports))
        self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=max(restored_update + 1, 0))

    def add(self, report: Report) -> None:
        """Write one."""
        with self._path.open("a") as file:
            file.write(_line(report))
        for name, value in report.values.items():
            self._board.add_scalar(name, value, report.update)
        self._board.flush()
        with self._changed:
            self._reports.append(report)
            self._changed.notify_all()

    @property
    def last(self) -> Report | None:
        """The newest report."""
        with self._changed:
            return self._reports[-1] if self._reports else None

    def from_update(self, update: int, timeout: float) -> tuple[list[Report], bool]:
        """Reports of ``update`` and later, waiting up to ``timeout`` seconds for one; and whether no more will come."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (bool(self._reports) and self._reports[-1].update >= update), timeout
            )
            return [report for report in self._reports if report.update >= update], self._closed

    def close(self) -> None:
        """No more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._board.close()


def _line(report: Report) -> str:
    content: dict[str, Any] = {"update": report.update, "version": report.version, "seconds": report.seconds}
    return json.dumps(content | dict(report.values)) + "\n"


def _parse(line: str) -> Report | None:
    try:
        content = json.loads(line)
    except ValueError:  # the line that was being written when the process died
        return None
    return Report(content.pop("update"), content.pop("version"), content.pop("seconds"), content)


def status_line(report: Report, minutes_left: float | None) -> str:
    """One line of an update for people."""
    v = report.values
    left = "" if minutes_left is None else f"  {minutes_left:5.1f} min left"
    kl = f"{v['kl']:.4f}" if "kl" in v else "warm-up"
    return (
        f"update {report.update:4d}  version {report.version:4d}  success {100 * v['success_once']:5.1f} %  "
        f"return {v['return']:8.2f}  staleness {v['staleness_mean']:.2f} (max {v['staleness_max']:.0f})  "
        f"{v['steps_per_second']:6.0f} steps/s  KL {kl}  idle {100 * v['learner_idle_share']:3.0f} %{left}"
    )
