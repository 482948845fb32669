"""The pages of checklists: a person edits the items, silences them for a day, and sees who changed what."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from agents.checklists.run_checklist import read_checklist
from agents.models import Checklist, ChecklistItem
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist, silence_checklist, silence_item
from tests.support.console import list_of, page_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def checklist() -> Checklist:
    return create_checklist("ops", items=[ItemEdit(text="failed runs"), ItemEdit(text="backups")], by="code")


def path_of(checklist: Checklist, button: str) -> str:
    return page_of("agents_checklist", checklist).replace("/change/", f"/{button}/")


def fields(*items: tuple[str, str], revision: int = 1) -> dict[str, str]:
    given = {f"text_{number}": text for number, (text, _) in enumerate(items, start=1)}
    given |= {f"every_{number}": every for number, (_, every) in enumerate(items, start=1)}
    return {**given, "revision": str(revision)}


def test_a_person_edits_orders_and_deletes_items(admin: Client, checklist: Checklist) -> None:
    given = fields(("", ""), ("backups", "6h"), ("disk", ""))
    admin.post(path_of(checklist, "edit"), {**given, "place_2": "2", "place_3": "1", "paused_2": "on"})

    items = [
        (item.text, item.every and item.every.total_seconds(), bool(item.paused_at)) for item in checklist.items.all()
    ]
    assert items == [("disk", None, False), ("backups", 21_600, True)]
    shown = admin.get(page_of("agents_checklist", checklist)).content.decode()
    assert "admin:ada" in shown
    assert "removed" in shown
    assert "failed runs (each run)" in shown


def test_the_form_shows_what_it_would_save(admin: Client, checklist: Checklist) -> None:
    edit_checklist(checklist.pk, [ItemEdit(text="backups", every=timedelta(minutes=90))], by="x")
    shown = admin.get(path_of(checklist, "edit")).content.decode()

    assert 'name="text_1"' in shown
    assert 'value="1h30m"' in shown


def test_a_wrong_interval_stays_in_the_form(admin: Client, checklist: Checklist) -> None:
    answer = admin.post(path_of(checklist, "edit"), fields(("backups", "often")))

    assert answer.status_code == 200
    assert "is not a duration" in answer.content.decode()
    assert checklist.items.count() == 2


def test_an_edit_made_meanwhile_is_not_overwritten(admin: Client, checklist: Checklist) -> None:
    edit_checklist(checklist.pk, [ItemEdit(text="of another person")], by="bob")

    answer = admin.post(path_of(checklist, "edit"), fields(("mine", "")), follow=True)

    assert "was edited meanwhile" in answer.content.decode()
    assert [item.text for item in checklist.items.all()] == ["of another person"]


def test_a_checklist_is_silenced_for_a_day_and_woken(admin: Client, checklist: Checklist) -> None:
    admin.post(path_of(checklist, "silence"), {"what": "", "length": "1d"})
    silenced = read_checklist("ops", "")
    shown = admin.get(page_of("agents_checklist", checklist)).content.decode()
    admin.post(path_of(checklist, "silence"), {"what": "", "length": ""})

    assert silenced.due == ()
    assert "Silenced until" in shown
    assert len(read_checklist("ops", "").due) == 2


def test_silencing_one_item_leaves_the_others_due(admin: Client, checklist: Checklist) -> None:
    item = ChecklistItem.objects.get(text="backups")
    admin.post(path_of(checklist, "silence"), {"what": str(item.pk), "length": "1h"})

    assert [one.text for one in read_checklist("ops", "").due] == ["failed runs"]


def test_a_new_checklist_leads_to_its_items(admin: Client) -> None:
    answer = admin.post("/admin/agents/checklist/add/", {"agent": "heartbeat", "trigger": ""})

    made = Checklist.objects.get(agent="heartbeat")
    assert answer.url == path_of(made, "edit")  # type: ignore[attr-defined]
    assert admin.get(answer.url).status_code == 200  # type: ignore[attr-defined]


def test_a_trigger_of_another_agent_is_refused(admin: Client) -> None:
    answer = admin.post("/admin/agents/checklist/add/", {"agent": "heartbeat", "trigger": "elsewhere"})

    assert "has no trigger with this slug" in answer.content.decode()
    assert not Checklist.objects.exists()


def test_the_list_counts_what_fails(admin: Client, checklist: Checklist) -> None:
    ChecklistItem.objects.filter(text="backups").update(failures_in_a_row=2, last_outcome="failed")

    assert "ops" in admin.get(list_of("agents_checklist")).content.decode()
    assert "1 of 2 items could not be checked" in admin.get(page_of("agents_checklist", checklist)).content.decode()


def test_an_interval_of_a_fraction_of_a_second_survives_the_form(admin: Client, checklist: Checklist) -> None:
    edit_checklist(checklist.pk, [ItemEdit(text="backups", every=timedelta(seconds=90.5))], by="x")

    assert 'value="1m30.5s"' in admin.get(path_of(checklist, "edit")).content.decode()


def test_a_page_shows_what_is_silenced_for_ever(admin: Client, checklist: Checklist) -> None:
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    silence_checklist(checklist.pk, last, by="x")
    silence_item(checklist.items.all()[0].pk, last, by="x")

    pages = [list_of("agents_checklist"), page_of("agents_checklist", checklist), path_of(checklist, "silence")]
    assert [admin.get(path).status_code for path in pages] == [200] * 3
