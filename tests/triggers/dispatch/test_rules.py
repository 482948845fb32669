"""The dispatcher's copy of the triggers: no edit is missed, and only what was edited is read and matched again."""

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from runs.actions.event_runs import runs_of_event
from tests.support.triggers import make_event, make_trigger
from triggers import dispatch_lock
from triggers.dispatch import batch
from triggers.dispatch import rules as reading
from triggers.dispatch.batch import Batch, dispatch
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


def test_two_open_edits_do_not_wait_for_each_other(servers: object) -> None:
    one, other = make_trigger("one"), make_trigger("other")
    with psycopg.connect(_address()) as first, psycopg.connect(_address()) as second:
        second.execute("SET lock_timeout = '1s'")
        first.execute("UPDATE triggers_trigger SET filter = 'true' WHERE id = %s", [one.pk])
        second.execute("UPDATE triggers_trigger SET filter = 'true' WHERE id = %s", [other.pk])
        second.commit()
        first.commit()


def test_an_edit_while_a_batch_is_matched_delays_the_events_of_that_trigger_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_trigger("edited", types=["invoice.*"])
    make_trigger("other", types=["order.*"])
    edited, unrelated = make_event(type="invoice.paid"), make_event(type="order.placed")
    rules = Rules()
    real = dispatch_lock.try_lock

    def edit() -> bool:
        with psycopg.connect(_address(), autocommit=True) as editor:
            editor.execute("UPDATE triggers_trigger SET filter = 'false' WHERE slug = 'edited'")
        return real()

    monkeypatch.setattr(batch, "try_lock", edit)
    done = dispatch(rules)
    monkeypatch.setattr(batch, "try_lock", real)

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
