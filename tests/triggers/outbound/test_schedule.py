"""The schedule of Standard Webhooks, with jitter."""

from datetime import timedelta

from triggers.outbound.schedule import ATTEMPTS, BETWEEN, JITTER, pause_after


def test_ten_attempts_over_three_days() -> None:
    pauses = [pause_after(attempt) for attempt in range(1, 11)]

    assert ATTEMPTS == 10 and pauses[-1] is None
    for pause, usual in zip(pauses[:-1], BETWEEN, strict=True):
        assert pause and usual <= pause <= usual * (1 + JITTER)
    assert timedelta(days=3) < sum(BETWEEN, timedelta()) < timedelta(days=4)


def test_the_pauses_of_retries_are_spread() -> None:
    assert len({pause_after(2) for _ in range(20)}) == 20


def test_a_pause_is_at_least_as_long_as_the_receiver_requests() -> None:
    hour = timedelta(hours=1)

    assert hour <= (pause_after(1, hour) or timedelta()) < hour + BETWEEN[0]
    assert (pause_after(4, hour) or timedelta()) >= BETWEEN[3]
    assert pause_after(10, hour) is None
