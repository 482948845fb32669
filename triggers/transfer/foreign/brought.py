"""What a file of another program becomes here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from triggers.matching.trigger_policy import policy_for

LONGEST_SLUG = 100
MARKED = 7  # characters of a dash and a digest


@dataclass(kw_only=True)
class Line:
    """One entry of the file: what it becomes, or why it is left out."""

    where: str  # such as "line 7"
    what: str
    becomes: str = ""  # such as "schedule backup"; empty: it is left out
    notes: list[str] = field(default_factory=list)
    switch: str = ""  # the slug of the dead man's switch that it becomes
    old_address: str = ""
    new_address: str = ""

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}", f"    → {self.becomes}" if self.becomes else "    left out"]
        if self.switch:
            lines.append(
                f"    address: {self.old_address or '?'} → {self.new_address or '(shown once, when it was made)'}"
            )
        return "\n".join([*lines, *(f"    note: {note}" for note in self.notes)])


@dataclass(kw_only=True)
class Brought:
    """The entries of a transfer file, and a report with each entry of the foreign one."""

    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # about all of it
    problems: list[str] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    triggers: list[dict[str, Any]] = field(default_factory=list)
    schedules: list[dict[str, Any]] = field(default_factory=list)
    owed_since: dict[str, datetime] = field(
        default_factory=dict
    )  # by name: the other program has fired what was due until then
    crontab: str = ""  # the name of the crontab; its jobs have it in their data
    is_named: bool = True  # the name was given, and is no guess by that of the file

    def schedule(self, name: str, agent: str, *, rule: Mapping[str, Any], **fields: Any) -> None:
        """A schedule with a trigger of its own, so that each job is paused, watched and counted by itself."""
        slug = slug_of(name)
        policy = policy_for(agent) if agent else {}
        self.triggers.append({"slug": slug, "agent": agent, "overlap": "skip", "policy": policy})
        self.schedules.append({"name": name, "trigger": slug, **rule, **fields})

    def rename(self, names: Mapping[str, tuple[str, str]]) -> None:
        """`names`: of each schedule, and of its trigger, by the name of now."""
        for trigger, schedule in zip(self.triggers, self.schedules, strict=True):
            schedule["name"], schedule["trigger"] = names[schedule["name"]]
            trigger["slug"] = schedule["trigger"]
        self.owed_since = {names[name][0]: since for name, since in self.owed_since.items()}
        for line in self.lines:
            line.becomes = re.sub(r"(?<=schedule )\S+(?=:)", lambda found: names[found[0]][0], line.becomes)

    def refuse(self, where: str, problem: object) -> None:
        self.problems.append(f"{where}: {problem}")

    def left_out(self) -> Iterator[Line]:
        yield from (line for line in self.lines if not line.becomes)


def slug_of(name: str) -> str:
    """The name itself where it is a slug; else what is left of it, with a digest: two names never have one slug."""
    cleaned = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")
    return cleaned if cleaned == name and len(name) <= LONGEST_SLUG else marked(cleaned, name)


def marked(text: str, identity: str) -> str:
    """The text with a short digest of what it stands for."""
    return f"{text[: LONGEST_SLUG - MARKED].strip('-') or 'job'}-{sha256(identity.encode()).hexdigest()[: MARKED - 1]}"
