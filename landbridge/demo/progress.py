"""One line that moves on a terminal, and a line now and then in a log."""

from __future__ import annotations

import shutil
import sys
import threading
import time

_QUIET_PERIOD = 10.0
_BAR = 20


class Progress:
    """Stages of the demo: number, name, share done, time left, and what happens right now."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._stage = 0
        self._name = ""
        self._begun = time.monotonic()
        self._started = self._begun
        self._last = 0.0
        self._terminal = sys.stdout.isatty()
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """The next stage."""
        self._stage += 1
        self._name = name
        self._begun = time.monotonic()
        self._show(f"[{self._stage}/{self._stages}] {name}", final=not self._terminal)

    def tell(self, share: float | None = None, text: str = "") -> None:
        """``share`` of the stage done, 0 to 1, where it is known; ``text`` about this moment."""
        now = time.monotonic()
        if not self._terminal and now - self._last < _QUIET_PERIOD:
            return
        self._last = now
        elapsed = now - self._begun
        bar = left = ""
        if share is not None:
            full = round(_BAR * min(1.0, share))
            bar = f" {'█' * full}{'░' * (_BAR - full)}"
            if share > 0.02:
                left = f", {clock(elapsed * (1 - share) / share)} left"
        self._show(f"[{self._stage}/{self._stages}] {self._name}{bar} {clock(elapsed)}{left}  {text}", final=False)

    def done(self, text: str) -> None:
        """End the stage with its result."""
        elapsed = clock(time.monotonic() - self._begun)
        self._show(f"[{self._stage}/{self._stages}] {self._name}: {text} ({elapsed})", final=True)

    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started

    def _show(self, line: str, *, final: bool) -> None:
        with self._lock:
            if not self._terminal:
                print(line, flush=True)
                return
            width = shutil.get_terminal_size().columns
            sys.stdout.write("\r\x1b[K" + (line if final else line[: width - 1]) + ("\n" if final else ""))
            sys.stdout.flush()


def clock(seconds: float) -> str:
    """``3:07``."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
