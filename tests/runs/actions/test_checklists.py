"""Edits of checklists: each a revision with its author, refused when another came between, written down in the audit log."""

from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from agents import Agent, AgentRun, agent, registry
from agents.checklists.history import KEPT, difference
from agents.checklists.run_checklist import read_checklist
from agents.exceptions import DeclarationError
from agents.models import Checklist, ChecklistItem, ChecklistRevision
from runs.actions import checklists
from runs.actions.checklists import (
    DAY,
    ItemEdit,
    create_checklist,
    declared_checklists,
    edit_checklist,
    in_a_day,
    pause_item,
    resume_item,
    silence_checklist,
    silence_item,
    sync_checklists,
)
from runs.db.sql import fetch
from runs.exceptions import IllegalState
from runs.models import AuditEntry
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def checklist() -> Checklist:
    return create_checklist("ops", items=[ItemEdit(text="failed runs"), ItemEdit(text="backups", every=HOUR)], by="ada")


def texts(checklist: Checklist) -> list[str]:
    return [item.text for item in checklist.items.all()]


def edits_of(checklist: Checklist) -> list[ItemEdit]:
    return [
        ItemEdit(id=item.pk, text=item.text, every=item.every, paused=item.paused_at is not None)
        for item in checklist.items.all()
    ]


def changes(checklist: Checklist) -> list[str]:
    """Of the last revision, in words."""
    after, *before = checklist.revisions.all()[:2]
    return [str(one) for one in difference(before[0].definition if before else None, after.definition)]


def test_a_checklist_begins_with_a_revision(checklist: Checklist) -> None:
    revision = ChecklistRevision.objects.get()

    assert (revision.number, revision.by) == (1, "ada")
    assert changes(checklist) == ["added: – → failed runs (each run)", "added: – → backups (every 1 h)"]
    assert AuditEntry.objects.get().action == "create"


def test_an_edit_adds_removes_orders_and_rewords(checklist: Checklist) -> None:
    failed, backups = edits_of(checklist)
    edit_checklist(
        checklist.pk,
        [
            ItemEdit(id=backups.id, text="backups", every=2 * HOUR, paused=True),
            ItemEdit(text="disk"),
            ItemEdit(id=failed.id, text="runs that failed"),
        ],
        by="bob",
    )

    assert texts(checklist) == ["backups", "disk", "runs that failed"]
    assert checklist.revisions.first().by == "bob"  # type: ignore[union-attr]
    assert changes(checklist) == [
        "interval of backups: every 1 h → every 2 h",
        "backups: on → paused",
        "added: – → disk (each run)",
        "text: failed runs → runs that failed",
        "order: failed runs · backups → backups · runs that failed",
    ]


def test_a_removed_item_is_in_the_difference(checklist: Checklist) -> None:
    edit_checklist(checklist.pk, edits_of(checklist)[1:], by="bob")

    assert changes(checklist) == ["removed: failed runs (each run) → –"]


def test_an_edit_of_an_older_revision_is_refused(checklist: Checklist) -> None:
    edit_checklist(checklist.pk, [ItemEdit(text="new")], by="bob", revision=1)

    with pytest.raises(IllegalState, match="has revision 2, not 1"):
        edit_checklist(checklist.pk, [ItemEdit(text="mine")], by="ada", revision=1)

    assert texts(checklist) == ["new"]
    assert ChecklistRevision.objects.count() == 2


def test_an_item_keeps_its_outcome_through_an_edit(checklist: Checklist) -> None:
    checklist.items.update(last_outcome="news", last_checked_at=Now())
    edit_checklist(checklist.pk, edits_of(checklist), by="bob")

    assert set(checklist.items.values_list("last_outcome", flat=True)) == {"news"}


def test_a_new_interval_counts_from_the_last_look(checklist: Checklist) -> None:
    checklist.items.update(last_checked_at=Now(), due_at=Now() + HOUR)
    failed, backups = edits_of(checklist)
    edit_checklist(checklist.pk, [failed, ItemEdit(id=backups.id, text="backups", every=6 * HOUR)], by="bob")

    item = ChecklistItem.objects.get(text="backups")
    assert item.last_checked_at is not None
    assert item.due_at == item.last_checked_at + 6 * HOUR


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([ItemEdit(text=" ")], "item 1: the text"),
        ([ItemEdit(text="x" * 2001)], "item 1: the text"),
        ([ItemEdit(text="a"), ItemEdit(text="b", every=timedelta())], "item 2: the interval"),
        ([ItemEdit(text="a", id=0)], "no item 0"),
        ([ItemEdit(text="a")] * 101, "at most 100"),
    ],
)
def test_a_wrong_item_is_named(checklist: Checklist, items: list[ItemEdit], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        edit_checklist(checklist.pk, items, by="bob")

    assert texts(checklist) == ["failed runs", "backups"]


def test_an_item_named_twice_is_refused(checklist: Checklist) -> None:
    with pytest.raises(ValueError, match="twice"):
        edit_checklist(checklist.pk, edits_of(checklist)[:1] * 2, by="bob")


def test_a_second_checklist_of_an_agent_is_refused(checklist: Checklist) -> None:
    with pytest.raises(IllegalState, match="has a checklist already"):
        create_checklist("ops", by="bob")


def test_a_trigger_may_have_a_checklist_of_its_own(checklist: Checklist) -> None:
    create_checklist("ops", trigger="ops-2", items=[ItemEdit(text="its own")], by="bob")

    assert [item.text for item in read_checklist("ops", "ops-2").due] == ["its own"]
    assert [item.text for item in read_checklist("ops", "ops").due] == ["failed runs", "backups"]


def test_a_paused_item_is_not_due_until_it_is_resumed(checklist: Checklist) -> None:
    item = checklist.items.get(text="backups")
    pause_item(item.pk, by="bob")
    paused = [one.text for one in read_checklist("ops", "").due]
    with pytest.raises(IllegalState, match="paused already"):
        pause_item(item.pk, by="bob")
    resume_item(item.pk, by="bob")

    assert paused == ["failed runs"]
    assert [one.text for one in read_checklist("ops", "").due] == ["failed runs", "backups"]
    assert changes(checklist) == ["backups: paused → on"]
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == ["create", "pause", "resume"]


def test_a_silenced_checklist_is_due_again_a_day_later(checklist: Checklist) -> None:
    until = in_a_day()
    silence_checklist(checklist.pk, until, by="bob")
    seen = read_checklist("ops", "")
    Checklist.objects.update(silenced_until=until - DAY)

    assert (seen.due, seen.silenced_until, seen.next_at) == ((), until, until)
    assert len(read_checklist("ops", "").due) == 2


def test_a_silenced_item_leaves_the_others_due(checklist: Checklist) -> None:
    item = checklist.items.get(text="backups")
    silence_item(item.pk, in_a_day(), by="bob")
    silenced = [one.text for one in read_checklist("ops", "").due]
    silence_item(item.pk, None, by="bob")

    assert silenced == ["failed runs"]
    assert len(read_checklist("ops", "").due) == 2


def test_the_oldest_revisions_make_room(checklist: Checklist) -> None:
    ChecklistRevision.objects.filter(number=1).update(number=2)
    Checklist.objects.update(revision=KEPT + 1)
    edit_checklist(checklist.pk, edits_of(checklist), by="bob")

    assert list(ChecklistRevision.objects.values_list("number", flat=True)) == [KEPT + 2]


def declare(monkeypatch: pytest.MonkeyPatch, **items: timedelta | None) -> list[str]:
    agent = Agent(name="coded", body=lambda run: None, checklist=items)
    monkeypatch.setattr(registry, "_agents", {"coded": agent})
    return sync_checklists(declared_checklists())


def test_the_code_declares_a_checklist_until_a_person_edits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = declare(monkeypatch, backups=HOUR)
    again = declare(monkeypatch, backups=HOUR)
    changed = declare(monkeypatch, backups=2 * HOUR, disk=None)
    checklist = Checklist.objects.get(agent="coded")
    coded = [(item.text, item.every) for item in checklist.items.all()]
    edit_checklist(checklist.pk, [ItemEdit(text="of a person")], by="ada")
    ignored = declare(monkeypatch, disk=HOUR)

    assert (first, again, changed) == (["wrote the checklist of coded"], [], ["wrote the checklist of coded"])
    assert coded == [("backups", 2 * HOUR), ("disk", None)]
    assert (ignored, texts(checklist)) == ([], ["of a person"])


def test_an_agent_without_items_has_no_checklist(monkeypatch: pytest.MonkeyPatch) -> None:
    assert declare(monkeypatch) == []
    assert not Checklist.objects.exists()


def test_a_wrong_declaration_names_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeclarationError, match="agent 'coded': checklist: item 1: the interval"):
        declare(monkeypatch, backups=timedelta())


def test_texts_that_differ_in_their_margins_are_the_same_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})
    with pytest.raises(DeclarationError, match="'backups' twice"):
        agent("coded", checklist=["backups", "backups "])

    @agent("coded", checklist={" backups\n": HOUR})
    def coded(run: AgentRun) -> None: ...

    sync_checklists(declared_checklists())
    [item] = ChecklistItem.objects.all()

    assert item.text == "backups"
    assert sync_checklists(declared_checklists()) == []
    assert ChecklistItem.objects.get() == item


def test_an_edit_that_comes_between_a_sync_and_its_write_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, backups=HOUR)
    checklist = Checklist.objects.get(agent="coded")

    def beaten(*given: Any, **named: Any) -> Checklist:
        edit_checklist(checklist.pk, [ItemEdit(text="of a person")], by="ada")
        return edit_checklist(*given, **named)

    monkeypatch.setattr(checklists, "edit_checklist", beaten)

    assert declare(monkeypatch, backups=HOUR, disk=None) == []
    assert texts(checklist) == ["of a person"]


@pytest.mark.django_db(transaction=True)
def test_an_edit_locks_items_in_the_order_in_which_runs_record_them() -> None:
    checklist = create_checklist("ops", items=[ItemEdit(text="a"), ItemEdit(text="b")], by="ada")
    first, second = checklist.items.order_by("id")
    ChecklistItem.objects.filter(pk=first.pk).update(position=7)  # it is shown behind the other
    done: list[Checklist] = []

    def edit() -> None:
        done.append(edit_checklist(checklist.pk, [ItemEdit(text="c")], by="bob"))
        connection.close()

    editor = Thread(target=edit)
    with transaction.atomic():
        ChecklistItem.objects.select_for_update().get(pk=first.pk)
        editor.start()
        eventually(lambda: fetch("SELECT pid FROM pg_locks WHERE NOT granted"))
        ChecklistItem.objects.select_for_update(nowait=True).get(pk=second.pk)
    editor.join()

    assert texts(done[0]) == ["c"]
