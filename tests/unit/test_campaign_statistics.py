"""Tests and intervals against published and hand-computed numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from landbridge.intervals import Rate
from robot_bridge.campaign import statistics as s


def test_fisher_of_the_lady_tasting_tea() -> None:
    # Fisher 1935: 3 of 4 cups of each kind told right; p = (16 + 1) / 70 one-sided, 34 / 70 two-sided.
    assert s.fisher(Rate(1, 4), Rate(3, 4), "greater") == pytest.approx(17 / 70, abs=1e-12)
    assert s.fisher(Rate(1, 4), Rate(3, 4)) == pytest.approx(34 / 70, abs=1e-12)
    assert s.fisher(Rate(0, 4), Rate(4, 4), "greater") == pytest.approx(1 / 70, abs=1e-12)


def test_fisher_of_unequal_arms() -> None:
    # scipy's documentation of fisher_exact: [[6, 2], [1, 4]] has p = 0.10256 two-sided.
    assert s.fisher(Rate(1, 5), Rate(6, 8)) == pytest.approx(0.10256410, abs=1e-8)
    # [[1, 9], [11, 3]] (Agresti's and Wikipedia's example): p = 0.002759456 two-sided, 0.001379728 one-sided.
    assert s.fisher(Rate(1, 10), Rate(11, 14)) == pytest.approx(0.002759456, abs=1e-9)
    assert s.fisher(Rate(1, 10), Rate(11, 14), "greater") == pytest.approx(0.001379728, abs=1e-9)


def test_fisher_says_nothing_where_nothing_differs_or_was_tried() -> None:
    assert s.fisher(Rate(0, 0), Rate(3, 4)) == 1.0
    assert s.fisher(Rate(4, 4), Rate(4, 4)) == 1.0
    assert s.fisher(Rate(3, 4), Rate(1, 4), "greater") > 0.9


def test_mcnemar_is_a_coin_tossed_for_every_pair_that_differs() -> None:
    assert s.mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert s.mcnemar(1, 9, "greater") == pytest.approx(11 / 1024)
    assert s.mcnemar(9, 1, "greater") == pytest.approx(1023 / 1024)
    assert s.mcnemar(0, 0) == 1.0
    assert s.mcnemar(59, 6) == pytest.approx(2 * sum(math.comb(65, k) for k in range(7)) / 2**65)


def test_newcombe_interval_of_independent_rates_is_the_published_one() -> None:
    # Newcombe 1998, table II, method 10: 56/70 − 48/80 is 0.0524 … 0.3339; 9/10 − 3/10 is 0.1705 … 0.8090.
    assert s.newcombe(Rate(48, 80), Rate(56, 70)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert s.newcombe(Rate(3, 10), Rate(9, 10)) == pytest.approx((0.1705, 0.8090), abs=5e-5)
    assert s.newcombe(Rate(0, 10), Rate(10, 10)) == pytest.approx((0.6075, 1.0000), abs=5e-4)


def test_newcombe_interval_of_pairs_holds_the_truth_as_often_as_it_says() -> None:
    n, cells = 20, (0.45, 0.05, 0.3, 0.2)  # both, only the first, only the second, neither
    covered = total = 0.0
    for a, b, c in itertools.product(range(n + 1), repeat=3):
        if (d := n - a - b - c) < 0:
            continue
        ways = math.factorial(n) / math.prod(math.factorial(k) for k in (a, b, c, d))
        mass = ways * math.prod(p**k for p, k in zip(cells, (a, b, c, d), strict=True))
        low, high = s.newcombe_paired(a, b, c, d)
        total += mass
        covered += mass * (low <= cells[2] - cells[1] <= high)
    assert total == pytest.approx(1.0)
    assert 0.94 < covered < 0.99


def test_pairs_that_go_together_narrow_the_interval() -> None:
    independent = s.newcombe(Rate(12, 25), Rate(18, 25))
    low, high = s.newcombe_paired(12, 0, 6, 7)
    assert independent[0] < low < 0.24 < high < independent[1]


def test_holm_raises_p_values_by_the_number_of_comparisons_left() -> None:
    assert s.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert s.holm([0.5]) == [0.5]


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize("test", ["fisher", "mcnemar"])
def test_a_test_errs_less_often_than_alpha_and_sees_large_differences(test: s.Test, alternative: s.Alternative) -> None:
    for rate in (0.1, 0.5, 0.8):
        assert s.power(test, 25, rate, rate, 0.05, alternative) <= 0.05
    assert s.power(test, 25, 0.2, 0.9, 0.05, alternative) > 0.95


def test_power_is_that_of_a_simulation() -> None:
    drawn = np.random.default_rng(0).random((2000, 2, 15)) < np.array([0.3, 0.8])[None, :, None]
    found = [s.fisher(Rate(int(a), 15), Rate(int(b), 15)) <= 0.05 and b > a for a, b in drawn.sum(-1)]
    assert s.power("fisher", 15, 0.3, 0.8, 0.05, "two-sided") == pytest.approx(np.mean(found), abs=0.03)
    pairs = [s.mcnemar(int((a & ~b).sum()), int((b & ~a).sum())) <= 0.05 and b.sum() > a.sum() for a, b in drawn]
    assert s.power("mcnemar", 15, 0.3, 0.8, 0.05, "two-sided") == pytest.approx(np.mean(pairs), abs=0.03)


def test_the_detectable_difference_has_the_power_asked_for_and_shrinks_with_trials() -> None:
    few, many = (s.detectable("fisher", n, 0.5, 0.05, 0.8, "two-sided") for n in (25, 50))
    assert few is not None and many is not None and many < few
    assert s.power("fisher", 25, 0.5, 0.5 + few, 0.05, "two-sided") >= 0.8
    assert s.power("fisher", 25, 0.5, 0.5 + few - 0.005, 0.05, "two-sided") < 0.8
    assert s.detectable("fisher", 3, 0.5, 0.05, 0.8, "two-sided") is None


def test_an_interval_ends_exactly_where_nothing_or_everything_succeeded() -> None:
    assert Rate(0, 12).interval()[0] == 0.0 and Rate(0, 12).interval()[1] == pytest.approx(0.2425, abs=1e-4)
    assert Rate(7, 7).interval()[1] == 1.0 and Rate(7, 7).interval()[0] == pytest.approx(0.6457, abs=1e-4)
