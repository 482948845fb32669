import re
from datetime import timedelta

UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
WORDS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:(ms)|(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:ours?)?|(d)(?:ays?)?|(w)(?:eeks?)?)(?![a-z])"
)
LONGEST_TEXT = 100  # characters


def parse_duration(value: str | float | timedelta) -> timedelta:
    """A timedelta from "90s", "30m", "1h30m", "3d", "20 minutes", or a number of seconds; the message of a ValueError
    names the accepted forms.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)):
        try:
            return timedelta(seconds=value)
        except OverflowError:
            raise ValueError(f"{value!r} seconds are too long for the calendar") from None
    if len(value) > LONGEST_TEXT:
        raise ValueError(f'a duration has at most {LONGEST_TEXT} characters; use e.g. "90s", "30m", "1h30m" or "3d"')
    parts = PART.findall(value)
    if not parts or PART.sub("", value).strip():
        raise ValueError(f'{value!r} is not a duration; use e.g. "90s", "30m", "1h30m" or "3d"')
    try:
        return sum((timedelta(**{UNITS["".join(unit)]: float(number)}) for number, *unit in parts), timedelta())
    except OverflowError:
        raise ValueError(f"{value!r} is too long for the calendar") from None


def text_of_duration(length: timedelta) -> str:
    """A text that `parse_duration` reads as the same duration, such as "1h30m"; empty for none."""
    left, text = length, ""
    for unit, size in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1))):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text + (f"{left.total_seconds():.6f}".rstrip("0").rstrip(".") + "s" if left else "")


def in_words(delta: timedelta) -> str:
    """A duration by its two largest units: "2 h 5 min", "340 ms", "-5 s"."""
    if delta < timedelta():
        return f"-{in_words(-delta)}"
    if delta < timedelta(seconds=1):
        return f"{delta / timedelta(milliseconds=1):.0f} ms"
    left = round(delta.total_seconds())
    parts: list[tuple[int, str]] = []
    for unit, seconds in WORDS:
        amount, left = divmod(left, seconds)
        if amount or parts:
            parts.append((amount, unit))
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2] if amount)
