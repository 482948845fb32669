import re
from collections.abc import Iterable
from dataclasses import dataclass

from agents.kernel.redaction import SECRET_FIELD
from triggers.sources.databases.connection import FORM, address
from triggers.sources.databases.pgoutput import Relation
from triggers.sources.settings import InvalidSettings, setting, whole_number

KIND = "postgresql"
MESSAGE = "db.message"  # the type of an event of a logical message
NAME = re.compile(r"[a-z0-9_]{0,63}", re.ASCII)
ALIAS = re.compile(r"[A-Za-z0-9_]{0,63}", re.ASCII)


def identifier(value: str) -> str:
    return "" if NAME.fullmatch(value) else "must have at most 63 characters: lower-case letters, digits and _"


def word(value: str) -> str:
    return "" if ALIAS.fullmatch(value) else "must have at most 63 characters: letters, digits and _"


def _named(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(","))


@dataclass(frozen=True, kw_only=True)
class SlotSettings:
    """The database, and the slot and the publication in it."""

    url: str = setting(
        "", "Database", f"{FORM}. The password is the source's secret.", check=address, secret_goes_to=str
    )
    slot: str = setting("", "Slot", "Empty: wakeful_<slug>. `manage.py slot create` makes it.", check=identifier)
    publication: str = setting("", "Publication", "The tables to read. Empty: the name of the slot.", check=identifier)
    alias: str = setting("", "Name in types", "In place of the schema: db.<name>.<table>.insert.", check=word)
    snapshot: bool = setting(
        False,
        "Snapshot",
        "Turn on to take first the rows that are there when reading begins, and again after a gap: each is an event db.….snapshot.",
    )
    exclude: str = setting(
        "",
        "Excluded columns",
        "Such as: note, customers.phone (also of its partitions), public.customers.phone. Their values are never stored. Columns whose "
        "names look like those of secrets are excluded, too.",
    )
    secrets: str = setting(
        "",
        "Columns that are no secrets",
        "Columns that are stored although their names look like those of secrets.",
        secret_goes_to=_named,
    )
    messages: str = setting(
        "", "Messages", f"Prefix of logical messages (pg_logical_emit_message) to take as {MESSAGE}. Empty: none."
    )
    alarm_mb: int = setting(
        1024,
        "Alarm at",
        "Megabytes of WAL that the server keeps for the slot, from which on that is a problem. Well below its free disk space.",
        check=whole_number(1, 10**7),
    )

    def __post_init__(self) -> None:
        if not self.url:
            raise InvalidSettings({"url": "is required"})

    def excluded_of(self, relation: Relation, parents: Iterable[tuple[str, str]] = ()) -> frozenset[str]:
        """`parents` are the partitioned tables above it, by schema and name."""
        excluded, stored = _named(self.exclude), _named(self.secrets)
        tables = {(relation.schema, relation.table), *parents}
        of_tables = {place for schema, table in tables for place in (f"{table}.", f"{schema}.{table}.")}
        return frozenset(
            column.name
            for column in relation.columns
            if (own := {column.name, *(f"{place}{column.name}" for place in of_tables)}) & excluded
            or SECRET_FIELD.search(column.name)
            and not own & stored
        )

    def slot_of(self, slug: str) -> str:
        return self.slot or f"wakeful_{re.sub('[^a-z0-9_]', '_', slug.lower())}"[:63]

    def publication_of(self, slug: str) -> str:
        return self.publication or self.slot_of(slug)
