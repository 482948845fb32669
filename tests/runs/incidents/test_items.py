"""An item of a checklist that always fails is one incident, noted with the run that looked at it."""

from collections.abc import Callable
from typing import Any

import pytest

from agents import AgentRun
from agents.models import Checklist, ChecklistItem
from runs import outbox
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist
from runs.claim import Claim
from runs.executor import execute
from runs.incidents.items import LOOKED_AT
from runs.models import Incident, OutboxMessage, Run
from tests.support.incidents import notification_texts

pytestmark = pytest.mark.django_db


@pytest.fixture
def look(claim_for: Callable[..., Claim]) -> Callable[..., None]:
    """Run an agent that looks at its two items; those named fail."""
    create_checklist("greeter", items=[ItemEdit(text="backups"), ItemEdit(text="disk")], by="test")

    def look(*failing: str, breaks: bool = False) -> None:
        def check(item: Any) -> None:
            if item.text in failing:
                raise ConnectionError("no answer from 10.0.0.7")

        def body(run: AgentRun) -> None:
            run.checklist.each(check)
            if breaks:
                raise RuntimeError("and then it broke")

        execute(claim_for(body))
        outbox.deliver_inside(10, [LOOKED_AT])

    return look


def test_the_item_that_always_fails_is_one_incident(look: Callable[..., None]) -> None:
    for _ in range(12):
        look("disk")

    incident = Incident.objects.get()
    item = ChecklistItem.objects.get(text="disk")
    assert (incident.kind, incident.subject, incident.agent) == ("item", str(item.pk), "greeter")
    assert (incident.status, incident.count) == ("open", 12)
    assert incident.cause == "ConnectionError: no answer from #"
    assert not incident.covered.exists()  # its runs succeeded
    assert incident.last_run_id == item.last_run_id
    assert notification_texts() == [
        "“disk” of the checklist of greeter: 2 failed looks in a row. ConnectionError: no answer from 10.0.0.7"
    ]

    look()
    incident.refresh_from_db()
    assert incident.status == "closed"
    assert len(notification_texts()) == 2


def test_looks_that_succeed_leave_no_message(look: Callable[..., None]) -> None:
    look()

    assert not OutboxMessage.objects.filter(topic=LOOKED_AT).exists()
    assert not Incident.objects.exists()


def test_an_item_that_is_deleted_closes_its_incident(look: Callable[..., None]) -> None:
    for _ in range(2):
        look("disk")
    checklist, backups = Checklist.objects.get(), ChecklistItem.objects.get(text="backups")

    edit_checklist(checklist.pk, [ItemEdit(id=backups.pk, text="backups")], by="ada")

    incident = Incident.objects.get()
    assert (incident.status, incident.closed_by) == ("closed", "ada")
    assert notification_texts()[1].startswith("“disk” of the checklist of greeter: closed by ada, after ")


def test_a_run_that_is_rolled_back_notes_nothing(look: Callable[..., None]) -> None:
    look("disk", breaks=True)

    assert Run.objects.get().status == "queued"
    assert not Incident.objects.exists()
