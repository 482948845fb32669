"""Every door by which a person or a program changes something leaves an audit entry in their name."""

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin as django_admin
from django.contrib.auth.models import Group, User
from django.core.management import call_command, get_commands
from django.test import Client
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from kombu import Message

from config.api import router
from config.console.parts.panel import Panel
from runs.actions.checklists import ItemEdit, create_checklist
from runs.actions.memory import create_note
from runs.actions.stop_agents import stop_agents
from runs.models import NIL, AuditEntry, Budget, Connection, Delivery, Incident, ModelPrice, RecipientGroup
from runs.queues.pause import EVERY, pause
from runs.queues.unknown_tasks import keep
from tests.support.api import Api
from tests.support.console import (
    list_of,
    make_failed_run,
    make_incident,
    make_schedule,
    make_session,
    make_source,
    make_switch_row,
    page_of,
)
from tests.support.journals import make_approval, make_question
from tests.support.notifying import make_recipient, notify
from tests.support.outbound import dispatched, subscribe
from tests.support.prompt_agents import make_prompt_agent
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.api.tokens import create_token
from triggers.events.search import Search
from triggers.models import Decision, EventDelivery, MetricDetector, Source, Subscription, Trigger
from triggers.prompt_agents.edit import delete_prompt_agent
from triggers.replays.control import pause_replay
from triggers.replays.start import start_replay
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.calendars import create_calendar
from triggers.schedules.edit import pause_schedule
from triggers.sources.metrics.arm import arm

pytestmark = pytest.mark.django_db

Door = Callable[[Client], object]


def button(noun: str, name: str, make: Callable[[], Any] | None = None, /, **fields: Any) -> Door:
    """A button of a detail page."""
    return lambda client: press(client, noun, (make or ROWS[noun])(), name, **fields)


def press(client: Client, noun: str, row: Any, name: str, /, **fields: Any) -> None:
    """Without a look at the page that it leads to."""
    client.post(page_of(noun, row).replace("change", name), {"_form_submitted": "True", **fields})


def action(noun: str, name: str, make: Callable[[], Any] | None = None) -> Door:
    """An action on chosen rows of a list."""

    def choose(client: Client) -> None:
        client.post(list_of(noun), {"action": name, "_selected_action": [str((make or ROWS[noun])().pk)]})

    return choose


def form(path: str, **fields: Any) -> Door:
    return lambda client: client.post(path, fields)


def call(path: str, body: Any = b"", make: Callable[[], Any] = lambda: None) -> Door:
    """A request to the API; the path may name what was made."""
    return lambda client: Api().post(path.format(getattr(make(), "pk", "")), body)


def send(verb: str, path: str, body: Any, make: Callable[[], Any] = lambda: None) -> Door:
    """The same by another method."""
    return lambda client: getattr(Api(), verb)(path.format(getattr(make(), "pk", "")), *([body] if body else []))


def command(*words: str, make: Callable[[], Any] = lambda: None) -> Door:
    def run(client: Client) -> None:
        made = getattr(make(), "pk", "")
        call_command(*[word.format(made) for word in words], stdout=io.StringIO(), stderr=io.StringIO())

    return run


def failed() -> Any:
    return make_failed_run(make_trigger())


def uncertain() -> Any:
    return make_run(status="uncertain", started_at=timezone.now())


def unknown_delivery() -> Any:
    return Delivery.objects.create(notification=notify(), recipient=make_recipient(), name="ops", status="unknown")


def failed_delivery() -> Any:
    return Delivery.objects.create(notification=notify(), recipient=make_recipient(), name="ops", status="failed")


def subscription() -> Any:
    subscribe()
    return Subscription.objects.get()


def failed_event_delivery() -> Any:
    subscription()
    make_event()
    dispatched()
    EventDelivery.objects.update(status="failed", reason="it answered 500", due_at=None, ended_at=timezone.now())
    return EventDelivery.objects.get()


def recipient_group() -> Any:
    return RecipientGroup.objects.create(name="office")


def pending() -> Any:
    return make_approval(make_run(status="waiting"), status="open", arguments={"n": 1})


def on_schedule() -> Any:
    return make_schedule("morning")


def backfill() -> Any:
    now = timezone.now()
    return start_backfill(on_schedule(), start=now - timedelta(days=8), end=now, by="test")


def matched_event() -> Any:
    """An event that a trigger listens to."""
    make_trigger()
    return make_event()


def bulk_replay() -> Any:
    matched_event()
    return start_replay(Search(), everything=True, by="test")


def paused_replay() -> Any:
    return pause_replay(bulk_replay(), by="test")


def calendar() -> Any:
    return create_calendar(slug="days", days="*-05-01", by="test")


def off_schedule() -> Any:
    schedule = make_schedule("morning")
    pause_schedule(schedule, by="test")
    return schedule


def disabled_source() -> Source:
    return make_source(enabled=False)


def watched_table() -> Source:
    return Source.objects.create(slug="groups", kind="table", settings={"table": "auth.Group"})


def pushed_source() -> Source:
    return make_source(kind="pushed")


def armed_detector() -> MetricDetector:
    return arm(pushed_source(), "missing", {}, by="test")


def hmac_source() -> Source:
    return make_source(kind="hmac", settings={"header": "X-Signature", "template": "{body}"})


def with_error() -> Trigger:
    trigger = make_trigger()
    Decision.objects.create(event=make_event(), trigger=trigger, replay_id=NIL, outcome=Decision.Outcome.ERROR)
    return trigger


def overridden() -> Trigger:
    return make_trigger(declared={"overlap": "allow"}, overrides=["overlap"], overlap="skip")


def task(**fields: Any) -> PeriodicTask:
    every = IntervalSchedule.objects.create(every=1, period="days")
    return PeriodicTask.objects.create(name="report", task="reports.daily", interval=every, **fields)


def paused_queues() -> Any:
    return pause(EVERY, reason="test", by="test")


def stopped() -> Any:
    return stop_agents(EVERY, reason="test", by="test")


def unknown_task() -> Any:
    keep(Message(body="[]", headers={"id": "one", "task": "billing.charge"}, delivery_info={"routing_key": "theirs"}))


def checklist() -> Any:
    return create_checklist("ops", items=[ItemEdit(text="backups")], by="test")


def session() -> Any:
    return make_session(1)


def note() -> Any:
    return create_note("greeter", "disk", "db-1 fills up", by="test")


def prompt_agent() -> Any:
    return make_prompt_agent()


def deleted_prompt_agent() -> Any:
    return delete_prompt_agent(make_prompt_agent().pk, by="test")


def budget() -> Budget:
    return Budget.objects.create(scope="installation", period="day", measure="usd", cap=5)


def incident() -> Incident:
    return make_incident("greeter")


def muted() -> Incident:
    return make_incident("greeter", muted_at=timezone.now(), muted_by="ada")


def failed_runs() -> Incident:
    """One that covers a run."""
    trigger = make_trigger()
    return make_incident(trigger.slug, make_failed_run(trigger))


def price() -> ModelPrice:
    return ModelPrice.objects.create(model="own", input=2, output=3)


def change(path: str, make: Callable[[], Any], **fields: Any) -> Door:
    """Django's own form of one object."""
    return lambda client: client.post(path.format(make().pk), fields)


def user() -> User:
    return User.objects.create_user("bob", password="x")


def group() -> Group:
    return Group.objects.create(name="auditors")


def connection() -> Any:
    return Connection.objects.create(name="mail", provider="google", client_id="shop")


ROWS: dict[str, Callable[[], Any]] = {
    "runs_run": failed,
    "runs_approval": pending,
    "runs_incident": failed_runs,
    "runs_recipientgroup": recipient_group,
    "runs_connection": connection,
    "triggers_event": matched_event,
    "triggers_replay": bulk_replay,
    "triggers_trigger": make_trigger,
    "triggers_schedule": on_schedule,
    "triggers_backfill": backfill,
    "triggers_exclusioncalendar": calendar,
    "triggers_switch": lambda: make_switch_row("backup"),
    "triggers_source": make_source,
    "triggers_apitoken": lambda: create_token("ci", ["runs.view_run"], by="test")[0],
}
BOB = {"username": "bob", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
PASSWORD = {"password1": "a long enough one", "password2": "a long enough one"}

ADMIN: dict[str, Door] = {
    "runs.run requeue_run": button("runs_run", "requeue_run"),
    "runs.run cancel_run": button("runs_run", "cancel_run", make_run),
    "runs.run requeue_chosen": action("runs_run", "requeue_chosen"),
    "runs.run cancel_chosen": action("runs_run", "cancel_chosen", make_run),
    "runs.run fork_run": button("runs_run", "fork_run", input="{}"),
    "runs.run signal_run": button("runs_run", "signal_run", make_run, name="go", data="{}"),
    "runs.run resolve_run": button("runs_run", "resolve_run", uncertain, outcome="fail"),
    "runs.approval approve": button("runs_approval", "approve"),
    "runs.approval edit": button("runs_approval", "edit", arguments="{}"),
    "runs.approval answer": button("runs_approval", "answer", make_question, answer="eu-west"),
    "runs.approval deny": button("runs_approval", "deny"),
    "runs.queue pause": form("/admin/runs/queue/all/pause/", reason="x"),
    "runs.queue resume": change("/admin/runs/queue/all/resume/", paused_queues),
    "runs.queue limit": form("/admin/runs/queue/default/limit/", max_running="3"),
    "agents.checklist add": form("/admin/agents/checklist/add/", agent="heartbeat", trigger=""),
    "agents.checklist edit": button("agents_checklist", "edit", checklist, revision="1", text_1="disk", place_1="1"),
    "agents.checklist as_text": button("agents_checklist", "text", checklist, number="1", text="- disk"),
    "agents.checklist silence": button("agents_checklist", "silence", checklist, what="", length="1d"),
    "runs.incident requeue_runs": button("runs_incident", "requeue_runs", upto="99"),
    "runs.incident close_this": button("runs_incident", "close_this"),
    "runs.incident acknowledge_this": button("runs_incident", "acknowledge_this"),
    "runs.incident mute_this": button("runs_incident", "mute_this", until="8h"),
    "runs.incident unmute_this": button("runs_incident", "unmute_this", muted),
    "agents.session edit": button(
        "agents_session",
        "edit",
        session,
        revision="0",
        summary="x",
        most_turns="5",
        most_characters="900",
        overflow="drop",
    ),
    "agents.session remove_one": button("agents_session", "remove-turn", session, turn="1"),
    "agents.session clear": button("agents_session", "clear", session),
    "agents.memorynote add": form("/admin/agents/memorynote/add/", agent="heartbeat", key="disk", text="full"),
    "agents.memorynote edit": button("agents_memorynote", "edit", note, revision="1", text="full", trusted="on"),
    "agents.memorynote remove": button("agents_memorynote", "remove", note),
    "agents.promptagent add": form(
        "/admin/agents/promptagent/add/", name="triage", instructions="Look.", tz="UTC", notify="on"
    ),
    "agents.promptagent edit": button(
        "agents_promptagent", "edit", prompt_agent, instructions="Look.", notify="on", version="1"
    ),
    "agents.promptagent wake": button("agents_promptagent", "wake", prompt_agent, when="every 30m", tz="UTC"),
    "agents.promptagent delete_agent": button("agents_promptagent", "delete-agent", prompt_agent),
    "agents.promptagent restore": button("agents_promptagent", "restore", deleted_prompt_agent),
    "runs.budget add": form(
        "/admin/runs/budget/add/", scope="installation", period="day", measure="usd", at_cap="wait", cap="5"
    ),
    "runs.budget change_cap": button("runs_budget", "cap", budget, cap="6"),
    "runs.budget allow_once": button("runs_budget", "allow", budget, amount="1"),
    "runs.budget delete_this": button("runs_budget", "remove", budget),
    "runs.modelprice add": form("/admin/runs/modelprice/add/", model="own", input="1", output="2"),
    "runs.modelprice edit": button("runs_modelprice", "edit", price, input="1", output="2"),
    "runs.modelprice delete_this": button("runs_modelprice", "remove", price),
    "triggers.subscription add": form(
        "/admin/triggers/subscription/add/", slug="shop", url="https://example.com/x", types="*", enabled="on"
    ),
    "triggers.subscription edit": button("triggers_subscription", "edit", subscription, types="visitor.*"),
    "triggers.subscription rotate_secret": button("triggers_subscription", "rotate-secret", subscription, hours=1),
    "triggers.subscription send_test": button("triggers_subscription", "test", subscription),
    "triggers.subscription redeliver": button("triggers_subscription", "redeliver", subscription, since="1d"),
    "triggers.subscription delete_this": button("triggers_subscription", "remove", subscription),
    "triggers.subscription enable_chosen": action("triggers_subscription", "enable_chosen", subscription),
    "triggers.subscription disable_chosen": action("triggers_subscription", "disable_chosen", subscription),
    "triggers.eventdelivery redeliver_this": button("triggers_eventdelivery", "redeliver", failed_event_delivery),
    "triggers.eventdelivery redeliver_chosen": action(
        "triggers_eventdelivery", "redeliver_chosen", failed_event_delivery
    ),
    "runs.connection add": form(
        "/admin/runs/connection/add/?provider=github",
        name="code",
        client_id="x",
        client_secret="a-secret-1234",
        owner="",
    ),
    "runs.connection edit": button("runs_connection", "edit", client_id="wakeful"),
    "runs.connection delete_this": button("runs_connection", "remove"),
    "runs.recipient add": form(
        "/admin/runs/recipient/add/",
        name="pager",
        address="inbox:ada",
        zone="UTC",
        spacing="30m",
        repeat_after="1d",
        second_after="10m",
        least_urgency="low",
    ),  # fmt: skip
    "runs.recipient edit": button(
        "runs_recipient",
        "edit",
        make_recipient,
        name="ops",
        **{"initial-name": "ops"},
        zone="Europe/Vienna",
        spacing="30m",
        repeat_after="1d",
        second_after="10m",
        least_urgency="low",
    ),  # fmt: skip
    "runs.recipient test": button("runs_recipient", "test", make_recipient),
    "runs.recipient silence": button("runs_recipient", "silence", make_recipient, length="1d"),
    "runs.recipient delete_this": button("runs_recipient", "remove", make_recipient),
    "runs.recipientgroup add": form("/admin/runs/recipientgroup/add/", name="desk"),
    "runs.recipientgroup edit": button("runs_recipientgroup", "edit", name="desk"),
    "runs.recipientgroup delete_this": button("runs_recipientgroup", "remove"),
    "runs.delivery arrived": button("runs_delivery", "arrived", unknown_delivery),
    "runs.delivery send_again": button("runs_delivery", "send-again", unknown_delivery),
    "runs.delivery acknowledge": button("runs_delivery", "acknowledge", unknown_delivery),
    "runs.delivery acknowledge_chosen": action("runs_delivery", "acknowledge_chosen", unknown_delivery),
    "runs.delivery send_chosen_again": action("runs_delivery", "send_chosen_again", failed_delivery),
    "triggers.event replay_event": button("triggers_event", "replay_event"),
    "triggers.event replay_chosen": action("triggers_event", "replay_chosen"),
    "triggers.replay add": lambda client: (
        matched_event(),
        form("/admin/triggers/replay/add/", rate="1", priority="9", all="on")(client),
    ),
    "triggers.replay pause": button("triggers_replay", "pause"),
    "triggers.replay resume": button("triggers_replay", "resume", paused_replay),
    "triggers.replay cancel": button("triggers_replay", "cancel"),
    "triggers.trigger fire_now": button("triggers_trigger", "fire", data="{}"),
    "triggers.trigger pause": button("triggers_trigger", "pause", reason="x"),
    "triggers.trigger resume": button("triggers_trigger", "resume", make_paused_trigger, held="run"),
    "triggers.trigger reset": button("triggers_trigger", "reset", overridden),
    "triggers.trigger pause_chosen": action("triggers_trigger", "pause_chosen"),
    "triggers.trigger resume_and_run": action("triggers_trigger", "resume_and_run", make_paused_trigger),
    "triggers.trigger resume_and_drop": action("triggers_trigger", "resume_and_drop", make_paused_trigger),
    "triggers.trigger fire_chosen": action("triggers_trigger", "fire_chosen"),
    "triggers.trigger redispatch": button("triggers_trigger", "redispatch", with_error, errors="lately"),
    "triggers.trigger redispatch_errors": action("triggers_trigger", "redispatch_errors", with_error),
    "triggers.schedule fire_now": button("triggers_schedule", "fire"),
    "triggers.schedule pause": button("triggers_schedule", "pause"),
    "triggers.schedule resume": button("triggers_schedule", "resume", off_schedule),
    "triggers.schedule delete_schedule": button("triggers_schedule", "remove"),
    "triggers.schedule pause_chosen": action("triggers_schedule", "pause_chosen"),
    "triggers.schedule resume_chosen": action("triggers_schedule", "resume_chosen", off_schedule),
    "triggers.schedule fire_chosen": action("triggers_schedule", "fire_chosen"),
    "triggers.backfill cancel": button("triggers_backfill", "cancel"),
    "triggers.exclusioncalendar add": form("/admin/triggers/exclusioncalendar/add/", slug="days", days="*-05-01"),
    "triggers.exclusioncalendar edit": button("triggers_exclusioncalendar", "edit", days="*-05-02"),
    "triggers.exclusioncalendar delete_this": button("triggers_exclusioncalendar", "remove"),
    "triggers.source send_test": button("triggers_source", "test", hmac_source),
    "triggers.switch pause": button("triggers_switch", "pause"),
    "triggers.switch resume": button("triggers_switch", "resume"),
    "triggers.source rotate_secret": button("triggers_source", "rotate-secret", hmac_source, hours="1"),
    "triggers.source enter_secret": button(
        "triggers_source", "enter-secret", hmac_source, hours="1", secret="long enough a secret for anybody"
    ),
    "triggers.source sweep_table": button("triggers_source", "sweep-table", watched_table),
    "triggers.source try_detector": lambda client: client.post(
        f"/admin/triggers/source/{pushed_source().pk}/detector/",
        {
            "detector": "missing",
            "days": "7",
            "missing__after": "10m",
            "missing__hold": "0s",
            "missing__release": "0s",
            "_arm": "1",
        },
    ),
    "triggers.source disarm_detector": lambda client: press(
        client, "triggers_source", (armed := armed_detector()).source, "disarm", detector=armed.pk
    ),
    "triggers.source enable_chosen": action("triggers_source", "enable_chosen", disabled_source),
    "triggers.source disable_chosen": action("triggers_source", "disable_chosen"),
    "triggers.apitoken add": form("/admin/triggers/apitoken/add/", name="ci-2", granted=["runs.view_run"]),
    "triggers.apitoken revoke_token": button("triggers_apitoken", "revoke_token"),
    "triggers.apitoken revoke_chosen": action("triggers_apitoken", "revoke_chosen"),
    "auth.user add": form("/admin/auth/user/add/", username="eve", usable_password="true", **PASSWORD),
    "auth.user change": change("/admin/auth/user/{}/change/", user, **BOB),
    "auth.user delete": change("/admin/auth/user/{}/delete/", user, post="yes"),
    "auth.group add": form("/admin/auth/group/add/", name="auditors-2"),
    "auth.group change": change("/admin/auth/group/{}/change/", group, name="others"),
    "auth.group delete": change("/admin/auth/group/{}/delete/", group, post="yes"),
    "django_celery_beat.periodictask enable_tasks": action(
        "django_celery_beat_periodictask", "enable_tasks", lambda: task(enabled=False)
    ),
    "django_celery_beat.periodictask disable_tasks": action("django_celery_beat_periodictask", "disable_tasks", task),
    "django_celery_beat.periodictask toggle_tasks": action("django_celery_beat_periodictask", "toggle_tasks", task),
    "django_celery_beat.periodictask run_tasks": action("django_celery_beat_periodictask", "run_tasks", task),
    "django_celery_beat.periodictask delete": change(
        "/admin/django_celery_beat/periodictask/{}/delete/", task, post="yes"
    ),
}
# Forms of many fields, whose own tests look at their audit entries; buttons that only show something.
ELSEWHERE = {
    # With a provider: tests/runs/connections/test_consent.py
    *(f"runs.connection {verb}" for verb in ("connect", "get_token", "test", "revoke")),
    "triggers.trigger add",
    "triggers.trigger edit",
    "triggers.schedule add",
    "triggers.schedule edit",
    "triggers.schedule backfill",
    "triggers.schedule why",
    "triggers.source add",
    "triggers.source edit",
    "triggers.source check_table",  # repairs what the settings say
    "triggers.event erase_event",  # tests/triggers/retention/test_erasure.py
    "triggers.trigger try_filter",
    "triggers.trigger message_filter",  # leads to its form
    "triggers.event shadow_event",  # in a process of its own: tests/triggers/dispatch/test_shadow.py
    "runs.run shadow_run",  # leads to the same
    "agents.promptagent try_now",  # in a process of its own: tests/triggers/prompt_agents/test_trial.py
    "agents.checklist file",  # with a file: tests/triggers/page_files/test_edit.py
    "agents.promptagent file",
    "agents.promptagent checklist",  # these lead to its checklist
    "agents.promptagent silence",
    "django_celery_beat.periodictask add",
    "django_celery_beat.periodictask change",
    *(
        f"django_celery_beat.{rule}schedule {verb}"
        for rule in ("crontab", "interval", "clocked", "solar")
        for verb in ("add", "change", "delete")
    ),
}
API: dict[str, Door] = {
    "events replay": call("events/{}/replay/", make=make_event),
    "events export": lambda client: Api().get("events/export/"),
    "events import_events": call("events/import/", {"specversion": "0"}),
    "replays create": call("replays/", {"rate": 1, "all": True}, make=matched_event),
    "replays pause": call("replays/{}/pause/", make=bulk_replay),
    "replays resume": call("replays/{}/resume/", make=paused_replay),
    "replays cancel": call("replays/{}/cancel/", make=bulk_replay),
    "runs requeue": call("runs/{}/requeue/", make=failed),
    "runs cancel": call("runs/{}/cancel/", make=make_run),
    "runs fork": call("runs/{}/fork/", {}, make=failed),
    "runs signal": call("runs/{}/signal/", {"name": "go"}, make=make_run),
    "runs resolve": call("runs/{}/resolve/", {"outcome": "fail"}, make=uncertain),
    "approvals decide": call("approvals/{}/decide/", {"decision": "deny"}, make=pending),
    "queues pause": call("queues/all/pause/"),
    "queues resume": call("queues/all/resume/", make=paused_queues),
    "queues limit": call("queues/default/limit/", {"max_running": 3}),
    "agents stop": call("agents/all/stop/"),
    "agents start": call("agents/all/start/", make=stopped),
    "checklists create": call("checklists/", {"agent": "ops", "items": [{"text": "disk"}]}),
    "checklists partial_update": send("patch", "checklists/{}/", {"items": []}, make=checklist),
    "sessions clear": call("sessions/session-1/clear/", make=session),
    "memory create": call("memory/", {"agent": "greeter", "key": "disk", "text": "full"}),
    "memory partial_update": send("patch", "memory/{}/", {"text": "fuller"}, make=note),
    "memory destroy": send("delete", "memory/{}/", None, make=note),
    "prompt-agents create": call("prompt-agents/", {"name": "triage", "instructions": "Look."}),
    "prompt-agents partial_update": send(
        "patch", "prompt-agents/triage/", {"instructions": "Look twice."}, make=prompt_agent
    ),
    "prompt-agents destroy": send("delete", "prompt-agents/triage/", None, make=prompt_agent),
    "prompt-agents restore": call("prompt-agents/triage/restore/", make=deleted_prompt_agent),
    "budgets create": call("budgets/", {"scope": "installation", "period": "day", "measure": "usd", "cap": "5"}),
    "budgets partial_update": send("patch", "budgets/{}/", {"cap": "6"}, make=budget),
    "budgets destroy": send("delete", "budgets/{}/", None, make=budget),
    "budgets allow": call("budgets/{}/allow/", {"amount": "1"}, make=budget),
    "deliveries resolve": call("deliveries/{}/resolve/", {"outcome": "arrived"}, make=unknown_delivery),
    "deliveries acknowledge": call("deliveries/{}/acknowledge/", make=unknown_delivery),
    "recipients create": call("recipients/", {"name": "ops", "address": "inbox:ada"}),
    "recipients partial_update": send("patch", "recipients/{}/", {"digest_hour": 8}, make=make_recipient),
    "recipients destroy": send("delete", "recipients/{}/", None, make=make_recipient),
    "recipients silence": call("recipients/{}/silence/", {"length": "1h"}, make=make_recipient),
    "subscriptions create": call("subscriptions/", {"slug": "shop", "url": "https://example.com/x", "types": ["*"]}),
    "subscriptions partial_update": send("patch", "subscriptions/shop/", {"types": ["*"]}, make=subscription),
    "subscriptions destroy": send("delete", "subscriptions/shop/", None, make=subscription),
    "subscriptions test": call("subscriptions/shop/test/", make=subscription),
    "sources partial_update": send(
        "patch", "sources/shop/", {"enabled": False}, make=lambda: make_source("shop", kind="bearer")
    ),
    "subscriptions rotate": call("subscriptions/shop/rotate/", make=subscription),
    "subscriptions redeliver": call("subscriptions/shop/redeliver/", {"since": "2026-01-01"}, make=subscription),
    "event-deliveries redeliver": call("event-deliveries/{}/redeliver/", make=failed_event_delivery),
    "incidents requeue": call("incidents/{}/requeue/", make=incident),
    "incidents close": call("incidents/{}/close/", make=incident),
    "incidents acknowledge": call("incidents/{}/acknowledge/", make=incident),
    "incidents mute": call("incidents/{}/mute/", {"until": "8h"}, incident),
    "incidents unmute": call("incidents/{}/unmute/", make=muted),
    "recipients test": call("recipients/{}/test/", make=make_recipient),
    "recipient-groups create": call("recipient-groups/", {"name": "office"}),
    "recipient-groups partial_update": send("patch", "recipient-groups/{}/", {"name": "desk"}, make=recipient_group),
    "recipient-groups destroy": send("delete", "recipient-groups/{}/", None, make=recipient_group),
    "triggers fire": call("triggers/greeter/fire/", make=make_trigger),
    "triggers pause": call("triggers/greeter/pause/", make=make_trigger),
    "triggers resume": call("triggers/greeter/resume/", make=make_paused_trigger),
    "triggers partial_update": send("patch", "triggers/greeter/", {"filter": "event.data.n > 1"}, make=make_trigger),
    "triggers redispatch": call("triggers/greeter/redispatch/", {"all": True}, make=with_error),
    "schedules create": call(
        "schedules/", {"name": "noon", "when": "every day at noon", "trigger": "greeter"}, make=make_trigger
    ),
    "schedules partial_update": send("patch", "schedules/{}/", {"when": "every day at noon"}, make=on_schedule),
    "schedules destroy": send("delete", "schedules/{}/", None, make=on_schedule),
    "schedules pause": call("schedules/{}/pause/", make=on_schedule),
    "schedules resume": call("schedules/{}/resume/", make=off_schedule),
    "schedules fire": call("schedules/{}/fire/", make=on_schedule),
    "schedules backfill": call(
        "schedules/{}/backfill/", {"start": "2025-03-03", "end": "2025-03-05"}, make=on_schedule
    ),
    "backfills cancel": call("backfills/{}/cancel/", make=backfill),
    "calendars create": call("calendars/", {"slug": "days", "days": "*-05-01"}),
    "calendars update": send("put", "calendars/days/", {"days": "*-05-02"}, make=calendar),
    "calendars destroy": send("delete", "calendars/days/", None, make=calendar),
    "reminders create": call(
        "reminders/", {"when": "in 5 minutes", "trigger": "greeter", "text": "tea"}, make=make_trigger
    ),
}
# The event is the record itself: it names the token's own source. These of the schedules only look.
ELSEWHERE_OF_THE_API = {
    "connections test",  # with a provider: tests/runs/connections/test_consent.py
    "connections revoke",
    "events create",
    "sources samples",  # the samples and their events are the record
    "replays preview",
    "runs transcript",
    "checklists revisions",
    "prompt-agents versions",
    "triggers try_rule",  # only looks
    "prompt-agents try_now",  # in a process of its own: tests/triggers/prompt_agents/test_trial.py
    "schedules preview",
    "schedules fires",
    "schedules why",
    "schedules skips",
}
COMMANDS: dict[str, Door] = {
    "emit": command("emit", "visitor.came"),
    "fire": command("fire", "greeter", make=make_trigger),
    "pause": command("pause", "--reason", "x"),
    "resume": command("resume", make=paused_queues),
    "stop": command("stop", "--all", "--wait", "0"),
    "start": command("start", "--all", make=stopped),
    "requeue": command("requeue", "{}", make=failed),
    "cancel": command("cancel", "{}", make=make_run),
    "fork": command("fork", "{}", make=failed),
    "signal": command("signal", "{}", "go", make=make_run),
    "resolve": command("resolve", "{}", "--outcome", "fail", make=uncertain),
    "approve": command("approve", "{}", "--deny", make=pending),
    "replay": command("replay", "{}", make=make_event),
    "export_events": command("export_events"),
    "import_events": command("import_events", "/dev/null"),
    "replays": command("replays", "pause", "{}", make=bulk_replay),
    "recipients": command("recipients", "silence", "ops", "1h", make=make_recipient),
    "schedules": command("schedules", "pause", "morning", make=on_schedule),
    "backfill": command("backfill", "morning", "--from", "2025-03-03", "--to", "2025-03-05", make=on_schedule),
    "remind": command("remind", "in 5 minutes", "reminder", "tea"),
    "prompt_agent": command("prompt_agent", "create", "triage", "--says", "every weekday at 8 look at failed runs"),
    "sync_agents": command("sync_agents"),
    "page": command("page", "edit", "ops", "/dev/null", make=checklist),
    "prepare": command("prepare"),
    "prune": command("prune", "--budget", "1s"),
    "unknown_tasks": command("unknown_tasks", "discard", make=unknown_task),
}
# These look, or run the installation; rotate_keys, erase, import_triggers, import_from, shadow and slot are tested beside what they do.
OTHER_COMMANDS = {
    "alive",
    "completion",
    "docs",
    "caller",
    "doctor",
    "verify",
    "runs",
    "export_triggers",
    "up",
    "migrate",
    "dispatcher",
    "sources",
    "rotate_keys",
    "query_role",
    "erase",
    "import_triggers",
    "import_from",
    "shadow",
    "slot",
    "init",
    "startagent",
    "uninstall",  # the log goes with the rest
}


def leaves_an_entry(door: Door, client: Client, by: str) -> None:
    before = AuditEntry.objects.count()
    door(client)
    entries = AuditEntry.objects.order_by("id")[before:]
    assert [entry for entry in entries if entry.by.startswith(by)], [str(entry) for entry in entries]


@pytest.mark.parametrize("door", ADMIN.values(), ids=ADMIN.keys())
def test_every_action_of_the_admin_is_in_the_log(admin: Client, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda *args, **options: None)
    leaves_an_entry(door, admin, by="admin:ada")


@pytest.mark.parametrize("door", API.values(), ids=API.keys())
def test_every_action_of_the_api_is_in_the_log(admin: Client, door: Door) -> None:
    leaves_an_entry(door, admin, by="token:ci")


@pytest.mark.parametrize("door", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_that_changes_something_is_in_the_log(admin: Client, door: Door) -> None:
    leaves_an_entry(door, admin, by="cli:")


def test_every_changing_page_of_the_admin_is_listed_above() -> None:
    assert admin_doors() == set(ADMIN) | ELSEWHERE


def test_no_door_of_the_api_is_missing_above() -> None:
    found = set()
    for prefix, resource, _ in router.registry:
        found |= {f"{prefix} {action.__name__}" for action in resource.get_extra_actions()}
        found |= {
            f"{prefix} {verb}" for verb in ("create", "update", "partial_update", "destroy") if hasattr(resource, verb)
        }

    assert found == set(API) | ELSEWHERE_OF_THE_API


def test_no_command_is_missing_above() -> None:
    ours = {name for name, app in get_commands().items() if app in ("config", "triggers", "runs", "agents")}

    assert ours == set(COMMANDS) | OTHER_COMMANDS


def test_changes_of_permissions_are_in_the_audit_log(admin: Client) -> None:
    bob = user()

    admin.post(f"/admin/auth/user/{bob.pk}/change/", {**BOB, "groups": [Group.objects.get(name="operator").pk]})

    entry = AuditEntry.objects.get(kind="user", action="change")
    assert entry.detail["roles"] == ["operator"]
    assert "Groups" in entry.detail["changed"]


def admin_doors() -> set[str]:
    """Whatever the admin's pages let a superuser change: list actions, buttons, and forms."""
    doors = set()
    for model, panel in django_admin.site._registry.items():
        label = model._meta.label_lower
        names = [*(panel.actions or ()), *(getattr(panel, "actions_detail", None) or ())]
        doors |= {f"{label} {name}" for name in names}
        if isinstance(panel, Panel):
            doors |= {f"{label} add"} if type(panel).new is not Panel.new else set()
        else:
            doors |= {f"{label} {verb}" for verb in ("add", "change", "delete")}
        doors |= {f"{label} {name.removesuffix('_view')}" for name in vars(type(panel)) if name in QUEUE_VIEWS}
    return doors


QUEUE_VIEWS = ("pause_view", "resume_view", "limit_view")
