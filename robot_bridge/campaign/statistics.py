"""Exact tests and intervals for success rates of two policies.

In every function ``first`` is the reference and ``second`` the one asked about; differences are second − first.
Numbers of trials are tens to hundreds here, so tests are exact: nothing rests on a normal approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from landbridge.intervals import Rate

Alternative = Literal["two-sided", "greater"]
"""``greater``: only the second being better counts; has to be chosen before the first trial."""
Test = Literal["fisher", "mcnemar"]

_TIE = 1.0 + 1e-7
"""Probabilities this close are the same number in another rounding."""


def fisher(first: Rate, second: Rate, alternative: Alternative = "two-sided") -> float:
    """p-value of Fisher's exact test (R. A. Fisher, JRSS 85, 1922) that both succeed equally often.

    Two-sided: all tables with these margins that are no likelier than the one observed.
    """
    total, successes = first.trials + second.trials, first.successes + second.successes
    if not (first.trials and second.trials):
        return 1.0
    low, masses = _hypergeometric(total, successes, second.trials)
    at = second.successes - low
    if alternative == "greater":
        return min(1.0, float(masses[at:].sum()))
    return min(1.0, float(masses[masses <= masses[at] * _TIE].sum()))


def mcnemar(only_first: int, only_second: int, alternative: Alternative = "two-sided") -> float:
    """p-value of McNemar's exact test (Q. McNemar, Psychometrika 12, 1947): a binomial test on the pairs that differ.

    ``only_first``: pairs (one initial condition, both policies) where only the first succeeded.
    """
    pairs = only_first + only_second

    def tail(at_least: int) -> float:
        return float(sum(math.comb(pairs, k) for k in range(at_least, pairs + 1)) / 2**pairs)

    if alternative == "greater":
        return tail(only_second)
    return min(1.0, 2.0 * tail(max(only_first, only_second)))


def newcombe(first: Rate, second: Rate) -> tuple[float, float]:
    """95 % interval of the difference of independent rates: method 10 of R. G. Newcombe, Stat. Med. 17:873, 1998."""
    return _square_and_add(first, second, 0.0)


def newcombe_paired(both: int, only_first: int, only_second: int, neither: int) -> tuple[float, float]:
    """95 % interval of the difference in pairs: method 10 of R. G. Newcombe, Stat. Med. 17:2635, 1998."""
    n = both + only_first + only_second + neither
    margins = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    covariance = both * neither - only_first * only_second
    if covariance > 0:  # his continuity correction, on the positive side only
        covariance = max(0, covariance - n / 2)  # type: ignore[assignment]
    correlation = covariance / math.sqrt(margins) if margins else 0.0
    return _square_and_add(Rate(both + only_first, n), Rate(both + only_second, n), correlation)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for having made several comparisons (S. Holm, Scand. J. Stat. 6, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted


def power(test: Test, trials: int, first: float, second: float, alpha: float, alternative: Alternative) -> float:
    """Probability that ``test`` finds the second better, where the true rates are ``first`` and ``second``.

    Exact, over all outcomes of ``trials`` an arm. For McNemar the two outcomes on one initial condition are taken as
    independent; where they go together, as they mostly do, power is higher.
    """
    return _power(test, trials, alpha, alternative)(first, second)


def detectable(
    test: Test, trials: int, first: float, alpha: float, wanted: float, alternative: Alternative
) -> float | None:
    """The smallest true difference found with power ``wanted``, to 0.5 points; None: not even the largest one is."""
    probability = _power(test, trials, alpha, alternative)
    steps = round((1.0 - first) / 0.005)
    for step in range(1, steps + 1):
        if probability(first, min(1.0, first + 0.005 * step)) >= wanted:
            return min(0.005 * step, 1.0 - first)
    return None


def _power(test: Test, trials: int, alpha: float, alternative: Alternative) -> Callable[[float, float], float]:
    if test == "fisher":
        better = _fisher_region(trials, alpha, alternative)
        return lambda first, second: float(_binomial(trials, first) @ better @ _binomial(trials, second))
    better = _mcnemar_region(trials, alpha, alternative)

    def probability(first: float, second: float) -> float:
        only_first, only_second = first * (1 - second), second * (1 - first)
        differ = only_first + only_second
        if differ <= 0.0:
            return 0.0
        share, count = only_second / differ, _binomial(trials, differ)
        return float(sum(count[n] * _binomial(n, share) @ better[n, : n + 1] for n in range(trials + 1)))

    return probability


def _fisher_region(trials: int, alpha: float, alternative: Alternative) -> np.ndarray:
    """[n + 1, n + 1] of 0 and 1: successes of the first, of the second → found better."""
    region = np.zeros((trials + 1, trials + 1))
    for first in range(trials + 1):
        for second in range(first + 1, trials + 1):
            # More successes of the second only lower p: beyond the first rejection all are.
            if fisher(Rate(first, trials), Rate(second, trials), alternative) <= alpha:
                region[first, second:] = 1.0
                break
    return region


def _mcnemar_region(trials: int, alpha: float, alternative: Alternative) -> np.ndarray:
    """[n + 1, n + 1] of 0 and 1: pairs that differ, those of them won by the second → found better."""
    region = np.zeros((trials + 1, trials + 1))
    for pairs in range(trials + 1):
        for won in range(pairs // 2 + 1, pairs + 1):
            region[pairs, won] = mcnemar(pairs - won, won, alternative) <= alpha
    return region


def _hypergeometric(total: int, successes: int, drawn: int) -> tuple[int, np.ndarray]:
    """(smallest count, probabilities of it and those after it) of successes among ``drawn`` of ``total``."""
    low, high = max(0, drawn + successes - total), min(drawn, successes)
    ways = math.comb(total, drawn)
    counts = range(low, high + 1)
    # Ratios of whole numbers: exact to the last bit, and no overflow however many trials there are.
    return low, np.array([math.comb(successes, k) * math.comb(total - successes, drawn - k) / ways for k in counts])


def _binomial(trials: int, rate: float) -> np.ndarray:
    if rate <= 0.0 or rate >= 1.0:
        certain = np.zeros(trials + 1)
        certain[trials if rate >= 1.0 else 0] = 1.0
        return certain
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(rate) + (trials - k) * math.log1p(-rate)
        for k in range(trials + 1)
    ]  # fmt: skip
    return np.exp(np.array(logs))


def _square_and_add(first: Rate, second: Rate, correlation: float) -> tuple[float, float]:
    """The two Wilson intervals' half-widths, put together as the legs of a triangle."""
    if not (first.trials and second.trials):
        return -1.0, 1.0
    (l1, u1), (l2, u2) = first.interval(), second.interval()
    p1, p2 = first.value, second.value

    def leg(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2.0 * correlation * a * b + b * b))

    difference = p2 - p1
    return max(-1.0, difference - leg(p2 - l2, u1 - p1)), min(1.0, difference + leg(u2 - p2, p1 - l1))
