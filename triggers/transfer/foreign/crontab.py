"""Crontabs of users and of the system, as cron reads them."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.kernel.redaction import SECRET_FIELD
from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import Cron
from triggers.transfer.foreign.brought import Brought, Line
from triggers.transfer.foreign.lines import job_of, name_of

ENVIRONMENT = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=(.*)""", re.DOTALL)
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST = 100_000  # characters of a job, with its variables: each of its events has them
AT_BOOT = "cron runs it when the machine starts, which is no time: start it by a unit of systemd, or by the process that needs it"
TWICE = (
    "cron fires on the day of the month or on the weekday, so these are two schedules; a date that is both fires both: write the "
    "exception into the agent, or drop one"
)
SHOWN = "its text looks as if it had a secret, and each event of the schedule would show it: let the agent read it from the environment"
IN_UTC = "lines without CRON_TZ are read in UTC; if the machine has another zone, name it by --tz"
NO_OVERLAP = "cron starts a job although its last run still runs; here that time is skipped (the trigger's overlap, which you can change)"
MAIL = (
    "MAILTO={to}: output is not mailed. A run that fails is listed, and an alarm is notified; an agent notifies by run.notify. "
    "Enter people as recipients (manage.py recipients add)"
)


@dataclass
class _State:
    """What the lines before have set for those after them."""

    crontab: str
    zone: str
    environment: dict[str, str] = field(default_factory=dict)
    delay: int = 0
    comments: list[str] = field(default_factory=list)


def read_crontab(
    text: str, *, crontab: str, agent: str, zone: str, system: bool, since: datetime | None = None
) -> Brought:
    """`system`: its lines name a user before the command. `since`: cron has fired what was due until then."""
    brought, state, seen = Brought(crontab=crontab), _State(crontab, zone), Counter[tuple[str, ...]]()
    for number, line in enumerate(text.split("\n"), 1):  # as cron: no other character ends a line
        where, line = f"line {number}", line.strip(" \t\r")
        if not line:
            state.comments.clear()
        elif line.startswith("#"):
            state.comments.append(line.lstrip("# ").rstrip())
        elif found := ENVIRONMENT.fullmatch(line):
            _set(brought, state, where, found)
        else:
            _job(brought, state, where, line, agent=agent, system=system, seen=seen)
            state.comments.clear()
    if brought.schedules:
        brought.notes.append(NO_OVERLAP)
    if zone == "UTC" and any(entry["tz"] == zone for entry in brought.schedules):
        brought.notes.append(IN_UTC)
    if since:
        brought.owed_since = {entry["name"]: since for entry in brought.schedules}
    return brought


def _set(brought: Brought, state: _State, where: str, found: re.Match[str]) -> None:
    name, value = found[1] or found[2] or found[3], found[4].strip(" \t")
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if name == "CRON_TZ":
        state.zone = value
    elif name == "MAILTO":
        brought.notes.append(
            f"{where}: {MAIL.format(to=value)}" if value else f"{where}: MAILTO is empty: nothing was mailed"
        )
    elif name == "RANDOM_DELAY" and value.isdecimal():
        state.delay = int(value)
    elif SECRET_FIELD.search(name):
        brought.notes.append(f"{where}: {name} is left out: it looks like a secret; set it for the worker")
    else:
        state.environment[name] = value


def _job(
    brought: Brought, state: _State, where: str, line: str, *, agent: str, system: bool, seen: Counter[tuple[str, ...]]
) -> None:
    rule, user, rest = _split(line, system=system)
    if rule == "@reboot":
        brought.lines.append(Line(where=where, what=line, notes=[AT_BOOT]))
        return
    if not rest:
        wanted = "five fields (or @daily and the like)" + (", a user and a command" if system else " and a command")
        brought.refuse(where, f"{line!r} must have {wanted}; correct the line, or take it out")
        return
    if rule.startswith("@") and rule not in NICKNAMES:
        brought.refuse(where, f"{rule} is unknown; use {', '.join(NICKNAMES)}, or five fields")
        return
    try:
        rules = [Cron.parse(text, state.zone) for text in _either(NICKNAMES.get(rule, rule))]
    except RuleError as error:
        brought.refuse(where, error)
        return
    data = _data(rest, user, state)
    if len(str(data)) > LONGEST:
        brought.refuse(
            where, f"its command and its variables are longer than {LONGEST:,} characters; put them into a script"
        )
        return
    job, names = job_of(data), []
    for _ in rules:
        seen[job] += 1
        names.append(name_of(data, seen[job]))
    for one, parsed in zip(names, rules, strict=True):
        jitter = {"jitter": f"{state.delay}m"} if state.delay else {}
        brought.schedule(one, agent, rule={"cron": parsed.text, "tz": str(parsed.zone)}, data=data, **jitter)
    becomes = "; ".join(f"schedule {one}: {parsed.words}" for one, parsed in zip(names, rules, strict=True))
    notes = list(_notes(data, len(rules)))
    brought.lines.append(Line(where=where, what=line, becomes=becomes, notes=notes))


def _split(line: str, *, system: bool) -> tuple[str, str, str]:
    """The rule, the user (of the system's crontabs), and the command."""
    fields = 1 if line.startswith("@") else 5
    parts = line.split(None, fields + system)
    rule = " ".join(parts[:fields])
    rest = parts[fields:]
    return rule, rest[0] if system and rest else "", rest[-1] if len(rest) > system else ""


def _either(rule: str) -> list[str]:
    """cron's rule as rules whose days must all hold: with a day of the month and a weekday, cron fires on either."""
    parts = rule.split()
    if len(parts) != 5 or parts[2].startswith("*") or parts[4].startswith("*"):
        return [rule]
    minute, hour, day, month, weekday = parts
    return [f"{minute} {hour} {day} {month} *", f"{minute} {hour} * {month} {weekday}"]


def _data(command: str, user: str, state: _State) -> dict[str, Any]:
    """What the agent is given as `run.event.data["data"]`."""
    line, *lines = _at_percent_signs(command)
    data: dict[str, Any] = {"crontab": state.crontab, "command": line.strip()}
    if lines:
        data["stdin"] = "\n".join(lines).removesuffix("\n") + "\n"
    if user:
        data["user"] = user
    if state.environment:
        data["env"] = dict(state.environment)
    if description := " ".join(filter(None, state.comments)):
        data["description"] = description
    return data


def _at_percent_signs(command: str) -> list[str]:
    """cron passes what is behind the first % as input, with a new line for each further one; \\% is a percent sign."""
    return [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]


def _notes(data: dict[str, Any], rules: int) -> Iterator[str]:
    if rules > 1:
        yield TWICE
    if "stdin" in data:
        yield "what is behind the % is the input of the command: data.stdin"
    if "user" in data:
        yield f"cron runs it as {data['user']}; an agent runs as the user of its worker"
    if SECRET_FIELD.search(data["command"]):
        yield SHOWN
