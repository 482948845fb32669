"""What the console says is so."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.actions.approve import decide
from runs.models import Alarm, Queue, Run, Worker
from tests.support.console import list_of, make_failed_run, make_schedule, make_worker, page_of
from tests.support.journals import make_approval
from tests.support.old_rows import old_event
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import resume
from triggers.dispatch.rules import Rules
from triggers.models import Event, Schedule
from triggers.schedules.edit import create_schedule, pause_schedule
from triggers.schedules.rules.interval import Interval
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db
SOON = timedelta(minutes=5)


def shown(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def test_a_start_that_a_rate_puts_off_is_no_retry(admin: Client) -> None:
    held = make_run(status="queued", ready_at=None, due_at=timezone.now() + SOON, attempt=0)
    tried = make_run(status="queued", ready_at=None, due_at=timezone.now() + SOON, attempt=1)

    assert "Delayed by the rate limit of its trigger" in shown(admin, page_of("runs_run", held))
    assert "Retries" in shown(admin, page_of("runs_run", tried))
    assert "to be retried" not in shown(admin, "/admin/")


@pytest.mark.parametrize("name", ["default", Queue.EVERY])
def test_a_ready_run_of_a_paused_queue_waits_for_the_queue(admin: Client, name: str) -> None:
    make_worker()
    run = make_run(status="queued", ready_at=timezone.now(), agent="greeter")
    assert "waiting for a free worker" in shown(admin, list_of("runs_run"))

    Queue.objects.update_or_create(name=name, defaults={"paused_at": timezone.now(), "paused_by": "cli:ada"})

    for path in (list_of("runs_run"), page_of("runs_run", run)):
        assert "is paused: it starts after the queue is resumed" in shown(admin, path)


def test_only_workers_are_said_to_have_had_runs(admin: Client) -> None:
    make_worker("web", stopped_at=timezone.now(), stopped_reason="unseen")
    assert "other workers took over its runs" not in shown(admin, reverse("admin:runs_queue_processes"))

    Worker.objects.update(kind="worker")
    assert "other workers took over its runs" in shown(admin, reverse("admin:runs_queue_processes"))


def test_an_event_that_matched_nothing_is_not_said_to_have_started_runs(admin: Client) -> None:
    event = old_event(1)

    page = shown(admin, page_of("triggers_event", event))

    assert "None: no trigger matched it." in page
    assert "every trigger that matched it started a run" not in page


def test_an_event_that_ran_after_a_resume_is_not_said_to_have_started_no_run(admin: Client) -> None:
    trigger, event = make_paused_trigger(), make_event()
    dispatch(Rules())
    assert "the trigger is paused: broken" in shown(admin, page_of("triggers_trigger", trigger))

    resume(trigger, by="test")
    dispatch(Rules())

    run = Run.objects.get()
    for path in (page_of("triggers_trigger", trigger), page_of("triggers_event", event)):
        page = shown(admin, path)
        assert "At first: the trigger was paused: broken. It ran later." in page
        assert "the trigger is paused" not in page
        assert "started no run</" not in page
        assert page_of("runs_run", run) in page


def test_an_event_whose_trigger_was_deleted_before_dispatch_says_so(admin: Client) -> None:
    trigger = make_trigger()
    trigger_id, event = trigger.pk, Event.objects.get(pk=fire(trigger, by="ann"))
    trigger.delete()
    dispatch(Rules())

    page = shown(admin, page_of("triggers_event", event))

    assert "Started no run: its target trigger has been deleted." in page
    assert f"{trigger_id} (deleted)" in page
    assert "No trigger matched it" not in page
    assert "no trigger matched it" not in page


def test_the_page_of_a_run_shows_decisions_on_its_approvals(admin: Client) -> None:
    run = make_run(status="waiting")
    approval = make_approval(run, status="open")
    assert "No entries." in shown(admin, page_of("runs_run", run))

    decide(approval.pk, decision="approve", by="admin:grace")

    assert "admin:grace" in shown(admin, page_of("runs_run", run)).split("Audit log")[1]


def test_the_tile_of_failed_runs_leads_to_those_it_counts(admin: Client) -> None:
    new, old = make_failed_run(make_trigger("new")), make_failed_run(make_trigger("old"))
    Run.objects.filter(pk=new.pk).update(finished_at=timezone.now())
    Run.objects.filter(pk=old.pk).update(finished_at=timezone.now() - timedelta(days=2))

    tile = next(one for one in admin.get("/admin/").context["tiles"] if one.label == "Failed in 24 h")
    listed = admin.get(tile.url).context["cl"].result_list

    assert (tile.count, [run.pk for run in listed]) == (1, [new.pk])


def test_paused_schedules_have_a_tile_that_leads_to_them(admin: Client) -> None:
    paused, spent = make_schedule("paused"), make_schedule("spent")
    make_schedule("active")
    pause_schedule(paused, by="test")
    pause_schedule(spent, by="test")
    Schedule.objects.filter(pk=spent.pk).update(rest="done")

    tile = next(one for one in admin.get("/admin/").context["tiles"] if one.label == "Paused schedules")
    listed = admin.get(tile.url).context["cl"].result_list

    assert (tile.count, tile.level, [one.pk for one in listed]) == (1, "warning", [paused.pk])


def test_the_latest_failures_are_in_the_order_in_which_they_failed(admin: Client) -> None:
    runs = [make_failed_run(make_trigger(f"t{number}")) for number in range(3)]
    for run, minutes in zip(runs, (1, 3, 2), strict=True):
        Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() - timedelta(minutes=minutes))

    table = next(one for one in admin.get("/admin/").context["sections"] if one.title == "Latest failed runs")

    assert [str(runs[place].pk) in str(row[0]) for place, row in zip((0, 2, 1), table.rows, strict=True)] == [True] * 3


def test_a_count_that_is_capped_says_so(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.parts.panel.COUNTED", 2)
    for _ in range(3):
        make_run()

    page = shown(admin, list_of("runs_run"))

    assert "2+ results" in page
    assert "Show all" not in page


@pytest.mark.parametrize(
    ("status", "attempt", "told"),
    [("queued", 2, ["2 of 4"]), ("queued", 0, []), ("failed", 0, []), ("failed", 2, [])],
)
def test_the_attempt_stands_on_the_page_of_a_run_while_one_counts(
    admin: Client, status: str, attempt: int, told: list[str]
) -> None:
    """The progress of a durable run begins to count its attempts again: none counts then, whatever it was claimed for."""
    run = make_run(status=status, attempt=attempt, policy={"retries": 3})

    page = shown(admin, page_of("runs_run", run))

    assert re.findall(r"<dt>Attempt</dt>\s*<dd>(.*?)</dd>", page) == told


def test_the_table_of_what_a_run_was_claimed_for_names_claims(admin: Client) -> None:
    page = shown(admin, page_of("runs_run", make_failed_run(make_trigger())))

    titles = re.findall(r"<h2[^>]*>\s*(.*?)\s*</h2>", page)
    assert "Claims" in titles
    assert "Attempts" not in titles


def test_a_time_without_a_zone_is_read_in_the_zone_the_console_shows(admin: Client) -> None:
    schedule = create_schedule(name="pulse", rule=Interval.parse("1h"), trigger=make_trigger("pulse"), by="test")
    admin.cookies["zone"] = "Europe/Vienna"

    search = shown(admin, reverse("admin:triggers_schedule_why_search") + "?q=pulse&at=2026-01-02T05:22")
    answer = shown(admin, reverse("admin:triggers_schedule_why", args=[schedule.pk]) + "?at=2026-01-02T05:22")

    assert "Local time in Europe/Vienna" in search
    assert "2026-01-02T04%3A22%3A00%2B00%3A00" in search
    assert "Local time in Europe/Vienna" in answer
    assert "05:22 (Europe/Vienna)" in answer


def test_the_text_of_an_alarm_says_of_when_it_is(admin: Client) -> None:
    alarm = Alarm.objects.create(name="late", severity="bad", text="The last 4 runs failed.", remedy="Look.")

    assert "Text from the beginning of the alarm" in shown(admin, page_of("runs_alarm", alarm))
