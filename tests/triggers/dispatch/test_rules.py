"""The dispatcher's copy of the triggers: no edit is missed, and only what was edited is read and matched again."""

import itertools
import random
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from runs.actions.event_runs import runs_of_event
from runs.db.sql import execute, fetch
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import batch
from triggers.dispatch import rules as reading
from triggers.dispatch.batch import Batch, dispatch
from triggers.dispatch.begin import Begun, begin
from triggers.dispatch.rules import Rules
from triggers.matching.index import Rule
from triggers.models import Trigger

pytestmark = pytest.mark.django_db(transaction=True)

EDITS = {
    "SQL": "UPDATE triggers_trigger SET filter = 'false' WHERE slug = 'greeter'",
    "insert": """INSERT INTO triggers_trigger SELECT (jsonb_populate_record(one,
                 jsonb_build_object('id', gen_random_uuid(), 'slug', 'copy'))).* FROM triggers_trigger one""",
    "delete": "DELETE FROM triggers_trigger",
    "truncate": "TRUNCATE triggers_trigger CASCADE",
    "replica": "SET LOCAL session_replication_role = replica; UPDATE triggers_trigger SET enabled = false",
    "COPY": "CREATE TEMP TABLE was ON COMMIT DROP AS TABLE triggers_trigger; DELETE FROM triggers_trigger; "
    "INSERT INTO triggers_trigger SELECT * FROM was; UPDATE triggers_trigger SET key_limit = 2",
}


def known(rules: Rules) -> list[tuple[str, str, bool, int]]:
    found = rules.current().by_id.values()
    return sorted((rule.slug, rule.filter, rule.enabled, rule.key_limit) for rule in found)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_every_edit_of_a_trigger_reloads_the_rules(edit: str) -> None:
    make_trigger()
    rules = Rules()
    before = known(rules)
    assert not rules.have_changed()

    with connection.cursor() as cursor:
        cursor.execute(f"BEGIN; {edit}; COMMIT")

    assert rules.have_changed()
    assert known(rules) == sorted(Trigger.objects.values_list("slug", "filter", "enabled", "key_limit")) != before
    assert not rules.have_changed()


def test_without_a_row_for_the_version_the_triggers_are_read_nevertheless() -> None:
    make_trigger()
    rules = Rules()
    rules.current()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE triggers_rulesversion")

    assert [slug for slug, *_ in known(rules)] == ["greeter"]
    assert [slug for slug, *_ in known(Rules())] == ["greeter"]

    make_trigger("another")
    assert [slug for slug, *_ in known(rules)] == ["another", "greeter"]


def test_a_column_outside_the_rule_does_not_change_the_version() -> None:
    make_trigger()
    rules = Rules()
    rules.current()

    Trigger.objects.update(failures_in_a_row=3)

    assert not rules.have_changed()


def test_only_edited_triggers_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        make_trigger(f"t{number}")
    rules = Rules()
    rules.current()
    read: list[str] = []
    real = reading.rule_of

    def rule_of(trigger: Trigger) -> Rule:
        read.append(trigger.slug)
        return real(trigger)

    monkeypatch.setattr(reading, "rule_of", rule_of)

    Trigger.objects.filter(slug="t3").update(filter="true")

    assert len(rules.current().by_id) == 5
    assert read == ["t3"]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["insert", "update", "delete", "savepoint", "beside", "truncate", "read"]), max_size=25),
    st.randoms(),
)
def test_after_any_edits_the_rules_are_those_of_a_first_reading(edits: list[str], chance: random.Random) -> None:
    """`beside`: an edit of another session, in a subtransaction, that was begun long before and commits later than others."""
    Trigger.objects.all().delete()
    rules, count, open_ones = Rules(), itertools.count(), list[Any]()
    one_of = "(SELECT id FROM triggers_trigger ORDER BY random() LIMIT 1)"
    with ExitStack() as at_end:
        for edit in [*edits, "read"]:
            name = f"t{next(count)}"
            match edit:
                case "insert":
                    make_trigger(name)
                case "update":
                    execute(f"UPDATE triggers_trigger SET filter = '{name} == 1' WHERE id IN {one_of}")
                case "delete":
                    execute(f"DELETE FROM triggers_trigger WHERE id IN {one_of}")
                case "savepoint":
                    with transaction.atomic():
                        make_trigger(name)
                        with transaction.atomic():
                            Trigger.objects.filter(slug=name).update(filter="true")
                case "truncate" if not open_ones and chance.random() < 0.3:
                    execute("TRUNCATE triggers_trigger CASCADE")
                case "beside" if open_ones and chance.random() < 0.5:
                    open_ones.pop(chance.randrange(len(open_ones))).commit()
                case "beside":
                    other = at_end.enter_context(psycopg.connect(_address()))
                    other.execute("SELECT pg_current_xact_id()")
                    other.execute("SAVEPOINT one")
                    make_trigger(
                        name
                    )  # a transaction with a number between that of the other and that of its subtransaction
                    other.execute(COPY, {"slug": f"copy-{name}"})
                    open_ones.append(other)
                case "read":
                    built = Rules()
                    assert rules.current().by_id == built.current().by_id
                    assert rules.read.rows == built.read.rows
        for other in open_ones:
            other.commit()
            assert rules.current().by_id == Rules().current().by_id


COPY = """
INSERT INTO triggers_trigger SELECT (jsonb_populate_record(one, jsonb_build_object('id', gen_random_uuid(), 'slug', %(slug)s::text))).*
FROM triggers_trigger one LIMIT 1
"""


def test_one_edit_among_many_reads_one_row() -> None:
    for number in range(50):
        make_trigger(f"t{number}")
    rules = Rules()
    rules.current()
    Trigger.objects.filter(slug="t3").update(filter="true")

    read, edited = rules.read.again()
    [(_, _, changed)] = fetch(reading.CHANGED, [rules.read.oldest])

    assert len(edited) == 1 and len(read.rows) == 50
    assert len(changed) == 1


def test_a_number_of_a_transaction_is_that_of_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of CHANGED, in Python: 32 bits of a number of 64 bits, of a transaction that is at most 2**31 old."""
    for next_one in (1_000, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 7 * 2**32 + 3):
        for age in (1, 3, 999, 2**31 - 1):
            if (xid := next_one - age) > 2:
                assert next_one - (next_one - xid % 2**32) % 2**32 == xid


def test_two_open_edits_do_not_wait_for_each_other(servers: object) -> None:
    one, other = make_trigger("one"), make_trigger("other")
    with psycopg.connect(_address()) as first, psycopg.connect(_address()) as second:
        second.execute("SET lock_timeout = '1s'")
        first.execute("UPDATE triggers_trigger SET filter = 'true' WHERE id = %s", [one.pk])
        second.execute("UPDATE triggers_trigger SET filter = 'true' WHERE id = %s", [other.pk])
        second.commit()
        first.commit()


def test_an_edit_after_the_lead_was_taken_is_noticed_by_the_transaction() -> None:
    trigger = make_trigger(types=["order.*"])
    rules = Rules()
    rules.current()
    rules.seen = rules.version  # as it was when the lead was taken
    Trigger.objects.filter(pk=trigger.pk).update(types=["invoice.*"])
    event = make_event(type="order.placed")

    assert dispatch(rules) == Batch(left=1)
    assert dispatch(rules).dispatched == 1
    assert not runs_of_event(event.id)


def test_an_edit_while_a_batch_is_matched_delays_the_events_of_that_trigger_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_trigger("edited", types=["invoice.*"])
    make_trigger("other", types=["order.*"])
    edited, unrelated = make_event(type="invoice.paid"), make_event(type="order.placed")
    rules = Rules()

    def edit(*matched: Any) -> Begun | None:
        with psycopg.connect(_address(), autocommit=True) as editor:
            editor.execute("UPDATE triggers_trigger SET filter = 'false' WHERE slug = 'edited'")
        return begin(*matched)

    monkeypatch.setattr(batch, "begin", edit)
    done = dispatch(rules)
    monkeypatch.setattr(batch, "begin", begin)

    assert (done.dispatched, done.left) == (1, 1)
    assert len(runs_of_event(unrelated.id)) == 1
    assert dispatch(rules).dispatched == 1
    assert not runs_of_event(edited.id)
    assert dispatch(rules) == Batch()


def _address() -> str:
    own = connection.settings_dict
    return make_conninfo(
        host=own["HOST"], port=own["PORT"], user=own["USER"], password=own["PASSWORD"], dbname=own["NAME"]
    )
