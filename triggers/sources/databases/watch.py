"""Dispatchers look at the slots of sources, also while nothing reads them: an unread slot keeps WAL until its server's disk is full.

Each slot is looked at once in LOOK_EVERY by one dispatcher, in a thread of its own."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from runs.db.sql import execute, fetch_column
from runs.queues.courier import NEVER, Courier
from triggers.exceptions import Invalid
from triggers.models import Source, WatchedSlot
from triggers.sources.databases.publish import settings_of, slot_facts_of
from triggers.sources.databases.server import SlotFacts
from triggers.sources.databases.slot_settings import KIND, SlotSettings

LOOK_EVERY = timedelta(seconds=30)
UNREAD = timedelta(minutes=10)  # from which on a slot that nothing reads is a problem, however little it keeps
NEARLY = 0.5  # of the WAL after which the server gives a slot up
ERROR_CHARACTERS = 1000

CLAIM = """
INSERT INTO triggers_watchedslot AS watched (source_id, looked_at)
SELECT source.id, clock_timestamp() FROM triggers_source source LEFT JOIN triggers_watchedslot seen ON seen.source_id = source.id
WHERE source.kind = %(kind)s::text AND (seen.looked_at IS NULL OR seen.looked_at < clock_timestamp() - %(every)s::interval)
ORDER BY seen.looked_at NULLS FIRST LIMIT 1
ON CONFLICT (source_id) DO UPDATE SET looked_at = excluded.looked_at
  WHERE watched.looked_at < clock_timestamp() - %(every)s::interval
RETURNING source_id
"""
SEEN = """
UPDATE triggers_watchedslot SET seen_at = clock_timestamp(), slot = %(slot)s::text, exists = %(exists)s::boolean,
  reader = %(reader)s::text, wal_status = %(wal_status)s::text, retained = %(retained)s::bigint, behind = %(behind)s::bigint,
  safe = %(safe)s::bigint, error = '',
  unread_since = CASE WHEN %(unread)s::boolean THEN coalesce(unread_since, clock_timestamp()) END
WHERE source_id = %(source)s::uuid
RETURNING extract(epoch FROM clock_timestamp() - unread_since)::float8
"""
FOUND = """
UPDATE triggers_watchedslot SET problem = %(problem)s::text, remedy = %(remedy)s::text, is_bad = %(is_bad)s::boolean,
  problem_since = CASE WHEN %(problem)s::text <> '' THEN coalesce(problem_since, clock_timestamp()) END
WHERE source_id = %(source)s::uuid
"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem with a slot and its remedy; empty if there is none."""

    problem: str = ""
    remedy: str = ""
    is_bad: bool = False


class Watcher(Courier):
    name_of = "slot-watch"
    has_work = f"""EXISTS (SELECT FROM triggers_source source WHERE kind = '{KIND}'
      AND NOT EXISTS (SELECT FROM triggers_watchedslot WHERE source_id = source.id))"""  # noqa: S608  (our own parts)

    def errand(self) -> float:
        """Look at the slot that was not looked at for longest."""
        if found := fetch_column(CLAIM, {"kind": KIND, "every": LOOK_EVERY}):
            look_after(found[0])
            return 0.0
        has_some = WatchedSlot.objects.exists()  # the dispatcher's look finds a new one
        connection.close()  # rarely needed
        return LOOK_EVERY.total_seconds() if has_some else NEVER


def look_after(source_id: UUID) -> None:
    """Look at the slot of a source, and keep what is wrong with it. If its database does not answer, what was seen last stays."""
    source = Source.objects.filter(pk=source_id).first()
    if source is None:
        return  # it was deleted meanwhile
    try:
        settings, facts = settings_of(source), slot_facts_of(source)
    except (Invalid, InvalidToken, ImproperlyConfigured) as error:
        said = str(error) or "no key of WAKEFUL_ENCRYPTION_KEYS decrypts its secret"
        WatchedSlot.objects.filter(pk=source_id).update(error=said[:ERROR_CHARACTERS])
        return
    slot = settings.slot_of(source.slug)
    names: dict[str, Any] = {
        "source": source_id,
        "slot": slot,
        "exists": facts.has_slot,
        "reader": facts.reader or "",
        "wal_status": facts.wal_status,
        "retained": facts.retained,
        "behind": facts.behind,
        "safe": facts.safe,
        "unread": facts.has_slot and not facts.is_active,
    }
    seen = fetch_column(SEEN, names)
    found = finding(facts, settings, source, timedelta(seconds=(seen or [0])[0] or 0))
    execute(FOUND, {"source": source_id, "problem": found.problem, "remedy": found.remedy, "is_bad": found.is_bad})


def finding(facts: SlotFacts, settings: SlotSettings, source: Source, unread: timedelta) -> Finding:
    """The worst problem of the slot. A missing slot is reported by its reader."""
    if not facts.has_slot:
        return Finding()
    slug, slot, retained = source.slug, settings.slot_of(source.slug), facts.retained or 0
    whose = f"Replication slot {slot} of source {slug}"
    reader = f"{facts.reader or 'a process'} reads it" if facts.is_active else "nothing reads it"
    state = f"{reader}{'' if source.enabled else '; the source is disabled'}"
    read_it = (
        f"Let it be read: start `manage.py sources`, and look at the page of the source. If nothing needs it any more, disable the "
        f"source and drop the slot: `manage.py slot drop {slug}`."
    )
    limit = (
        " The server sets no limit (max_slot_wal_keep_size = -1): set one below its free disk space."
        if facts.keep == "-1"
        else ""
    )
    if facts.is_lost:
        return Finding(
            problem=f"{whose} is lost: the server has removed WAL that was not read ({facts.invalidation or facts.wal_status}). Changes "
            f"after {facts.confirmed or 'the last recorded ones'} may be missing.",
            remedy=f"`manage.py slot drop {slug} --keep-publication`, then `manage.py slot create {slug}`: events go on from there.",
            is_bad=True,
        )
    if facts.wal_status == "unreserved":
        return Finding(
            problem=f"{whose} is about to be lost: the server may remove its WAL at the next checkpoint ({state}).",
            remedy=f"{read_it} Raise max_slot_wal_keep_size (now {facts.keep}) if the disk has room.",
            is_bad=True,
        )
    if retained >= settings.alarm_mb * 2**20:
        return Finding(
            problem=f"{whose} keeps {_size(retained)} of WAL at its server ({state}). It fills the disk.{limit}",
            remedy=read_it,
            is_bad=True,
        )
    if facts.safe is not None and retained > NEARLY * (retained + facts.safe):
        return Finding(
            problem=f"{whose} keeps {_size(retained)} of WAL, and is lost after another {_size(max(facts.safe, 0))} ({state}).",
            remedy=f"{read_it} Raise max_slot_wal_keep_size (now {facts.keep}) if the disk has room.",
            is_bad=True,
        )
    if unread >= UNREAD:
        return Finding(
            problem=f"{whose} has not been read for {int(unread.total_seconds() // 60)} minutes ({state}). It keeps {_size(retained)} of "
            f"WAL at its server, and more with each change.{limit}",
            remedy=read_it,
        )
    return Finding()


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"
