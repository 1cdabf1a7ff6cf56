from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx2nnapi.errors import FeedError
from onnx2nnapi.runtime.timing import Statistics, measure, memory_use, to_csv


class Clock:
    """A clock that only ``run`` moves, by the durations given."""

    def __init__(self, durations):
        self.now = 0.0
        self.durations = iter(durations)

    def __call__(self):
        return self.now

    def run(self):
        self.now += next(self.durations)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40))
def test_statistics_are_numpys(values):
    found = Statistics.of(values)
    assert found.count == len(values)
    for name, wanted in {
        "min": np.min(values),
        "max": np.max(values),
        "mean": np.mean(values),
        "std": np.std(values),
        "p50": np.percentile(values, 50),
        "p90": np.percentile(values, 90),
        "p99": np.percentile(values, 99),
    }.items():
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-9, atol=1e-9)


def test_the_first_run_and_the_warm_up_are_apart():
    clock = Clock([9, 3, 3, 1, 1, 1])
    found = measure(clock.run, runs=3, warmup=2, clock=clock)
    assert (found.first, found.warmup.mean, found.steady.mean, found.steady.count) == (9, 3, 1, 3)
    assert found.throttling is None


def test_a_minimum_of_time_goes_on_and_a_maximum_stops():
    clock = Clock([1] * 100)
    assert measure(clock.run, runs=2, warmup=0, min_seconds=10, clock=clock).steady.count == 10
    assert measure(clock.run, runs=50, warmup=0, max_seconds=5, clock=clock).steady.count == 5
    assert measure(clock.run, runs=50, warmup=0, max_seconds=0, clock=clock).steady.count == 1


def test_throttling_is_the_last_tenth_against_the_first():
    clock = Clock([1] + [1] * 20 + [2] * 20)
    found = measure(clock.run, runs=40, warmup=0, clock=clock)
    assert (found.throttling, found.throttled, found.to_dict()["throttled"]) == (2, True, True)
    clock = Clock([1] * 41)
    assert not measure(clock.run, runs=40, warmup=0, clock=clock).throttled


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"warmup": -1}, {"min_seconds": 2, "max_seconds": 1}])
def test_what_cannot_be_measured_is_refused(wrong):
    with pytest.raises(FeedError, match="cannot be measured"):
        measure(lambda: None, **wrong)


def test_memory_is_that_of_this_process():
    use = memory_use()
    assert use is None or 1 << 20 < use.resident <= use.peak


def test_csv_has_a_line_for_each_series():
    text = to_csv({"sync": Statistics.of([1.0, 3.0]), "async": Statistics.of([2.0])})
    assert text.splitlines()[0] == "series,count,min,max,mean,std,p50,p90,p99"
    assert text.splitlines()[1].startswith("sync,2,1.0,3.0,2.0,1.0,2.0,")
