"""The page of a shadow run offers the triggers that want the event, and shows what was tried. The run itself is a process
of its own: tests/acceptance/test_durable_console.py has it."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from rest_framework.utils.encoders import JSONEncoder

from agents.kernel.effects import Child, Effects, Emission, Notice, Pace, Standing, Wake
from config.console.runs.shadow import told
from runs.shadow.recorder import Statement, TableChange
from runs.shadow.shadow import Outcome, Shadow
from runs.shadow.store import Stop, Taken
from tests.support.console import page_of
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.models import Event


def page_for(event: Event) -> str:
    return page_of("triggers_event", event).replace("change", "shadow")


def sections(**fields: Any) -> dict[str, Any]:
    """What the page shows of a shadow run, by title; the notice under the empty one."""
    shadow = Shadow(**{"agent": "a", "trigger": "t", "version": "v", "run_id": uuid4(), "origin": None, **fields})
    made = told(json.loads(json.dumps(shadow.dump(), cls=JSONEncoder)))
    return {getattr(section, "title", ""): section for section in reversed(made)}


def test_triggers_that_match_the_event_are_offered_and_others_show_why_not(admin: Client) -> None:
    event, ran = make_event(data={"n": 1}), make_trigger("ran", types=["other.type"])
    make_trigger("wants")
    make_trigger("filters", filter="event.data.n > 1")
    make_run(event_id=event.pk, trigger="ran", trigger_id=ran.pk)

    page = admin.get(page_for(event))

    assert [slug for slug, _ in page.context["form"].fields["trigger"].choices] == ["wants"]
    assert "it listens to other types" in page.content.decode()


def test_run_leads_there_with_its_own_journal_to_answer(admin: Client) -> None:
    event, trigger = make_event(), make_trigger("wants")
    run = make_run(event_id=event.pk, trigger="wants", trigger_id=trigger.pk, status="succeeded")

    answer = admin.get(page_of("runs_run", run).replace("change", "shadow"), follow=True)

    assert answer.redirect_chain[0][0] == f"{page_for(event)}?trigger=wants&run={run.pk}"
    assert answer.context["form"]["trigger"].value() == "wants"
    assert answer.context["form"]["run"].value() == str(run.pk)


def test_success_shows_rows_statements_and_what_is_left_behind() -> None:
    found = sections(
        result={"n": 1},
        changes=[TableChange(table="shop_ticket", inserted=1, updated=2, deleted=0)],
        statements=[Statement(sql="INSERT INTO shop_ticket …", parameters="[7]", rows=1)],
        statement_count=201,
        entries=[Taken(key="mail", kind="idempotent", how="journal")],
        not_asked=["old"],
        left=Effects(
            emissions=[Emission(type="ticket.opened", data={"id": 7}, key="0")],
            notices=[Notice(text="Look!", urgency="high")],
            children=[Child(id=uuid4(), agent="checker", input=[1], key="0")],
            wakes=[Wake(after=timedelta(days=30), data=None, key="0", reason="review")],
            standings=[Standing(name="daily", cron="0 9 * * *"), Standing(name="often", every=timedelta(hours=2))],
            paces=[Pace(after=timedelta(hours=2), reason="quiet")],
        ),
    )

    assert found[""].text == "It would succeed."
    assert found["Rows it would change"].rows == [("shop_ticket", 1, 2, 0)]
    assert found["Statements that write"].note == "The first 1 of 201."
    assert found["Events it would emit"].rows[0][0] == "ticket.opened"
    assert found["Notifications"].rows == [("high", "Look!")]
    assert found["Runs it would spawn"].rows[0][0] == "checker"
    assert found["Wakes it would set"].rows[0][:2] == ("30 d", "review")
    assert found["Pace it would set for its heartbeat"].rows == [("2 h", "quiet")]
    assert found["Schedules it would set for itself"].rows == [("daily", "0 9 * * * (UTC)"), ("often", "every 2 h")]
    assert found["Journal entries"].rows == [("mail", "idempotent", "answered by the journal")]
    assert "old" in found["Journal entries"].note


def test_call_that_no_one_can_answer_stops_it_with_what_would_have_been_sent() -> None:
    stop = Stop(kind="call", key="pay", said="nobody knows", effect="at_most_once", arguments=[{"cents": 1}])

    found = sections(outcome=Outcome.STOPS, stop=stop)

    assert found[""].text == "Stopped at pay: nobody knows."
    assert '"cents": 1' in found["Arguments"].text


@pytest.mark.parametrize(
    ("outcome", "text"),
    [(Outcome.FAILS, "It would fail: OSError: no"), (Outcome.RETRIES, "It would be retried later: OSError: no")],
)
def test_error_is_reported_with_its_traceback(outcome: Outcome, text: str) -> None:
    found = sections(outcome=outcome, error="OSError: no", traceback="Traceback …")

    assert found[""].text == text
    assert found["Traceback"].text == "Traceback …"
