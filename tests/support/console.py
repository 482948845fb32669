"""Rows that only the console's tests need, and what its pages are called."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.template.response import SimpleTemplateResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.models import Session, SessionTurn
from runs.actions.checklists import ItemEdit, create_checklist
from runs.actions.memory import create_note
from runs.models import (
    Alarm,
    Attempt,
    AuditEntry,
    Budget,
    Connection,
    CoveredRun,
    Delivery,
    Incident,
    ModelPrice,
    Notification,
    Recipient,
    RecipientGroup,
    Run,
    Worker,
)
from runs.states import RunStatus
from tests.support.journals import make_approval, make_step
from tests.support.outbound import subscribe
from tests.support.prompt_agents import make_prompt_agent
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.api.tokens import create_token
from triggers.events.search import Search
from triggers.models import ApiToken, EventDelivery, Schedule, Source, Switch, SwitchTimer, Trigger
from triggers.replays.start import start_replay
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.calendars import create_calendar
from triggers.schedules.edit import create_schedule
from triggers.schedules.rules.crontab import Cron


def list_of(noun: str) -> str:
    return reverse(f"admin:{noun}_changelist")


def page_of(noun: str, row: Any) -> str:
    return reverse(f"admin:{noun}_change", args=[row.pk])


@contextmanager
def unwritten() -> Iterator[None]:
    """Inside the block no page is written out, which takes most of the time of a request. What it changes, its status and what the page
    would show are settled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimpleTemplateResponse, "rendered_content", "")
        yield


def context_of(client: Client, url: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a page is given, which itself is not written out."""
    with unwritten():
        answer: Any = client.get(url, query)
    assert answer.status_code == 200, (url, answer.status_code)
    return answer.context_data or {}


def make_worker(kind: str = "worker", **fields: Any) -> Worker:
    fields = {"agents": ["greeter"], "queues": ["default"], "concurrency": 2, **fields} if kind == "worker" else fields
    return Worker.objects.create(kind=kind, host="here", pid=1, **{"version": "1", **fields})


def make_failed_run(trigger: Trigger, **fields: Any) -> Run:
    """A run with its event, and an attempt that failed with a traceback."""
    run = make_run(
        status=RunStatus.FAILED,
        event_id=make_event().pk,
        trigger=trigger.slug,
        trigger_id=trigger.pk,
        error="RuntimeError: no",
        started_at=timezone.now(),
        **fields,
    )
    now = timezone.now()
    Attempt.objects.create(
        run=run,
        epoch=1,
        number=1,
        started_at=now,
        ended_at=now,
        outcome="failed",
        error="RuntimeError: no",
        traceback="Traceback …",
    )
    return run


def make_schedule(name: str) -> Schedule:
    return create_schedule(
        name=name, trigger=make_trigger(name), rule=Cron.parse("0 9 * * mon-fri", "Europe/Vienna"), by="test"
    )


def make_source(slug: str = "billing", **fields: Any) -> Source:
    return Source.objects.create(slug=slug, **{"kind": "github", **fields})


def make_switch_row(slug: str) -> Switch:
    """A dead man's switch that is open, with its source."""
    source = make_source(slug, kind="ping")
    at = timezone.now()
    SwitchTimer.objects.create(source=source, key="", state="open", opened_at=at, due_at=at, seen_at=at)
    return Switch.objects.create(source=source, shape="", terms="")


def make_incident(trigger: str, *runs: Run, **fields: Any) -> Incident:
    """An open one of a trigger, which covers these runs."""
    counted = {"count": len(runs), "in_a_row": len(runs)}
    incident = Incident.objects.create(
        kind="trigger", subject=trigger, name=trigger, agent=trigger, fingerprint="f", cause="RuntimeError: no",
        error="RuntimeError: no", opened_at=timezone.now(), **{**counted, **fields},
    )  # fmt: skip
    CoveredRun.objects.bulk_create(CoveredRun(incident=incident, run_id=run.pk) for run in runs)
    return incident


def make_session(number: int) -> Session:
    session = Session.objects.create(name=f"session-{number}", summary="about disks", last_number=1)
    messages = [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": f"hello {number}"}]}]
    whose: dict[str, Any] = {"run_id": uuid4(), "agent": "greeter"}
    SessionTurn.objects.create(session=session, number=1, messages=messages, characters=90, **whose)
    return session


def make_one_of_each(number: int) -> dict[str, Any]:
    """A row for every page of the console, by the page's noun."""
    now = timezone.now()
    trigger = make_trigger(f"greeter-{number}")
    event = make_event(data={"n": number})
    run = make_failed_run(trigger)
    make_step(run, f"step-{number}")
    token: ApiToken = create_token(f"token-{number}", ["runs.view_run"], by="test")[0]
    notification = Notification.objects.create(sender="greeter", text=f"Hello {number}", run_id=run.pk)
    recipient = Recipient.objects.create(name=f"ops-{number}", address="inbox:ops", channel="inbox")
    return {
        "triggers_source": make_source(f"source-{number}"),
        "triggers_switch": make_switch_row(f"backup-{number}"),
        "triggers_trigger": trigger,
        "triggers_subscription": (subscription := subscribe(slug=f"shop-{number}")),
        "triggers_eventdelivery": EventDelivery.objects.create(
            event=event,
            subscription=subscription,
            name=subscription.slug,
            status="failed",
            reason="it answered 500",
            ended_at=now,
            tries=[{"at": now.isoformat(), "status": 500, "seconds": 0.1, "answer": "no", "error": "it answered 500"}],
        ),
        "triggers_schedule": (schedule := make_schedule(f"schedule-{number}")),
        "triggers_backfill": start_backfill(schedule, start=now - timedelta(days=8), end=now, by="test"),
        "triggers_exclusioncalendar": create_calendar(slug=f"days-{number}", days="*-05-01", by="test"),
        "triggers_event": event,
        "triggers_replay": start_replay(Search(), everything=True, by="test"),
        "triggers_apitoken": token,
        "runs_run": run,
        "runs_approval": make_approval(make_run(status="waiting"), status="open", arguments={"n": number}),
        "runs_worker": make_worker(),
        "agents_checklist": create_checklist(f"agent-{number}", items=[ItemEdit(text="backups")], by="test"),
        "agents_session": make_session(number),
        "agents_memorynote": create_note(f"agent-{number}", "disk", "db-1 fills up", by="test"),
        "agents_promptagent": make_prompt_agent(f"agent-{number + 100}"),
        "runs_budget": Budget.objects.create(scope="agent", name=f"agent-{number}", period="day", measure="usd", cap=5),
        "runs_modelprice": ModelPrice.objects.create(model=f"model-{number}", input=1, output=2),
        "runs_alarm": Alarm.objects.create(name=f"alarm-{number}", severity="bad", text="Late.", remedy="Hurry."),
        "runs_incident": make_incident(f"greeter-{number}", run),
        "runs_notification": notification,
        "runs_connection": Connection.objects.create(
            name=f"mail-{number}", provider="google", client_id="wakeful", scopes=["https://mail.google.com/"]
        ),
        "runs_recipient": recipient,
        "runs_recipientgroup": RecipientGroup.objects.create(name=f"office-{number}"),
        "runs_delivery": Delivery.objects.create(
            notification=notification,
            recipient=recipient,
            name=recipient.name,
            status="sent",
            channel="inbox",
            sent_at=now,
        ),
        "runs_auditentry": AuditEntry.objects.create(by="test", action="look", kind="run", object_id=str(run.pk)),
    }
