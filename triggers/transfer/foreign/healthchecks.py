"""Checks of Healthchecks, from its API: `GET /api/v3/checks/`, or of an earlier version."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from triggers.exceptions import Invalid, RuleError
from triggers.models import Source
from triggers.schedules.rules.crontab import Cron
from triggers.switches.switch import OPENED, PING
from triggers.transfer.foreign.brought import Brought, Line, marked, slug_of

SHAPE = 'the file must be the JSON of Healthchecks\' GET /api/v3/checks/: {"checks": […]}'
LOOKED_AT = 2000  # nominal times of a crontab, in search of the longest time between two
DAY = 86400
BY_MAIL = ("subject", "subject_fail", "start_kw", "success_kw", "failure_kw", "filter_subject", "filter_body")
Check = Mapping[str, Any]


def read_checks(content: Any, *, agent: str = "") -> Brought:
    """Each check becomes a dead man's switch; with an agent, a trigger that wakes it when the switch opens, too."""
    checks = content.get("checks") if isinstance(content, dict) else None
    if not isinstance(checks, list) or not all(isinstance(one, dict) for one in checks):
        raise Invalid([SHAPE])
    brought = Brought()
    here = {source.slug: source.settings for source in Source.objects.filter(kind=PING)}
    slugs = Counter(_slug(check) for check in checks)
    for number, check in enumerate(checks, 1):
        slug = _slug(check)
        # Names need not be unique there: the address distinguishes them.
        slug = slug if slugs[slug] == 1 else marked(slug, _identity(check))
        try:
            _check(brought, f"check {number}", slug, check, here=here, agent=agent)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            brought.refuse(f"check {number} ({check.get('name')})", f"{SHAPE}: {error!r}")
    if brought.lines:
        brought.notes.append(
            "who is notified is not carried over: while a switch is down, Wakeful notifies those who get what names no recipient "
            "(manage.py recipients add)"
        )
    return brought


def _check(brought: Brought, where: str, slug: str, check: Check, *, here: Mapping[str, Any], agent: str) -> None:
    old = str(check.get("ping_url", ""))
    line = Line(
        where=where, what=str(check.get("name") or slug), becomes=f"source {slug}", switch=slug, old_address=old
    )
    brought.lines.append(line)
    try:
        every, notes = _period(check)
    except RuleError as error:
        line.becomes = line.switch = ""
        line.notes.append(f"{error} Make a dead man's switch with a period by hand.")
        return
    line.notes += [*notes, *_notes(check, old)]
    settings = {**here.get(slug, {}), "every": f"{every}s", "grace": f"{int(check['grace'])}s"}
    source: dict[str, Any] = {"slug": slug, "kind": PING, "settings": settings}
    if slug not in here:  # whether one that is here is on stays as it is
        source["enabled"] = check.get("status") != "paused"
    brought.sources.append(source)
    if agent:
        brought.triggers.append({"slug": slug, "agent": agent, "source": slug, "types": [OPENED]})
        line.becomes += f", trigger {slug}"


def _slug(check: Check) -> str:
    return slug_of(str(check.get("slug") or check.get("name") or "check"))


def _identity(check: Check) -> str:
    return str(check.get("ping_url") or check.get("unique_key") or check.get("name"))


def _period(check: Check) -> tuple[int, list[str]]:
    """The longest normal time between two pings, in seconds."""
    if not (schedule := check.get("schedule")):
        return int(check["timeout"]), []
    zone = check.get("tz") or "UTC"
    every = int(_longest_gap(Cron.parse(str(schedule), str(zone))).total_seconds())
    note = (
        f"its schedule {schedule} ({zone}) becomes a period of {every} s, the longest time between two of its times: where it "
        "pings more often, a ping that does not come is seen later. Active hours narrow it"
    )
    return every, [note]


def _longest_gap(rule: Cron) -> timedelta:
    times = list(islice(rule.fires(datetime.now(UTC)), LOOKED_AT))
    return max((later - earlier for earlier, later in pairwise(times)), default=timedelta(seconds=DAY))


def _notes(check: Check, old: str) -> Iterator[str]:
    if not old:
        yield "the file has no ping_url, as its API key is read-only: use one that may write to see the old address"
    if check.get("methods"):
        yield f"it takes {check['methods']} alone; here HEAD, GET, POST and PUT are pings"
    if mail := [name for name in BY_MAIL if check.get(name)]:
        yield f"{', '.join(mail)}: pings by mail are not taken; let the job ping by HTTP"
    if check.get("status") == "paused":
        yield "it is paused there, and off here: a ping does not switch it on"
