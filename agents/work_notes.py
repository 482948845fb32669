"""The daily note: a file for each day below the first of WAKEFUL_WORK_ROOTS, to which agents append and which people edit."""

import re
from datetime import date, datetime
from zoneinfo import ZoneInfo

from agents.work_files import append_work_file

FOLDER = "notes"
LENGTH = 4_000  # characters of a note
MARK = re.compile(r"<!-- .*? -->")


def append_note(text: str, *, at: datetime, by: str, key: str) -> str:
    """Append a note to that of the day, in WAKEFUL_ZONE, once for each key; returns its path. ValueError: it cannot be written."""
    from django.conf import settings

    said = "\n  ".join(line.rstrip() for line in text.strip().splitlines())
    if not said or len(text) > LENGTH:
        raise ValueError(f"a note has 1 to {LENGTH:,} characters")
    mark = f"<!-- {key.replace('--', '- -')} -->"
    local = at.astimezone(ZoneInfo(str(settings.WAKEFUL_ZONE)))
    path = path_of_day(local.date())
    append_work_file(path, f"- {local:%H:%M} {by}: {said} {mark}\n", mark=mark)
    return path


def path_of_day(day: date) -> str:
    return f"{FOLDER}/{day:%Y-%m-%d}.md"


def without_mark(text: str) -> str:
    """A note without the comment by which a repetition of it is known."""
    return MARK.sub("", text)
