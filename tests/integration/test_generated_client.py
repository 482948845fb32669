"""A generated client calls every operation of the API at a whole stack, and reads each answer, refusals too."""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.models import PromptAgent
from runs.models import Budget, Notification, Recipient
from tests.support.connections import connected
from tests.support.console import make_one_of_each, make_source
from tests.support.generated_client import GENERATOR, Caller, generated
from tests.support.hooks import add_secret
from tests.support.journals import make_approval, make_step
from tests.support.oauth_server import providing_tokens
from tests.support.runs import make_run
from tests.support.stack import SHOP, Stack, StackMaker, eventually
from tests.support.switches import make_switch
from triggers.api.tokens import create_token
from triggers.models import EventDelivery, Trigger
from triggers.prompt_agents.edit import MOST

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(
        importlib.util.find_spec(GENERATOR) is None, reason=f"pip install {GENERATOR.replace('_', '-')}"
    ),
]

DAY = timedelta(days=1)
HOOKS = {"hooks_deliver", "hooks_ping", "hooks_ping_get"}
TOKEN = "t0ken-of-the-backup"


@pytest.fixture(scope="module")
def stack(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(
        env={**SHOP, "WAKEFUL_MODEL": "builtin", "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8"}, agents=True
    )
    return stack


@pytest.fixture(scope="module")
def rows(stack: Stack) -> Any:
    """Of each kind one, made before there are processes that work on them."""
    with stack.orm():
        made = make_one_of_each(1)
        Notification.objects.update(planned_at=timezone.now())  # that of the made delivery
    stack.up(beat=False)
    return made


@pytest.fixture(scope="module")
def call(stack: Stack, rows: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    schema = stack.request("GET", "/api/schema/?format=json").json()
    with stack.orm():
        _, token = create_token("client", ["*"], by="test")
    with generated(schema, tmp_path_factory.mktemp("generated")), closing(Caller(stack.url, token, schema)) as call:
        yield call


def test_each_operation_answers_what_the_client_reads(stack: Stack, call: Caller, rows: Any) -> None:
    with stack.orm():
        call_events(call)
        call_runs(stack, call)
        call_triggers(call)
        call_schedules(call, rows)
        call_replays(call)
        call_what_sends(call, rows)
        call_connections(call)
        call_what_agents_keep(call, rows)
        call_what_limits(call)
        call_sources(call)
        call_what_its_state_forbids(call, rows)

    done = {operation for operation, statuses in call.answered.items() if any(code < 300 for code in statuses)}
    assert sorted(set(call.operations) - done) == []
    forbidden = {operation for operation, described in call.operations.items() if "409" in described["responses"]}
    assert forbidden == {operation for operation, statuses in call.answered.items() if 409 in statuses}


@pytest.mark.parametrize("code", [401, 403])
def test_each_operation_refuses_a_token_in_words_that_the_client_reads(stack: Stack, call: Caller, code: int) -> None:
    with stack.orm():
        _, powerless = create_token(f"powerless-{code}", [], by="test")
    client = call.with_token("wrong" if code == 401 else powerless)
    protected = [name for name, described in call.operations.items() if described.get("security")]

    for operation in protected:
        assert call.count(operation, call.raw(operation, no_object(call, operation), b"{}", client=client), code).detail

    assert len(protected) == len(call.operations) - len(HOOKS)


@pytest.mark.parametrize("content", [b"{}", b'{"nonsense": 1}'])
def test_each_refusal_of_an_object_or_a_body_is_one_that_the_client_reads(call: Caller, content: bytes) -> None:
    for operation in call.operations:
        path = no_object(call, operation)
        answer = call.raw(operation, path, content)
        call.count(operation, answer, int(answer.status_code))
        assert not path or answer.status_code in (400, 404, 409), (operation, answer)


def no_object(call: Caller, operation: str) -> list[str | int]:
    """Names and ids that none has."""
    parameters = call.operations[operation].get("parameters", [])
    kinds = [one["schema"] for one in parameters if one["in"] == "path"]
    return [
        999_999 if kind["type"] == "integer" else str(uuid4()) if kind.get("format") == "uuid" else "none-such"
        for kind in kinds
    ]


def call_events(call: Caller) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "shop", "type": "effect.one", "data": {"n": 1}}
    first = call("events_create", body=event)
    assert (call("events_create", body=event).event, first.duplicate) == (first.event, False)
    binary: Any = {"ce_specversion": "1.0", "ce_id": "2", "ce_source": "shop", "ce_type": "effect.two"}
    call("events_create", body=b"{}", **binary)
    call("events_create", body={**event, "type": ""}, expect=400)
    assert [one.id for one in call("events_list", type_="effect.one").results] == [first.event]
    assert call("events_get", first.event).data == {"n": 1}
    call("events_replay", first.event, body={"trigger": "effect"})
    call("events_replay", first.event, body={"trigger": "no-such"}, expect=400)
    lines = call("events_export", limit=2).payload.read()
    assert len(lines.splitlines()) == 2 and json.loads(lines.splitlines()[0])["specversion"] == "1.0"
    assert call("events_import", body=lines).known == 2


def call_runs(stack: Stack, call: Caller) -> None:
    fired = call("triggers_fire", "effect", body={"data": {"n": 2}})
    [run] = eventually(lambda: call("runs_list", event=fired.event).results)
    assert call("runs_get", run.id, wait=30).status == "succeeded"
    call("runs_transcript", run.id)
    fork = call("runs_fork", run.id, body={"input": {"n": 3}})
    assert call("runs_get", fork.id, wait=30).status == "succeeded"
    call("runs_cancel", run.id, expect=409)
    call("runs_requeue", run.id, expect=409)
    call("runs_resolve", run.id, body={"outcome": "fail"}, expect=409)
    call("runs_signal", run.id, body={"name": "go"}, expect=409)
    call("runs_fork", run.id, body={"step": "no-such"}, expect=400)
    failed = call("triggers_fire", "failing")
    [run] = eventually(lambda: call("runs_list", event=failed.event).results)
    assert call("runs_get", run.id, wait=30).error.startswith("RuntimeError")
    call("runs_requeue", run.id)
    queued, uncertain = make_run(), make_run(status="uncertain", started_at=timezone.now())
    make_step(uncertain, "charge", status="started")
    call("runs_get", uncertain.pk)
    call("runs_signal", queued.pk, body={"name": "go", "data": {"n": 1}})
    call("runs_cancel", queued.pk)
    call("runs_resolve", uncertain.pk, body={"outcome": "happened", "result": {"id": 1}})
    asked = [make_approval(make_run(status="waiting"), status="open", arguments={"n": 1}) for _ in range(2)]
    call("approvals_list", status="pending")
    call("approvals_get", asked[0].pk)
    call("approvals_decide", asked[0].pk, body={"decision": "edit", "arguments": {"n": 2}, "reason": "half"})
    call("approvals_decide", asked[0].pk, body={"decision": "deny"}, expect=409)
    call("approvals_decide", asked[1].pk, body={"decision": "edit"}, expect=400)
    incident = call("incidents_list").results[0]
    call("incidents_get", incident.id)
    call("incidents_requeue", incident.id, body={})
    call("incidents_close", incident.id)
    call("incidents_close", incident.id, expect=409)
    call("overnight_get")


def call_triggers(call: Caller) -> None:
    call("triggers_list")
    call("triggers_get", "effect")
    call("triggers_pause", "effect", body={"reason": "test"})
    call("triggers_pause", "effect", body={}, expect=409)
    call("triggers_resume", "effect", body={"held": "drop"})
    call("triggers_resume", "effect", body={}, expect=409)
    call("triggers_update", "effect-b", body={"filter": "event.data.n > 1"})
    call("triggers_update", "effect-b", body={"filter": "event.data.n >"}, expect=400)
    call("triggers_try", body={"types": ["effect.*"], "filter": "event.data.n > 1", "events": 5})
    call("triggers_redispatch", "effect", body={"all": True})
    call("triggers_redispatch", "effect", body={}, expect=400)


def call_schedules(call: Caller, rows: Any) -> None:
    call("schedules_preview", body={"when": "every weekday at 09:00", "tz": "Europe/Vienna"})
    call("schedules_preview", body={"when": "now and then"}, expect=400)
    made = call("schedules_create", body={"name": "noon", "when": "every day at noon", "trigger": "effect"})
    call("schedules_list", enabled=True)
    call("schedules_get", made.id)
    call("schedules_update", made.id, body={"jitter": "5m", "max_fires": 10})
    call("schedules_pause", made.id, body={"note": "test"})
    call("schedules_pause", made.id, body={}, expect=409)
    call("schedules_resume", made.id)
    call("schedules_resume", made.id, expect=409)
    call("schedules_fire", made.id)
    call("schedules_fires", made.id, count=3)
    call("schedules_why", made.id, at="2050-01-01T09:00")
    call("schedules_skips", made.id)
    backfill = call("schedules_backfill", made.id, body={**last_days(3), "at_once": 1})
    call("backfills_list")
    call("backfills_get", backfill.id)
    call("backfills_cancel", rows["triggers_backfill"].pk)
    call("backfills_cancel", rows["triggers_backfill"].pk, expect=409)
    call("reminders_create", body={"when": "in 5 minutes", "trigger": "effect", "text": "tea"})
    call("upcoming_list", limit=100)
    calendar = {"slug": "days", "days": "*-05-01"}
    call("calendars_create", body=calendar)
    call("calendars_create", body=calendar, expect=400)
    call("calendars_list")
    call("calendars_get", "days")
    call("calendars_replace", "days", body={"days": "*-05-02"})
    call("schedules_update", made.id, body={"exclude": ["days"]})
    call("calendars_delete", "days", expect=409)
    call("schedules_delete", made.id)
    call("calendars_delete", "days")


def last_days(days: int) -> dict[str, str]:
    return {"start": (timezone.now() - days * DAY).isoformat(), "end": timezone.now().isoformat()}


def call_replays(call: Caller) -> None:
    search = {"type": "effect.*", "triggers": ["effect"]}
    call("replays_preview", body=search)
    made = call("replays_create", body={**search, "rate": 1, "priority": 9})
    call("replays_create", body={}, expect=400)
    call("replays_list")
    call("replays_get", made.id)
    other = call("replays_create", body={"all": True, "rate": 1})
    call("replays_pause", other.id)
    call("replays_pause", other.id, expect=409)
    call("replays_resume", other.id)
    call("replays_resume", other.id, expect=409)
    call("replays_cancel", other.id)
    call("replays_cancel", other.id, expect=409)


def call_what_sends(call: Caller, rows: Any) -> None:
    call("notifications_list")
    call("notifications_get", rows["runs_notification"].pk)
    delivery = rows["runs_delivery"]
    call("deliveries_list")
    call("deliveries_get", delivery.pk)
    call("deliveries_resolve", delivery.pk, body={"outcome": "arrived"}, expect=409)
    type(delivery).objects.filter(pk=delivery.pk).update(status="unknown", sent_at=None)
    call("deliveries_resolve", delivery.pk, body={"outcome": "arrived"})
    call("deliveries_acknowledge", delivery.pk)
    User.objects.create(username="ada", is_staff=True, is_superuser=True)
    made = call("recipients_create", body={"name": "desk", "address": "inbox:ada", "spacing": "30m"})
    call("recipients_create", body={"name": "desk", "address": "nonsense"}, expect=400)
    call("recipients_list")
    call("recipients_get", made.id)
    call("recipients_update", made.id, body={"digest_hour": 8})
    call("recipients_test", made.id)
    call("recipients_silence", made.id, body={"length": "1d"})
    call("recipients_silence", made.id, body={"length": None})
    call("recipients_update", made.id, body={"active": False})
    call("recipients_test", made.id, expect=409)
    group = call("recipient_groups_create", body={"name": "night", "members": ["desk"]})
    call("recipient_groups_list")
    call("recipient_groups_get", group.id)
    call("recipient_groups_update", group.id, body={"name": "late", "members": []})
    call("recipient_groups_delete", group.id)
    call("recipients_delete", made.id)
    call("subscriptions_create", body={"slug": "hub", "url": "https://example.com/x", "types": ["visitor.*"]})
    call("subscriptions_create", body={"slug": "hub", "url": "nonsense", "types": ["*"]}, expect=400)
    call("subscriptions_list")
    call("subscriptions_get", "hub")
    call("subscriptions_update", "hub", body={"types": ["nothing.*"]})
    call("subscriptions_rotate", "hub", body={"grace": "1h"})
    call("subscriptions_redeliver", "hub", body={"since": "2026-01-01"})
    call("subscriptions_test", "hub")
    call("subscriptions_update", "hub", body={"enabled": False})
    call("subscriptions_redeliver", "hub", body={"since": "2026-01-01"}, expect=409)
    call("subscriptions_test", "hub", expect=409)
    call("subscriptions_delete", "hub")
    failed = EventDelivery.objects.filter(pk=rows["triggers_eventdelivery"].pk)
    call("event_deliveries_list")
    call("event_deliveries_get", failed.get().pk)
    call("event_deliveries_redeliver", failed.get().pk)
    call("event_deliveries_redeliver", failed.get().pk, expect=409)


def call_connections(call: Caller) -> None:
    with providing_tokens() as provider:
        made = connected(provider, "mailbox")
        call("connections_list")
        call("connections_get", made.pk)
        assert "It works" in call("connections_test", made.pk).outcome
        call("connections_revoke", made.pk)
    call("connections_test", made.pk, expect=409)
    call("connections_revoke", made.pk, expect=409)


def call_what_agents_keep(call: Caller, rows: Any) -> None:
    call("sessions_list")
    call("sessions_get", "session-1")
    call("sessions_clear", "session-1")
    note = call("memory_create", body={"agent": "effect", "key": "disk", "text": "full"})
    call("memory_create", body={"agent": "effect", "key": "disk", "text": "full"}, expect=409)
    call("memory_list", agent="effect")
    call("memory_get", note.id)
    call("memory_update", note.id, body={"text": "fuller", "revision": note.revision})
    call("memory_update", note.id, body={"text": "empty", "revision": note.revision}, expect=409)
    call("memory_delete", note.id)
    made = call("checklists_create", body={"agent": "effect", "items": [{"text": "disk", "every": "6h"}]})
    call("checklists_create", body={"agent": "effect", "items": []}, expect=409)
    call("checklists_list")
    call("checklists_get", made.id)
    items = [{"id": made.items[0].id, "text": "disks", "every": None}, {"text": "backups"}]
    call("checklists_update", made.id, body={"items": items, "revision": made.revision})
    call("checklists_update", made.id, body={"items": [], "revision": made.revision}, expect=409)
    call("checklists_revisions", made.id)
    agent = call(
        "prompt_agents_create",
        body={"name": "triage", "instructions": "Look.", "when": [{"schedule": "every day at 08:00"}]},
    )
    call("prompt_agents_create", body={"name": "triage", "instructions": "Look."}, expect=400)
    call("prompt_agents_list")
    call("prompt_agents_get", "triage")
    call("prompt_agents_update", "triage", body={"instructions": "Look twice.", "version": agent.version})
    call("prompt_agents_update", "triage", body={"instructions": "Look.", "version": agent.version}, expect=409)
    call("prompt_agents_versions", "triage")
    call("prompt_agents_try", "triage", body={"data": {"n": 1}})
    call("prompt_agents_delete", "triage")
    call("prompt_agents_delete", "triage", expect=409)
    call("prompt_agents_try", "triage", body={}, expect=409)
    call("prompt_agents_restore", "triage")
    call("prompt_agents_restore", "triage", expect=409)


def call_what_limits(call: Caller) -> None:
    made = call(
        "budgets_create", body={"scope": "agent", "name": "effect", "period": "day", "measure": "usd", "cap": "5"}
    )
    call("budgets_create", body={"scope": "agent", "period": "day", "measure": "usd", "cap": "5"}, expect=400)
    call("budgets_list")
    call("budgets_get", made.id)
    call("budgets_update", made.id, body={"cap": "7.50"})
    call("budgets_update", made.id, body={"cap": None})
    call("budgets_allow", made.id, body={"amount": "0.50"}, expect=409)
    call("budgets_update", made.id, body={"cap": "7.50"})
    call("budgets_allow", made.id, body={"amount": "0.50"})
    call("budgets_delete", made.id)
    call("queues_list")
    call("queues_get", "default")
    call("queues_pause", "all", body={"reason": "test"})
    call("queues_pause", "all", body={}, expect=409)
    call("queues_get", "all")
    call("queues_resume", "all")
    call("queues_resume", "all", expect=409)
    call("queues_limit", "default", body={"max_running": 3})
    call("queues_limit", "default", body={"max_running": None})
    call("agents_stop", "effect", body={"reason": "test"})
    call("agents_stop", "effect", body={}, expect=409)
    call("agents_list")
    call("agents_get", "effect")
    call("agents_start", "effect")
    call("agents_start", "effect", expect=409)


def call_sources(call: Caller) -> None:
    make_source("pushed", kind="pushed")
    add_secret(make_source("shop", kind="bearer"), TOKEN)
    add_secret(make_switch("backup", kind="ping"), TOKEN)
    shop = call.with_token(TOKEN)
    assert call("hooks_deliver", "shop", body=b'{"id": "1", "type": "order.paid"}', client=shop).duplicate is False
    call("hooks_deliver", "no-such", body=b"{}", expect=404)
    call("hooks_deliver", "shop", body=b"{}", client=call.with_token("wrong"), expect=401)
    assert call("hooks_ping", "backup", TOKEN, body=b"") == "OK" == call("hooks_ping_get", "backup", TOKEN)
    call("hooks_ping_get", "backup", "wrong-wrong-wrong-wrong", expect=404)
    call("sources_list")
    call("sources_get", "pushed")
    call("sources_update", "pushed", body={"trusted": False, "limits": {}})
    call("sources_update", "shop", body={"limits": {"per_minute": 60}})
    call("sources_update", "shop", body={"limits": {"per_minute": "many"}}, expect=400)
    sample = {"series": "disk", "time": "2026-11-20T09:00:00Z", "value": 81.5}
    assert call("sources_samples", "pushed", body={"samples": [sample]}).stored == 1


def call_what_its_state_forbids(call: Caller, rows: Any) -> None:
    """States that no operation of the API makes."""
    schedule = rows["triggers_schedule"]
    slug = schedule.trigger.slug
    # As if the code declared the schedule and its trigger, and an operator had disabled that.
    Trigger.objects.filter(slug=slug).update(enabled=False, declared={"rule": ""})
    call("triggers_fire", slug, expect=409)
    call("events_replay", rows["triggers_event"].pk, body={"trigger": slug}, expect=409)
    call("replays_create", body={"all": True, "triggers": [slug]}, expect=409)
    call("schedules_fire", schedule.pk, expect=409)
    call("schedules_backfill", schedule.pk, body=last_days(3), expect=409)
    call("schedules_delete", schedule.pk, expect=409)
    call("runs_fork", make_run(status="failed", payload_removed_at=timezone.now()).pk, body={}, expect=409)
    Budget.objects.filter(pk=rows["runs_budget"].pk).update(declared=5)
    call("budgets_delete", rows["runs_budget"].pk, expect=409)
    delivery = rows["runs_delivery"]
    type(delivery).objects.filter(pk=delivery.pk).update(status="suppressed", reason="test")
    call("deliveries_acknowledge", delivery.pk, expect=409)
    recipient = rows["runs_recipient"]
    Recipient.objects.filter(pk=recipient.pk).update(is_from_settings=True)
    call("recipients_update", recipient.pk, body={"name": "else"}, expect=409)
    call("recipients_delete", recipient.pk, expect=409)
    PromptAgent.objects.bulk_create(PromptAgent(name=f"crowd-{number}") for number in range(MOST))
    call("prompt_agents_create", body={"name": "one-more", "instructions": "Look."}, expect=409)
    PromptAgent.objects.filter(name__startswith="crowd-").delete()  # they have no versions
