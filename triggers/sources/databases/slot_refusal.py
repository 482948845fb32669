import psycopg

from triggers.sources.databases.connection import in_words, source_error
from triggers.sources.databases.place import Place
from triggers.sources.databases.server import OLDEST, PLUGIN, SlotFacts
from triggers.sources.databases.wire import lsn_text
from triggers.sources.runner import SourceError


def refusal(facts: SlotFacts, slot: str, publication: str, slug: str, stored: Place | None) -> SourceError | None:
    """Why a slot cannot be read, and what to do."""
    since = (
        f" Changes that were committed after {lsn_text(stored.lsn)} may be missing." if stored and stored.lsn else ""
    )
    create = f"manage.py slot create {slug}"
    if facts.version < OLDEST:
        return SourceError(
            f"The server is PostgreSQL {facts.version // 10_000}.", remedy="PostgreSQL 14 or later is needed."
        )
    if facts.wal_level != "logical":
        return SourceError(
            f"The server has wal_level = {facts.wal_level}, so that it logs no changes of rows.",
            remedy="Set wal_level = logical in its configuration, and restart it.",
        )
    if not facts.has_slot:
        return SourceError(
            f"The replication slot {slot} does not exist.{since}",
            remedy=f"Create it: {create}. Events begin with the changes after that; with the setting “Snapshot” also the rows of that "
            "time come. A slot is not made again by itself, because changes between the two would be missing in silence. After a "
            "failover, check whether the slot was copied to the new primary (failover slots of PostgreSQL 17).",
        )
    if facts.is_lost:
        return SourceError(
            f"The replication slot {slot} is lost: the server has removed WAL that was not read "
            f"({facts.invalidation or facts.wal_status}).{since}",
            remedy=f"Drop it and create it again: manage.py slot drop {slug} --keep-publication, then {create}. Raise "
            f"max_slot_wal_keep_size (now {facts.keep}) if the disk has room.",
        )
    if facts.plugin != PLUGIN or facts.slot_database != facts.database:
        return SourceError(
            f"The replication slot {slot} is one of {facts.plugin or 'physical replication'} in database {facts.slot_database or '–'}, not "
            f"of {PLUGIN} in {facts.database}.",
            remedy=f"Name another slot in the source's settings, and create it: {create}.",
        )
    if not facts.has_publication:
        return SourceError(
            f"The publication {publication} does not exist.",
            remedy="Create it before the slot: pgoutput looks for it as it was when a change was made. Drop the slot, then "
            f"{create} --tables public.orders.",
        )
    if facts.has_events:
        return SourceError(
            f"The publication {publication} has tables of Wakeful's own, so that each event would make another one.",
            remedy="Publish the tables of your own alone. For those in Wakeful's database there is the kind “Table of this database”.",
        )
    if facts.is_active:
        return SourceError(
            f"The replication slot {slot} is in use by {facts.reader or f'the server process {facts.active_pid}'}.",
            remedy="A slot has one reader. If it is another program or another Wakeful, give this source a slot of its own. If it is "
            "a process of this Wakeful that died or froze, the server frees the slot within half a minute.",
        )
    return None


def error_of_log(error: psycopg.Error, slug: str) -> SourceError:
    """Why the log of a slot cannot be read on."""
    if not isinstance(error, psycopg.errors.UndefinedObject):
        return source_error(error)
    return SourceError(
        f"PostgreSQL reports: {in_words(error)}.",
        remedy="The log is decoded with the publication as it was when a change was made, and for some change there was none, "
        f"also if there is one now. manage.py slot drop {slug} --keep-publication, then manage.py slot create {slug}.",
    )
