"""Sends a brief before each meeting of the calendars that are sources: what, when, where, with whom, and what notes name it.

How long before is a setting of the source. The notes are the daily ones below the first of WAKEFUL_WORK_ROOTS, if that is set.
"""

from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings

from agents import AgentRun, Permanent, agent, on
from agents.work_files import WorkFileRefused, read_work_file, work_roots
from agents.work_notes import path_of_day, without_mark

MOST_PEOPLE = 20
MOST_DAYS = 31  # whose notes are read
MOST_NOTES = 5
LONGEST_NOTE = 300  # characters
LONGEST_DESCRIPTION = 600
SHORTEST_TITLE = 4  # letters by which notes are found
ANSWERS = {"accepted": "", "declined": " (declined)", "tentative": " (maybe)"}


# What people enter for themselves has no attendees.
@agent("calendar-brief", triggers=[on.event("calendar.starts", filter="event.data.attendees.size() > 0")], retries=1)
def calendar_brief(run: AgentRun) -> Any:
    """Notifies people of a meeting that starts soon: one brief for each start, and none for a meeting that is over."""
    meeting = run.event.data
    try:
        starts_at, ends_at = (datetime.fromisoformat(meeting[name]) for name in ("starts_at", "ends_at"))
        if run.now() >= ends_at:
            return {"briefed": False, "because": "it is over"}
        text = brief_of(meeting, starts_at, ends_at, notes_on(str(meeting["title"]), last_day(starts_at)))
    except (TypeError, KeyError, ValueError) as error:
        raise Permanent(f"not the data of a meeting: {error!r}") from error
    run.notify(text, topic=f"meeting:{meeting['id']}"[:200])
    return {"briefed": True}


def brief_of(meeting: dict[str, Any], starts_at: datetime, ends_at: datetime, notes: list[str]) -> str:
    last = "%H:%M" if ends_at.date() == starts_at.date() else "%a %d %b %H:%M"
    when = "all day" if meeting["is_all_day"] else f"{starts_at:%H:%M} to {ends_at:{last}}"
    lines = [meeting["title"] or "Meeting without a title", f"When: {starts_at:%a %d %b}, {when} ({meeting['zone']})"]
    where = [meeting["location"], meeting["meeting"]]
    lines += [f"Where: {', '.join(dict.fromkeys(filter(None, where)))}"] if any(where) else []
    lines += [f"Who: {', '.join(people_of(meeting))}"]
    about = " ".join(meeting["description"].split())
    lines += [f"About: {shortened(about, LONGEST_DESCRIPTION)}"] if about else []
    return "\n".join([*lines, *(["Notes:", *notes] if notes else [])])


def people_of(meeting: dict[str, Any]) -> list[str]:
    """The organizer and the attendees, each once."""
    people: dict[str, str] = {}
    for one in [meeting["organizer"], *meeting["attendees"]]:
        shown = one["name"] or one["address"]
        if shown:
            people.setdefault(one["address"] or shown, f"{shown[:100]}{ANSWERS.get(one.get('response', ''), '')}")
    named = list(people.values())
    return [*named[:MOST_PEOPLE], *([f"and {len(named) - MOST_PEOPLE} more"] if len(named) > MOST_PEOPLE else [])]


def last_day(starts_at: datetime) -> date:
    """Whose notes may be the newest: the day of a note is that of WAKEFUL_ZONE, which may be ahead of the meeting's zone."""
    return max(starts_at.date(), starts_at.astimezone(ZoneInfo(str(settings.WAKEFUL_ZONE))).date())


def notes_on(title: str, day: date) -> list[str]:
    """The last notes that name the meeting, the newest first; none without a work root."""
    wanted = " ".join(title.split()).casefold()
    if not work_roots() or len(wanted) < SHORTEST_TITLE:
        return []
    found: list[str] = []
    for back in range(MOST_DAYS):
        on = day - timedelta(days=back)
        try:
            file = read_work_file(path_of_day(on))
        except WorkFileRefused:  # what people have put there is no note
            continue
        entries = (
            " ".join(without_mark(entry).split()) for entry in f"\n{file.text if file else ''}".split("\n- ")[1:]
        )
        found += [f"- {on}: {shortened(entry, LONGEST_NOTE)}" for entry in entries if wanted in entry.casefold()][::-1]
        if len(found) >= MOST_NOTES:
            break
    return found[:MOST_NOTES]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
