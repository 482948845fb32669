from datetime import date

import pytest

from triggers.exceptions import RuleError
from triggers.schedules.excluded_days import ExcludedDays

TEXT = """
# Vienna
2026-12-25 Christmas
2026-12-24..2027-01-06 Break   # the office is shut

*-05-01 Labour Day
*-02-29
2026-11-20
"""


@pytest.mark.parametrize(
    ("day", "label"),
    [
        (date(2026, 12, 25), "Christmas"),
        (date(2026, 12, 24), "Break"),
        (date(2027, 1, 6), "Break"),
        (date(2027, 1, 7), None),
        (date(2026, 5, 1), "Labour Day"),
        (date(2041, 5, 1), "Labour Day"),
        (date(2028, 2, 29), "*-02-29"),
        (date(2026, 11, 20), "2026-11-20"),
        (date(2025, 12, 25), None),
    ],
)
def test_day_that_a_line_names_is_excluded_by_its_words(day: date, label: str | None) -> None:
    assert ExcludedDays.parse(TEXT).label(day) == label


def test_no_lines_exclude_no_day() -> None:
    assert ExcludedDays.parse("\n# nothing yet\n").label(date(2026, 12, 25)) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("25.12.2026", "this is no day"),
        ("Christmas", "this is no day"),
        ("2026-02-30 never", "day"),
        ("*-13-01", "month"),
        ("2027-01-06..2026-12-24", "ends before it begins"),
        ("*-12-24..2027-01-06", "a range needs its years"),
        ("*-12-24..*-12-31", "this is no day"),
        ("2026-12-25Christmas", "this is no day"),
    ],
)
def test_line_that_makes_no_sense_is_named_with_what_to_write(line: str, message: str) -> None:
    with pytest.raises(RuleError, match=message) as refused:
        ExcludedDays.parse(f"2026-12-25 Christmas\n{line}")

    assert "line 2" in str(refused.value) and "*-05-01 Labour Day" in str(refused.value)
    assert refused.value.field == "days"
