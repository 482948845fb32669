"""Reports: where the outcome of a run goes when it ends."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

On = Literal["end", "success", "failure"]
ONS: tuple[On, ...] = get_args(On)
MOST = 10  # reports of a trigger
MOST_NAMES = 50  # of recipients, and of subscriptions, in a report
NAME_LENGTH = 200
LINE_LENGTH = 10_000  # characters of a report as a line: the time to read quotes in it grows with their square
FIELDS = ("on", "notify", "webhooks", "event", "reply")  # besides `by`
EXAMPLE = "failure: notify ops; event"
QUOTED = re.compile(r'[,;"]|^\s|\s$')
ALONE = ("event", "reply")  # fields that take no names
DESTINATIONS = {
    "notify": "notify",
    "webhook": "webhooks",
    "event": "event",
    "reply": "reply",
}  # the word of a line, and its field
# A destination of a line, and a name in it: as it is, or as a JSON string if it has a comma, a semicolon or a quote.
PART = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^;"])+')
NAME = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^,"]+)\s*(?:,|$)')


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report each end of a run, only a success, or only a failure, which is every end that is no success.

    `notify` names recipients and groups; True: those who get what names no recipient. `webhooks` names subscriptions, which get
    the event `run.finished` whatever types and filter they have. `event` records that event for the triggers, subscriptions and
    switches that name its type. `reply` answers the message that woke the run. `by`: who asked for the report of this one run, and
    then also gets to know that no run came of it; Wakeful sets it. Raises ValueError.
    """

    on: On = "end"
    notify: bool | str | Sequence[str] = False
    webhooks: str | Sequence[str] = ()
    event: bool = False
    reply: bool = False
    by: str = ""

    def __post_init__(self) -> None:
        for name in ("notify", "webhooks"):
            value = getattr(self, name)
            if isinstance(value, str | list | tuple):
                object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if faults := list(self._faults()):
            raise ValueError(f"report: {'; '.join(faults)}")

    def _faults(self) -> Iterator[str]:
        if self.on not in ONS:
            yield f"on is {self.on!r}; use {', '.join(ONS)}"
        if not isinstance(self.notify, bool) and not _are_names(self.notify):
            yield f"notify is {self.notify!r}; use true, or a list of at most {MOST_NAMES} names"
        if not _are_names(self.webhooks):
            yield f"webhooks are {self.webhooks!r}; use a list of at most {MOST_NAMES} names of subscriptions"
        for name in ALONE:
            if not isinstance(getattr(self, name), bool):
                yield f"{name} is {getattr(self, name)!r}; use true or false"
        if not (self.notify or self.webhooks or self.event or self.reply):
            yield "it goes nowhere; give notify, webhooks, event or reply"

    @classmethod
    def load(cls, stored: Any) -> "Report":
        """Read its JSON. ValueError names what is wrong; also a field that this version does not know."""
        if not isinstance(stored, Mapping):
            raise ValueError(f'a report is {{"on": "failure", "notify": ["ops"]}}, not {stored!r}')
        if unknown := sorted(set(stored) - {*FIELDS, "by"}):
            raise ValueError(f"report: unknown fields {', '.join(unknown)}; use {', '.join(FIELDS)}")
        return cls(**stored)

    def dump(self) -> dict[str, Any]:
        """Its JSON, without what is not set."""
        given = {
            "notify": self.notify,
            "webhooks": self.webhooks,
            "event": self.event,
            "reply": self.reply,
            "by": self.by,
        }
        return {
            "on": self.on,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value},
        }

    def covers(self, status: str) -> bool:
        """Is an end with this status reported?"""
        return self.on == "end" or (self.on == "success") == (status == "succeeded")

    @property
    def recipients(self) -> tuple[str, ...]:
        return self.notify if isinstance(self.notify, tuple) else ()

    @property
    def line(self) -> str:
        """The report as a line of text, which `of_line` reads."""
        parts = [f"notify {_listed(self.recipients)}".strip()] if self.notify else []
        parts += [f"webhook {_listed(self.webhooks)}"] if self.webhooks else []
        parts += [name for name in ALONE if getattr(self, name)]
        return f"{self.on}: {'; '.join(parts)}"

    @classmethod
    def of_line(cls, line: str) -> "Report":
        """Read a line such as `failure: notify ops, night; webhook crm; event`. ValueError names what is wrong."""
        if len(line) > LINE_LENGTH:
            raise ValueError(
                f"a line has at most {LINE_LENGTH:,} characters, not {len(line):,}; name a group of recipients"
            )
        on, colon, rest = line.partition(":")
        given: dict[str, Any] = {"on": on.strip().lower()}
        if not colon:
            raise ValueError(f"{line!r} has no colon; write one line for each report, such as “{EXAMPLE}”")
        for part in filter(None, map(str.strip, _parts_of(rest))):
            word, _, names = part.partition(" ")
            field = DESTINATIONS.get(word.lower())
            if field is None or (field in ALONE and names):
                raise ValueError(f"{part!r} is no destination; use notify, webhook, event or reply: “{EXAMPLE}”")
            if field in given:
                raise ValueError(f"{word} stands twice in {line!r}; write it once, with all names")
            given[field] = _names_in(names) if names or field == "webhooks" else True
        return cls.load(given)


def read_reports(stored: Any) -> tuple[Report, ...]:
    """Read a list of reports. ValueError names what is wrong."""
    if not isinstance(stored, list | tuple) or len(stored) > MOST:
        raise ValueError(f"reports must be a list of at most {MOST} reports")
    return tuple(one if isinstance(one, Report) else Report.load(one) for one in stored)


def _are_names(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MOST_NAMES
        and all(isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and "\0" not in name for name in value)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(json.dumps(name, ensure_ascii=False) if QUOTED.search(name) else name for name in names)


def _parts_of(text: str) -> list[str]:
    if PART.sub("", text).strip(";"):
        raise ValueError(f"{text.strip()!r} has a quote that is not closed")
    return PART.findall(text)


def _names_in(text: str) -> list[str]:
    """The names, at least one."""
    names, at = [], 0
    while at < len(text.rstrip()):
        found = NAME.match(text, at)
        if found is None:
            raise ValueError(f"{text.strip()!r} is no list of names; separate them by commas")
        name, at = found[1].strip(), found.end()
        names.append(_unquoted(name) if name.startswith('"') else name)
    if not all(names) or not names:
        raise ValueError(f"a name is missing: “{EXAMPLE}”")
    return names


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise ValueError(
            f"{text} is no name in quotes; before a backslash and a quote in it, write a backslash"
        ) from None
