"""`manage.py slot` makes and drops what a source reads."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from runs.models import AuditEntry
from tests.support.foreign import PASSWORD, ForeignDatabase
from triggers.models import Source
from triggers.sources.databases.publish import slot_facts_of
from triggers.sources.edit import create_source
from triggers.sources.secrets import add_secret

# A new slot waits until open transactions end, and a test of its own is one.
pytestmark = pytest.mark.django_db(transaction=True)


def slot(*arguments: str) -> str:
    output = StringIO()
    call_command("slot", *arguments, stdout=output)
    return output.getvalue()


def test_a_slot_is_made_shown_and_dropped(foreign: ForeignDatabase) -> None:
    source = create_source("shop", kind="postgresql", settings=foreign.settings, by="test")
    add_secret(source, PASSWORD, by="test")
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY)")
    foreign.run(f"ALTER TABLE orders OWNER TO {foreign.role}")

    with pytest.raises(CommandError, match="--tables"):
        slot("create", "shop")
    foreign.run("CREATE TABLE keyless (id int)")
    with pytest.raises(CommandError, match="keyless: without a primary key"):
        slot("create", "shop", "--tables", "orders,public.keyless")
    foreign.run("CREATE TABLE parent (id int PRIMARY KEY)")
    foreign.run("CREATE TABLE child () INHERITS (parent)")
    with pytest.raises(CommandError, match="child: without a primary key"):
        slot("create", "shop", "--tables", "parent")
    with pytest.raises(CommandError, match="permission denied"):
        slot("create", "shop", "--tables", "public.orders")
    assert slot("create", "shop", "--tables", "public.orders", "--sql").splitlines() == [
        f'CREATE PUBLICATION "{foreign.publication}" FOR TABLE "public"."orders";',
        f"SELECT pg_create_logical_replication_slot('{foreign.slot}', 'pgoutput');",
    ]
    foreign.run(f"GRANT CREATE ON DATABASE {foreign.name} TO {foreign.role}")
    assert "created" in slot("create", "shop", "--tables", "public.orders")

    assert "wal_status: reserved" in slot("status", "shop")
    with pytest.raises(CommandError, match="exists: drop it first"):
        slot("create", "shop")
    slot("drop", "shop")
    assert not slot_facts_of(source).has_slot and not slot_facts_of(source).has_publication
    with pytest.raises(CommandError, match="cannot be read"):
        slot("status", "shop")
    actions = AuditEntry.objects.filter(kind="source", object_id=str(source.pk)).values_list("action", flat=True)
    assert {"create slot", "drop slot"} <= set(actions)


def test_a_source_of_another_kind_has_no_slot() -> None:
    Source.objects.create(slug="orders", kind="redis_streams")

    with pytest.raises(CommandError, match="no source of kind"):
        slot("status", "orders")
