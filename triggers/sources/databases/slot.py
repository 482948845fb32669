import psycopg

from triggers.sources.continuity import Gaps
from triggers.sources.databases.connection import source_error
from triggers.sources.databases.slot_reader import SlotReader
from triggers.sources.databases.slot_settings import KIND, SlotSettings
from triggers.sources.kind import Group, register
from triggers.sources.runner import Assignment, Reader, Runner
from triggers.sources.settings import InvalidSettings


@register
class ReplicationSlot(Runner[SlotSettings]):
    name = KIND
    label = "PostgreSQL changes"
    help_text = (
        "Reads the changes of another database from a logical replication slot: each inserted, updated or deleted row is an event, "
        "in the order of the commits."
    )
    group = Group.DATABASES
    docs = "replication"
    settings_class = SlotSettings
    in_sight = ("url", "slot", "publication")
    secret_label = "Password"  # noqa: S105  (a label)
    is_secret_given = True
    setup = (
        "Set wal_level = logical at the server (PostgreSQL 14 or later), and max_slot_wal_keep_size, so that a slot that nothing reads "
        "cannot fill the disk.",
        "Create a role with LOGIN and REPLICATION, and grant it SELECT on the tables if the source takes a snapshot.",
        "For old values in updates and deletes: ALTER TABLE … REPLICA IDENTITY FULL.",
        "Enter the address here, and the password as the source's secret.",
        "Create the publication and the slot: manage.py slot create SOURCE --tables public.orders,public.items; with --sql it prints the "
        "statements for the owner of the tables.",
        "Before you delete the source: manage.py slot drop SOURCE.",
    )
    docs_url = "https://www.postgresql.org/docs/current/logicaldecoding-explanation.html"

    gaps = Gaps(
        are_seen=True,
        how="a slot that was lost, made again or read by another program, a failover and a restored server, also one that has grown since, "
        "are noticed; how many changes are missing is not known.",
    )

    def clean_secret(self, secret: str) -> str:
        if not secret.strip():
            raise InvalidSettings({"secret": "must not be empty"})
        return secret

    def new_secret(self) -> str:
        raise NotImplementedError("the server has the password")

    def connect(self, assignment: Assignment[SlotSettings]) -> Reader:
        try:
            return SlotReader(assignment)
        except psycopg.Error as error:
            raise source_error(error) from None
