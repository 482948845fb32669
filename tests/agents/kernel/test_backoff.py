from datetime import timedelta

import pytest

from agents.kernel.backoff import backoff


@pytest.mark.parametrize(("failures", "seconds"), [(0, 2), (1, 2), (2, 4), (3, 8), (6, 60), (10**9, 60)])
def test_pauses_double_up_to_the_longest(failures: int, seconds: int) -> None:
    assert backoff(2.0, 60.0, failures) == seconds
    assert backoff(timedelta(seconds=2), timedelta(minutes=1), failures) == timedelta(seconds=seconds)
