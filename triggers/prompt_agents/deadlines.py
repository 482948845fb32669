"""A deadline at the beginning of a sentence: "at 3 pm, unless ci.passed for branch main came since noon, say what holds it up"."""

import re
from typing import Any

from agents import on
from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import WEEKDAYS, Cron
from triggers.schedules.rules.words import TIME, read_rule

TYPE = r"[\w*][\w.*/-]*"
VALUE = r"[^\s,]+"
AND = r"(?:,|,?\s+or|,?\s+and)\s+"
CLOCK = TIME.replace(" ", "[ ]")  # a space counts for nothing in the pattern below
SENTENCE = re.compile(
    rf"""
    (?P<when>[^\n]{{1,100}}?),?\s+unless\s+
    (?P<types>{TYPE}(?:{AND}{TYPE}){{0,9}}?)
    (?:\s+for\s+(?:
        (?P<this>this)\s+[\w.]+(?=\s+(?:came|comes|has|arrived))
      | (?:each|every)\s+(?P<each>[\w.]+)\s+(?:of|after)\s+(?P<of>{TYPE})
      | (?:the\s+)?(?P<key>[\w.]+)\s+(?P<values>{VALUE}(?:{AND}{VALUE}){{0,50}}?)
    ))?
    \s+(?:came|comes|has\s+come|arrived|has\s+arrived)
    (?:\s+since\s+(?P<since>{CLOCK}))?
    (?=[\s,:;.–-]|$)
    """,
    re.IGNORECASE | re.VERBOSE,
)
EVERY_DAY = re.compile(rf"(?:(?:at|by) )?{TIME}")
JOINTS = ",:;.–- "
EXAMPLE = 'write such as "every weekday at 15:00, unless ci.passed came since noon"'


def read_deadline(text: str, tz: str = "UTC") -> tuple[dict[str, Any] | None, str]:
    """The arguments of `on.absence` that a sentence begins with, and the rest of it. None: it does not begin with a deadline.
    RuleError: it does, and the deadline makes no sense."""
    found = SENTENCE.match(text.lstrip())
    rule = found and _rule(found["when"], tz)
    if not found or rule is None:
        return None, text
    if found["this"]:
        raise RuleError(
            'which ones are expected? Write such as "for branch main and release", or "for each branch of ci.started"'
        )
    by, days = _time_and_days(rule)
    arguments = {
        "types": re.split(AND, found["types"]),
        "by": by,
        "days": days,
        "since": found["since"] or "",
        "tz": str(rule.zone),
        "key": _path(found["each"] or found["key"] or ""),
        "keys": re.split(AND, found["values"]) if found["values"] else [],
        "of": found["of"] or "",
    }
    return arguments, text.lstrip()[found.end() :].lstrip(f"{JOINTS}\n").rstrip()


def switch_of_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings of the switch that `on.absence` declares with these. TypeError, ValueError."""
    types = arguments.get("types", [])
    if not isinstance(types, list) or not all(isinstance(one, str) for one in types):
        raise TypeError(f"absence must be a list of event types, not {types!r}")
    return dict(on.absence(*types, **{name: value for name, value in arguments.items() if name != "types"}).settings)


def _rule(when: str, tz: str) -> Cron | None:
    """The rule of the days and the time; None: the words are no rule."""
    said = " ".join(when.split()).rstrip(JOINTS)
    if EVERY_DAY.fullmatch(said.lower()):
        said = f"every day at {said.lower().removeprefix('at ').removeprefix('by ')}"
    for words in (said, f"{said}:00"):
        try:
            rule = read_rule(words.replace(" by ", " at "), tz)
        except RuleError:
            continue
        if not isinstance(rule, Cron):
            raise RuleError(f"{when!r} is no time of day that recurs; {EXAMPLE}")
        return rule
    return None


def _time_and_days(rule: Cron) -> tuple[str, str]:
    if len(rule.hours) != 1 or len(rule.minutes) != 1 or (rule.day_of_month, rule.month) != ("*", "*"):
        raise RuleError(f"a deadline is one time of day, on days of the week; {EXAMPLE}")
    days = "" if len(rule.weekdays) == len(WEEKDAYS) else ", ".join(WEEKDAYS[day][:3] for day in rule.weekdays)
    return f"{rule.hours[0]:02}:{rule.minutes[0]:02}", days


def _path(name: str) -> str:
    """Such as event.data.branch for "branch"."""
    return name if not name or name.startswith("event.") else f"event.data.{name}"
