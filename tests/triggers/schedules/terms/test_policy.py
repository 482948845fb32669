"""What a schedule's rule leaves open, as people and files say it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.exceptions import RuleError
from triggers.schedules.terms.policy import NAMES, SchedulePolicy

MINUTE = timedelta(minutes=1)


def test_policy_values_are_parsed_from_text_and_numbers() -> None:
    values = {
        "catch_up": "all",
        "catch_up_max": "5",
        "catch_up_window": "1d",
        "jitter": 90,
        "spread": "1h30m",
        "active_hours": "Mon-Fri 9:00-17:00",
        "active_zone": "Europe/Vienna",
        "exclude": "holidays, breaks",
        "max_fires": 3,
        "start": "2026-12-01T09:00+01:00",
        "end": datetime(2027, 1, 1, tzinfo=UTC),
        "data": {"text": "hello"},
    }

    assert SchedulePolicy.parse(values) == SchedulePolicy(
        catch_up="all",
        catch_up_max=5,
        catch_up_window=timedelta(days=1),
        jitter=90 * timedelta(seconds=1),
        spread=90 * MINUTE,
        active_hours="mon-fri 09:00-17:00",
        active_zone="Europe/Vienna",
        exclude=("breaks", "holidays"),
        max_fires=3,
        start=datetime(2026, 12, 1, 8, tzinfo=UTC),
        end=datetime(2027, 1, 1, tzinfo=UTC),
        data={"text": "hello"},
    )


def test_fields_not_named_stay_and_empty_fields_get_the_default() -> None:
    base = SchedulePolicy(jitter=MINUTE, active_hours="09:00-17:00", max_fires=3)

    changed = SchedulePolicy.parse({"active_hours": "", "max_fires": None, "spread": "5m"}, base)

    assert changed == SchedulePolicy(jitter=MINUTE, spread=5 * MINUTE)
    assert changed.changes_from(base) == ["spread", "active_hours", "max_fires"]


@pytest.mark.parametrize(
    ("values", "field", "complaint"),
    [
        ({"catchup": "all"}, "catchup", "there is no such policy; there are kind, data, catch_up"),
        ({"catch_up": "some"}, "catch_up", "'some' is not one of latest, skip, all"),
        ({"catch_up_max": 3}, "catch_up_max", "choose catch_up all"),
        ({"catch_up": "all", "catch_up_max": 0}, "catch_up_max", "not a whole number from 1"),
        ({"max_fires": True}, "max_fires", "not a whole number"),
        ({"max_fires": 2**31}, "max_fires", "from 1 to 2147483647"),
        ({"jitter": "5"}, "jitter", 'has no unit; write such as "5s" or "5m"'),
        ({"jitter": -5}, "jitter", "jitter: -5 s is not between 0 and 100 years"),
        ({"spread": timedelta(days=36_526)}, "spread", "spread: 36526 d is not between 0 and 100 years"),
        ({"jitter": float("nan")}, "jitter", "NaN"),
        ({"spread": [1]}, "spread", "is not a duration"),
        ({"catch_up_window": 0}, "catch_up_window", "0 leaves nothing"),
        ({"active_hours": "nine to five"}, "active_hours", "no day of the week"),
        ({"active_hours": 9}, "active_hours", "9 is no text"),
        ({"active_zone": "Mars"}, "active_zone", "there is no zone 'Mars'"),
        ({"exclude": 5}, "exclude", "no list of names"),
        ({"start": "tomorrow"}, "start", "with an offset; use e.g. 2026-12-01T09:00\\+01:00"),
        ({"start": "2026-02-30T09:00Z"}, "start", "with an offset; use e.g. 2026-12-01T09:00\\+01:00"),
        ({"start": "2026-12-01T09:00"}, "start", "has no offset"),
        ({"start": "0001-01-01"}, "start", "has no offset"),
        ({"start": "2026-12-01T09:00Z", "end": "2026-12-01T09:00Z"}, "end", "give a later one"),
        ({"kind": "alarm"}, "kind", "'alarm' is not one of"),
        ({"pace_min": "5m", "pace_max": "1h"}, "pace_min", "only a heartbeat has a pace"),
        ({"kind": "heartbeat", "pace_min": "5m"}, "pace_max", "give it too"),
        ({"kind": "heartbeat", "pace_min": "2h", "pace_max": "1h"}, "pace_max", "shorter than pace_min"),
        ({"data": {1, 2}}, "data", "is not JSON"),
        ({"data": "\0"}, "data", "NUL"),
    ],
)
def test_an_invalid_policy_is_refused_with_its_field_and_a_remedy(
    values: dict[str, Any], field: str, complaint: str
) -> None:
    with pytest.raises(RuleError, match=complaint) as refused:
        SchedulePolicy.parse(values)

    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")


LENGTHS = st.integers(0, 10**12).map(lambda some: timedelta(microseconds=some))
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


@given(
    policy=st.builds(
        SchedulePolicy,
        data=st.none() | st.dictionaries(st.text("abc"), st.integers()),
        catch_up=st.just("all"),
        catch_up_max=st.none() | st.integers(1, 99),
        catch_up_window=st.none() | LENGTHS.map(lambda some: some + MINUTE),
        jitter=LENGTHS,
        spread=LENGTHS,
        active_hours=st.sampled_from(["", "mon-fri 09:00-17:00"]),
        active_zone=st.sampled_from(["", "Pacific/Chatham"]),
        exclude=st.sampled_from([(), ("a", "b")]),
        max_fires=st.none() | st.integers(1, 9),
        start=st.none() | INSTANTS,
        end=st.none() | INSTANTS.map(lambda at: at.replace(year=2095, day=1)),
    )
)
def test_a_dumped_policy_parses_as_the_same_policy(policy: SchedulePolicy) -> None:
    assert SchedulePolicy.parse(policy.dump()) == policy
    assert tuple(policy.dump()) == NAMES
