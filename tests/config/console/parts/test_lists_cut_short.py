"""A list on a page that leaves rows out names its bound; one with all rows does not."""

from collections.abc import Callable

import pytest
from django.test import Client

from agents import registry
from agents.models import Checklist, Session, SessionTurn
from runs.models import Notification, Run
from tests.support.console import page_of
from tests.support.runs import make_run
from tests.support.triggers import make_trigger

AGENT = registry.all_agents()[0].name


def notifications_of_a_run(numbers: range) -> str:
    run = make_run(status="succeeded")
    for number in numbers:
        Notification.objects.create(sender="greeter", text=f"Hello {number}", run_id=run.pk)
    return page_of("runs_run", run)


def checklists_of_an_agent(numbers: range) -> str:
    for number in numbers:
        Checklist.objects.create(agent=AGENT, trigger=f"greet-{number}")
    return f"/admin/runs/agentstop/{AGENT}/change/"


def sessions_of_an_agent(numbers: range) -> str:
    trigger = make_trigger(f"chat-{numbers.start}", agent=AGENT)
    for number in numbers:
        run = make_run(agent=AGENT, trigger=trigger.slug, status="succeeded")
        turn_of(Session.objects.create(name=f"chat-{number}"), run)
    return f"/admin/runs/agentstop/{AGENT}/change/"


def turn_of(session: Session, run: Run) -> None:
    SessionTurn.objects.create(session=session, number=0, run_id=run.pk, agent=run.agent, characters=0)


@pytest.mark.parametrize(
    ("page_with", "bound", "note"),
    [
        (notifications_of_a_run, 20, "The first 20."),
        (checklists_of_an_agent, 10, "The first 10."),
        (sessions_of_an_agent, 10, "The latest 10."),
    ],
)
def test_a_list_that_leaves_rows_out_names_its_bound(
    admin: Client, page_with: Callable[[range], str], bound: int, note: str
) -> None:
    assert note not in admin.get(page_with(range(bound - 1))).content.decode()
    assert note in admin.get(page_with(range(bound, 2 * bound + 1))).content.decode()
