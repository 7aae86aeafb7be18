"""Seconds to and from protobuf's Duration."""

import pytest
from google.protobuf import duration_pb2

from landbridge.durations import to_duration, to_seconds


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.25, 59.999999999, -1.5, 86400.0])
def test_round_trip(seconds):
    assert to_seconds(to_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


def test_a_hostile_duration_is_a_large_number_not_an_exception():
    assert to_seconds(duration_pb2.Duration(seconds=2**62, nanos=2**31 - 1)) > 1e18
