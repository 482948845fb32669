"""Check the shape of a transfer file: its format, its fields and their types."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from triggers.exceptions import Invalid
from triggers.schedules.terms.policy import NAMES
from triggers.transfer.export import FORMAT, VERSION

RULE = ("cron", "tz", "every", "at", "solar", "latitude", "longitude")
FIELDS: dict[str, dict[str, Any]] = {
    "sources": {"slug": str, "kind": str, "enabled": bool, "trusted": bool, "settings": dict, "limits": dict, "detectors": list},
    "prompt_agents": {
        "name": str, "instructions": str, "model": str, "tools": list, "connections": dict, "session": str, "by_thread": bool,
        "notify": bool, "notify_to": list, "emit": str, "ask_first": bool, "checklist": list, "budget": dict,
    },
    "triggers": {
        "slug": str, "agent": str, "declared": bool, "enabled": bool, "source": str, "types": list, "filter": str,
        "input": dict, "key": str, "key_limit": int, "overlap": str, "policy": dict, "tools": (list, type(None)),
    },
    "subscriptions": {
        "slug": str, "address": str, "url": str, "enabled": bool, "sources": list, "types": list, "filter": str,
    },
    "calendars": {"slug": str, "days": str},
    "schedules": {
        "name": str, "trigger": str, "declared": bool, "enabled": bool, "cron": str, "tz": str, "every": (int, float),
        "at": str, "solar": str, "latitude": (int, float), "longitude": (int, float), **dict.fromkeys(NAMES, object),
    },
}  # fmt: skip
NAMED_BY = {kind: "name" if "name" in fields else "slug" for kind, fields in FIELDS.items()}
Entry = Mapping[str, Any]


class ImportRefused(Invalid):
    """The file cannot be imported; `problems` names each entry, its field and the fix."""


def check(content: Any) -> None:
    """Raises ImportRefused unless the file is well-formed."""
    if problems := list(_problems(content)):
        raise ImportRefused(problems)


def _problems(content: Any) -> Iterator[str]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        yield f'format: must be "{FORMAT}"; use a file written by `manage.py export_triggers`'
        return
    if content.get("version") != VERSION:
        yield f"version: is {content.get('version')!r}, but this Wakeful reads {VERSION}; import it with the version that wrote it"
        return
    if unknown := sorted(set(content) - {"format", "version", *FIELDS}):
        yield f"{', '.join(unknown)}: unknown; use {', '.join(FIELDS)}"
    yield from _shapes(content)


def _shapes(content: Entry) -> Iterator[str]:
    for kind, fields in FIELDS.items():
        entries = content.get(kind, [])
        if not isinstance(entries, list):
            yield f"{kind}: must be a list"
            continue
        for number, entry in enumerate(entries):
            yield from _shape(f"{kind}[{number}]", entry, fields, required=NAMED_BY[kind])
        names = Counter(entry.get(NAMED_BY[kind]) for entry in entries if isinstance(entry, dict))
        yield from (f"{kind}: {name} occurs {count} times; keep one" for name, count in names.items() if count > 1)


def _shape(where: str, entry: Any, fields: Mapping[str, Any], required: str) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{where}: must be an object"
        return
    if not entry.get(required):
        yield f"{where}.{required}: is missing"
    for name, value in entry.items():
        if name not in fields:
            yield f"{where}.{name}: unknown; use {', '.join(fields)}"
        elif not isinstance(value, fields[name]) or (isinstance(value, bool) and fields[name] not in (bool, object)):
            yield f"{where}.{name}: {value!r} has the wrong type"
