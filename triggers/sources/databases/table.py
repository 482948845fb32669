from collections.abc import Mapping
from uuid import UUID

from triggers.accept import Incoming
from triggers.models import Source
from triggers.sources.continuity import Gaps
from triggers.sources.databases.tables.keep import KIND, keep_table
from triggers.sources.databases.tables.sample import sample
from triggers.sources.databases.tables.watched_table import TableSettings, find
from triggers.sources.kind import Group, Kind, register
from triggers.sources.settings import InvalidSettings


@register
class Table(Kind[TableSettings]):
    name = KIND
    label = "Table of this database"
    help_text = "Each row that is inserted, updated or deleted is an event, with its old and new values; or each statement is one."
    group = Group.DATABASES
    docs = "databases"
    settings_class = TableSettings
    in_sight = ("table", "inserts", "updates", "deletes", "columns")
    needs_secret = False
    gaps = Gaps(
        are_seen=True,
        how="events are written in the transaction of the change. Triggers that do not fire are noticed by a check; which rows changed "
        "meanwhile is found by a sweep alone.",
    )
    permission = "triggers.watch_table"  # it reads what its maker may have no right to see
    setup = (
        "Name a model, such as helpdesk.Ticket, or a table, and choose which changes count.",
        "Wakeful makes triggers on the table when you save: they write the events in the transaction of the change.",
        "Aim a trigger at this source, with types such as db.helpdesk.ticket.update, or db.helpdesk.ticket.update.statement.",
    )

    def check(self, settings: Mapping[str, object]) -> None:
        find(self.clean_settings(settings))

    def saved(self, source_id: UUID) -> None:
        keep_table(source_id)

    def sample_event(self, source_id: UUID, slug: str) -> Incoming:
        return sample(Source.objects.get(pk=source_id))

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings({"secret": "a table has none"})

    def new_secret(self) -> str:
        raise NotImplementedError("a table has none")
