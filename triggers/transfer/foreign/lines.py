"""Which jobs of a crontab are here already.

A line is known by its command, with its user and its input, in the crontab of its name. Other days or times change its schedule; another
command is another job. The schedules of jobs that are no longer in the file are *gone*: cron would not fire them either.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from triggers.models import Schedule
from triggers.schedules.edit import rule_here
from triggers.schedules.rows import RELATED
from triggers.schedules.rules.as_json import parse_rule
from triggers.transfer.check import ImportRefused
from triggers.transfer.foreign.brought import Brought, marked

Entry = dict[str, Any]
Pairs = dict[str, Schedule]  # by the name that the entry was read with
OTHER_CRONTAB = (
    "none of the {count} jobs that are here of the crontab {name} is in this file: if it is this crontab all the same, give "
    "--crontab {name}; if it is another, give it another name by --crontab"
)
SAME_JOB = (
    "{command!r} is here already, in the crontab {other}: if this is that crontab, give --crontab {other}; if it is another, so that both "
    "are to run, give --crontab {name}"
)


def name_of(data: Mapping[str, Any], number: int) -> str:
    """The name of the schedule of a job; `number`: of its rules, from 1 on."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", data["command"]).strip("-")[:40]
    name = marked(words, repr((data["crontab"], *job_of(data))))
    return name if number == 1 else f"{name}-{number}"


def job_of(data: Any) -> tuple[str, ...]:
    return tuple(str(data.get(part, "")) for part in ("user", "command", "stdin"))


def recognise(brought: Brought) -> list[Schedule]:
    """Give each job that is here the name that it has here. The schedules whose jobs are gone; ImportRefused where the name of the crontab
    is a guess, and seems to be wrong."""
    here = list(
        Schedule.objects.filter(data__crontab=brought.crontab, trigger__isnull=False)
        .select_related(*RELATED)
        .order_by("pk")
    )
    pairs = _pairs(brought.schedules, here)
    if not brought.is_named:
        _require_likely(brought, pairs, len(here))
    brought.rename(_names(brought.schedules, pairs, {one.task.name for one in here}))
    kept = {one.pk for one in pairs.values()}
    return [one for one in here if one.pk not in kept]


def _pairs(entries: Iterable[Entry], here: Iterable[Schedule]) -> Pairs:
    """Of jobs with one command, those with the same rule belong together, then the others in order."""
    jobs = {entry["name"]: job_of(entry["data"]) for entry in entries}
    rules = {entry["name"]: parse_rule(cron=entry["cron"], tz=entry["tz"]) for entry in entries}
    pairs: Pairs = {}
    _pair(pairs, jobs, here, lambda name: (jobs[name], rules[name]), lambda one: (job_of(one.data), rule_here(one)))
    _pair(pairs, jobs, here, lambda name: jobs[name], lambda one: job_of(one.data))
    return pairs


def _pair(
    pairs: Pairs,
    names: Iterable[str],
    here: Iterable[Schedule],
    key: Callable[[str], object],
    key_here: Callable[[Schedule], object],
) -> None:
    paired = {one.pk for one in pairs.values()}
    left = defaultdict[object, deque[Schedule]](deque)
    for one in here:
        if one.pk not in paired:
            left[key_here(one)].append(one)
    for name in names:
        if name not in pairs and left[key(name)]:
            pairs[name] = left[key(name)].popleft()


def _require_likely(brought: Brought, pairs: Pairs, here: int) -> None:
    if here and not pairs:
        raise ImportRefused([OTHER_CRONTAB.format(count=here, name=brought.crontab)])
    agents = {entry["agent"] for entry in brought.triggers}
    others = (
        Schedule.objects.filter(data__has_key="crontab", trigger__agent__in=agents)
        .exclude(data__crontab=brought.crontab)
        .values_list("data", flat=True)
    )
    crontabs = {job_of(data): data["crontab"] for data in others if data}
    for entry in brought.schedules:
        if entry["name"] not in pairs and (other := crontabs.get(job_of(entry["data"]))):
            named = {"command": entry["data"]["command"], "other": other, "name": brought.crontab}
            raise ImportRefused([SAME_JOB.format(**named)])


def _names(entries: Iterable[Entry], pairs: Pairs, taken: set[str]) -> dict[str, tuple[str, str]]:
    """Name and trigger by the name that the entry was read with; new jobs have names that no other has."""
    names, numbers = {}, Counter[tuple[str, ...]]()
    for entry in entries:
        paired = pairs.get(entry["name"])
        if paired and paired.trigger:
            names[entry["name"]] = (paired.task.name, paired.trigger.slug)
        else:
            free = _free(entry["data"], numbers, taken)
            names[entry["name"]] = (free, free)
    return names


def _free(data: Mapping[str, Any], numbers: Counter[tuple[str, ...]], taken: set[str]) -> str:
    job = job_of(data)
    while True:
        numbers[job] += 1
        if (name := name_of(data, numbers[job])) not in taken:
            return name
