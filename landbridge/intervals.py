"""Confidence intervals of success rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Rate:
    """``successes`` of ``trials`` with a Wilson score interval (E. B. Wilson, JASA 22, 1927)."""

    successes: int
    trials: int

    @property
    def value(self) -> float:
        """The observed rate; NaN without trials."""
        return self.successes / self.trials if self.trials else math.nan

    def interval(self, z: float = _Z95) -> tuple[float, float]:
        """(low, high), 95 % by default; (0, 1) without trials."""
        n = self.trials
        if n == 0:
            return 0.0, 1.0
        rate = self.value
        centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
        low = centre - half if self.successes else 0.0  # rounding leaves 1e-17 of what is exactly nothing
        high = centre + half if self.successes < n else 1.0
        return low, high

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.successes}/{self.trials} = {100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
