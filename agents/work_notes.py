"""The daily note: a file for each day below the first of WAKEFUL_WORK_ROOTS, to which agents append and which people edit."""

from datetime import datetime
from zoneinfo import ZoneInfo

from agents.work_files import append_work_file

FOLDER = "notes"
LENGTH = 4_000  # characters of a note


def append_note(text: str, *, at: datetime, by: str, key: str) -> str:
    """Append a note to that of the day, in WAKEFUL_ZONE, once for each key; returns its path. ValueError: it cannot be written."""
    from django.conf import settings

    said = "\n  ".join(line.rstrip() for line in text.strip().splitlines())
    if not said or len(text) > LENGTH:
        raise ValueError(f"a note has 1 to {LENGTH:,} characters")
    mark = f"<!-- {key.replace('--', '- -')} -->"
    local = at.astimezone(ZoneInfo(str(settings.WAKEFUL_ZONE)))
    path = f"{FOLDER}/{local:%Y-%m-%d}.md"
    append_work_file(path, f"- {local:%H:%M} {by}: {said} {mark}\n", mark=mark)
    return path
