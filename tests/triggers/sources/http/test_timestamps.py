from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.sources.http.timestamps import parse_timestamp, time_in


@given(st.datetimes(timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))))
def test_the_output_of_isoformat_is_read_as_the_same_instant(instant: datetime) -> None:
    try:
        expected = instant.astimezone(UTC)
    except OverflowError:
        expected = None

    if expected is None:
        with pytest.raises(ValueError, match="not a valid date"):
            parse_timestamp(instant.isoformat())
    else:
        assert parse_timestamp(instant.isoformat()) == expected


@given(st.text(st.sampled_from("0123456789-+:.TZtz ٣"), max_size=40))
def test_an_arbitrary_text_is_a_utc_time_or_a_value_error(text: str) -> None:
    try:
        assert parse_timestamp(text).tzinfo is UTC
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text",
    ["", "2026-01-31", "2026-01-31T10:00:00", "2026-01-31 10:00:00Z", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
     "2026-01-31T25:00:00Z", "2026-01-31T10:00:00+99:00", "2026-01-31T10:00Z", "1769853600", "2026-01-31T10:00:00Z\n"],
)  # fmt: skip
def test_a_text_that_is_no_rfc_3339_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339|not a valid date") as refused:
        parse_timestamp(text)

    example = str(refused.value).split()[-1]
    assert parse_timestamp(example).isoformat() == "2026-01-31T17:30:00+00:00"


def test_a_leap_second_and_a_fine_fraction_are_understood() -> None:
    assert parse_timestamp("2016-12-31t23:59:60.1234567890z") == datetime(2017, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-11-20T12:00:00Z", "2026-11-20T13:00:00.000+01:00", "1795176000", "1795176000000"]
)
def test_a_time_is_rfc_3339_or_unix_time(text: str) -> None:
    assert time_in(text) == datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", [None, "", "yesterday", "1e9", "-1", "1" * 14, "１７９５１７６０００", "1795176000.5"])
def test_another_text_is_no_time(text: str | None) -> None:
    assert time_in(text) is None
