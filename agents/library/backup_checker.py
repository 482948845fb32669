"""Checks that backups are there, new and large enough. Its checklist says which, an item each:

    /backup/shop/*.dump newer than 26h, at least 10 MB

The folder must be below WAKEFUL_FILE_ROOTS or WAKEFUL_WORK_ROOTS of the workers. It reads names, times and sizes, and no content.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from agents import AgentRun, agent, on
from agents.checklists.run_checklist import DueItem
from agents.files import FOLDER, is_beneath, open_beneath, roots
from agents.heartbeats.due_items import due_items
from agents.kernel.durations import in_words, parse_duration
from agents.work_files import work_roots

RULE = re.compile(
    r"(?P<folder>/.*)/(?P<pattern>[^/]+?)\s+newer than\s+(?P<age>[^,]+?)(?:,\s*at least\s+(?P<size>\d+)\s*(?P<unit>[kMG]?B))?\s*"
)
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
MOST_FILES = 100_000
AHEAD = timedelta(hours=1)  # by which the clock of another host may differ
SHRUNK = 2  # times smaller than the one before


@dataclass(frozen=True, kw_only=True)
class Rule:
    folder: str
    pattern: str
    age: timedelta
    size: int

    @classmethod
    def of(cls, text: str) -> "Rule":
        """ValueError: it is no rule."""
        found = RULE.fullmatch(text.strip())
        if found is None:
            raise ValueError('not a rule; write "/backup/shop/*.dump newer than 26h, at least 10 MB"')
        size = int(found["size"] or 1) * UNITS[found["unit"] or "B"]
        return cls(folder=found["folder"], pattern=found["pattern"], age=parse_duration(found["age"]), size=size)


@dataclass(frozen=True, kw_only=True)
class Backup:
    name: str
    at: datetime
    size: int


@agent("backup-checker", triggers=[on.heartbeat("1h", catch_up="skip")], gate=due_items, retries=1)
def backup_checker(run: AgentRun) -> Any:
    """Notifies people when the newest backup is missing, old, ahead of now, too small or half of the last, and when it is good again."""
    now = run.now()

    def check(item: DueItem) -> str | None:
        wrong = fault_of(Rule.of(item.text), now)
        if wrong:
            run.notify(f"Backup: {wrong}", urgency="high", topic=f"backup:{item.id}")
        elif item.last_outcome == "news":
            run.notify(f"Backup: all is well again with {item.text}", topic=f"backup:{item.id}")
        return wrong or None

    return [{"item": one.item, "outcome": one.outcome, "text": one.text} for one in run.checklist.each(check)]


def fault_of(rule: Rule, now: datetime) -> str:
    """What is wrong, in the same words as long as it is the same; empty: nothing."""
    wanted = f"{rule.folder}/{rule.pattern}"
    backups = sorted(backups_of(rule), key=lambda one: (one.at, one.name))
    if not backups:
        return f"there is no {wanted}."
    newest, *before = backups[::-1][:2]
    if newest.at - now > AHEAD:
        return f"{newest.name} in {rule.folder} is of {newest.at:%Y-%m-%d %H:%M} UTC, ahead of now: it hides whether one is missing."
    if now - newest.at > rule.age:
        return f"no {wanted} is newer than {in_words(rule.age)}; the newest is {newest.name} of {newest.at:%Y-%m-%d %H:%M} UTC."
    if newest.size < rule.size:
        return f"{newest.name} in {rule.folder} has {newest.size:,} bytes, less than {rule.size:,}."
    if before and newest.size * SHRUNK < before[0].size:
        return f"{newest.name} in {rule.folder} has {newest.size:,} bytes; {before[0].name} before it has {before[0].size:,}."
    return ""


def backups_of(rule: Rule) -> Iterator[Backup]:
    """The regular files of the folder that match. ValueError: it may not be read."""
    path = os.fsencode(rule.folder)
    root = next((root for root in [*roots(), *map(os.fsencode, work_roots())] if is_beneath(path, root)), None)
    if root is None:
        raise ValueError(f"{rule.folder} is not below one of WAKEFUL_FILE_ROOTS and WAKEFUL_WORK_ROOTS")
    parts = path[len(root.rstrip(b"/")) :].strip(b"/")
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = open_beneath(top, parts.split(b"/"), FOLDER) if parts else os.dup(top)
    finally:
        os.close(top)
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number == MOST_FILES:
                    raise ValueError(f"{rule.folder} has more than {MOST_FILES:,} files")
                if not fnmatchcase(entry.name, rule.pattern):
                    continue
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    at = datetime.fromtimestamp(found.st_mtime, UTC)
                    yield Backup(name=entry.name.encode(errors="replace").decode(), at=at, size=found.st_size)
    finally:
        os.close(folder)
