import re
from datetime import timedelta

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_duration(value: str | float | timedelta) -> timedelta:
    """A timedelta from "90s", "30m", "1h30m", "3d", "2w", or a number of seconds; ValueError says what is accepted."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)):
        return timedelta(seconds=value)
    parts = WORD.findall(value)
    if not parts or WORD.sub("", value).strip():
        raise ValueError(f'{value!r} is not a duration; write such as "90s", "30m", "1h30m" or "3d"')
    return sum((timedelta(**{UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
