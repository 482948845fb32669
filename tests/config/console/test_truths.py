"""Statements of the console are true."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from django_celery_results.models import TaskResult

from agents import registry
from agents.models import Checklist
from config.health.alarms import update_alarms
from runs.actions.approve import decide
from runs.actions.checklists import ItemEdit, create_checklist
from runs.actions.incidents import close_incident
from runs.models import Alarm, Incident, Notification, Queue, Run, Worker
from runs.models.audit import record_about
from tests.support.console import list_of, make_failed_run, make_schedule, make_worker, page_of
from tests.support.incidents import fail, pass_by, succeed
from tests.support.journals import make_approval
from tests.support.old_rows import old_event
from tests.support.runs import make_run
from tests.support.switches import later, make_switch, work
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.api.tokens import create_token
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import resume
from triggers.dispatch.rules import Rules
from triggers.models import Event, Reading, Schedule, Source, Trigger
from triggers.schedules.edit import create_schedule, pause_schedule
from triggers.schedules.rules.interval import Interval
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db
SOON = timedelta(minutes=5)


def page_text(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def test_a_start_that_a_rate_puts_off_is_no_retry(admin: Client) -> None:
    held = make_run(status="queued", ready_at=None, due_at=timezone.now() + SOON, attempt=0)
    tried = make_run(status="queued", ready_at=None, due_at=timezone.now() + SOON, attempt=1)

    assert "Delayed by the rate limit of its trigger" in page_text(admin, page_of("runs_run", held))
    assert "Retries" in page_text(admin, page_of("runs_run", tried))
    assert "to be retried" not in page_text(admin, "/admin/")


@pytest.mark.parametrize("name", ["default", Queue.EVERY])
def test_a_ready_run_of_a_paused_queue_waits_for_the_queue(admin: Client, name: str) -> None:
    make_worker()
    run = make_run(status="queued", ready_at=timezone.now(), agent="greeter")
    assert "waiting for a free worker" in page_text(admin, list_of("runs_run"))

    Queue.objects.update_or_create(name=name, defaults={"paused_at": timezone.now(), "paused_by": "cli:ada"})

    for path in (list_of("runs_run"), page_of("runs_run", run)):
        assert "is paused: it starts after the queue is resumed" in page_text(admin, path)


def test_only_workers_are_shown_to_have_had_runs(admin: Client) -> None:
    make_worker("web", stopped_at=timezone.now(), stopped_reason="unseen")
    assert "other workers took over its runs" not in page_text(admin, reverse("admin:runs_queue_processes"))

    Worker.objects.update(kind="worker")
    assert "other workers took over its runs" in page_text(admin, reverse("admin:runs_queue_processes"))


def test_an_event_that_matched_nothing_is_not_shown_to_have_started_runs(admin: Client) -> None:
    event = old_event(1)

    page = page_text(admin, page_of("triggers_event", event))

    assert "None: no trigger matched it." in page
    assert "every trigger that matched it started a run" not in page


def test_an_event_that_ran_after_a_resume_is_not_shown_to_have_started_no_run(admin: Client) -> None:
    trigger, event = make_paused_trigger(), make_event()
    dispatch(Rules())
    assert "the trigger is paused: broken" in page_text(admin, page_of("triggers_trigger", trigger))

    resume(trigger, by="test")
    dispatch(Rules())

    run = Run.objects.get()
    for path in (page_of("triggers_trigger", trigger), page_of("triggers_event", event)):
        page = page_text(admin, path)
        assert "At first: the trigger was paused: broken. It ran later." in page
        assert "the trigger is paused" not in page
        assert "started no run</" not in page
        assert page_of("runs_run", run) in page


def test_an_event_whose_trigger_was_deleted_before_dispatch_names_the_deleted_trigger(admin: Client) -> None:
    trigger = make_trigger()
    trigger_id, event = trigger.pk, Event.objects.get(pk=fire(trigger, by="ann"))
    trigger.delete()
    dispatch(Rules())

    page = page_text(admin, page_of("triggers_event", event))

    assert "Started no run: its target trigger has been deleted." in page
    assert f"{trigger_id} (deleted)" in page
    assert "No trigger matched it" not in page
    assert "no trigger matched it" not in page


def test_the_page_of_a_run_shows_decisions_on_its_approvals(admin: Client) -> None:
    run = make_run(status="waiting")
    approval = make_approval(run, status="open")
    assert "No entries." in page_text(admin, page_of("runs_run", run))

    decide(approval.pk, decision="approve", by="admin:grace")

    assert "admin:grace" in page_text(admin, page_of("runs_run", run)).split("Audit log")[1]


def test_paused_schedules_are_counted_on_the_first_page_which_leads_to_them(admin: Client) -> None:
    paused, spent = make_schedule("paused"), make_schedule("spent")
    make_schedule("active")
    pause_schedule(paused, by="test")
    pause_schedule(spent, by="test")
    Schedule.objects.filter(pk=spent.pk).update(rest="done")

    shown = list_of("triggers_schedule") + "?state=paused"

    assert f'href="{shown}">1 paused schedules' in page_text(admin, "/admin/")
    assert [one.pk for one in admin.get(shown).context["cl"].result_list] == [paused.pk]


def test_a_capped_count_has_a_plus_sign(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.parts.panel.COUNTED", 2)
    for _ in range(3):
        make_run()

    page = page_text(admin, list_of("runs_run"))

    assert "2+ results" in page
    assert "Show all" not in page


@pytest.mark.parametrize(
    ("status", "attempt", "words"),
    [("queued", 2, ["2 of 4"]), ("queued", 0, []), ("failed", 0, []), ("failed", 2, [])],
)
def test_the_attempt_stands_on_the_page_of_a_run_while_one_counts(
    admin: Client, status: str, attempt: int, words: list[str]
) -> None:
    """The progress of a durable run begins to count its attempts again: none counts then, whatever it was claimed for."""
    run = make_run(status=status, attempt=attempt, policy={"retries": 3})

    page = page_text(admin, page_of("runs_run", run))

    assert re.findall(r"<dt>Attempt</dt>\s*<dd>(.*?)</dd>", page) == words


def test_the_table_of_what_a_run_was_claimed_for_names_claims(admin: Client) -> None:
    page = page_text(admin, page_of("runs_run", make_failed_run(make_trigger())))

    titles = re.findall(r"<h2[^>]*>\s*(.*?)\s*</h2>", page)
    assert "Claims" in titles
    assert "Attempts" not in titles


def test_a_time_without_a_zone_is_read_in_the_zone_the_console_shows(admin: Client) -> None:
    schedule = create_schedule(name="pulse", rule=Interval.parse("1h"), trigger=make_trigger("pulse"), by="test")
    admin.cookies["zone"] = "Europe/Vienna"

    search = page_text(admin, reverse("admin:triggers_schedule_why_search") + "?q=pulse&at=2026-01-02T05:22")
    answer = page_text(admin, reverse("admin:triggers_schedule_why", args=[schedule.pk]) + "?at=2026-01-02T05:22")

    assert "Local time in Europe/Vienna" in search
    assert "2026-01-02T04%3A22%3A00%2B00%3A00" in search
    assert "Local time in Europe/Vienna" in answer
    assert "05:22 (Europe/Vienna)" in answer


def test_the_text_of_an_alarm_has_its_time(admin: Client) -> None:
    alarm = Alarm.objects.create(name="late", severity="bad", text="The last 4 runs failed.", remedy="Look.")

    assert "Text from the beginning of the alarm" in page_text(admin, page_of("runs_alarm", alarm))


# What fails, and how often


def ended(*statuses: str, trigger: str = "greeter") -> None:
    for status in statuses:
        make_run(status=status, trigger=trigger, agent="greeter", finished_at=timezone.now())


def test_a_trigger_that_fails_now_and_then_shows_its_rate_and_no_success(admin: Client) -> None:
    make_trigger()
    fail(2)
    succeed()
    pass_by(timedelta(minutes=5))
    fail()
    ended("failed", "succeeded", "failed", "succeeded", "succeeded")

    page = page_text(admin, page_of("runs_incident", Incident.objects.get()))
    assert "Trigger greeter fails now and then: 2 of its last 5 runs failed." in page
    assert "succeeded again" not in page
    assert "fails now and then" in page_text(admin, list_of("runs_incident"))
    home = page_text(admin, "/admin/")
    assert "fails now and then" in home and "2 of 5" in home


def test_an_incident_with_a_failure_after_its_end_is_not_green_even_if_that_is_long_ago(admin: Client) -> None:
    make_trigger()
    fail(2)
    succeed()
    pass_by(timedelta(minutes=5))
    fail()
    ended("succeeded", "succeeded")

    page = page_text(admin, page_of("runs_incident", Incident.objects.get()))

    assert "Trigger greeter failed again after its end, but none of its last 2 runs failed." in page
    assert "succeeded again" not in page


def test_a_trigger_that_never_fails_twice_in_a_row_is_on_the_first_page_with_its_rate(admin: Client) -> None:
    make_trigger()
    ended("succeeded", "failed", "succeeded", "succeeded", "failed", "succeeded")

    home = page_text(admin, "/admin/")

    assert "Trigger greeter" in home and "fails now and then" in home and "2 of 6" in home


def test_a_failure_with_another_cause_after_an_incident_is_on_the_first_page(admin: Client) -> None:
    make_trigger()
    fail(2)
    succeed()
    ended("failed", "succeeded")

    assert "1 of 2" in page_text(admin, "/admin/")


def test_an_agent_that_others_spawn_has_a_rate(admin: Client) -> None:
    name = registry.all_agents()[0].name
    for status in ("failed", "succeeded", "succeeded"):
        make_run(status=status, trigger="", agent=name, finished_at=timezone.now())
    thing = {"kind": Incident.Kind.AGENT, "subject": name, "name": name, "agent": name}
    incident = Incident.objects.create(
        **thing,
        cause="x",
        count=2,
        in_a_row=2,
        first_at=timezone.now(),
        last_at=timezone.now(),
        opened_at=timezone.now(),
    )

    for path in ("/admin/", "/admin/runs/agentstop/agents/"):
        assert "1 of 3" in page_text(admin, path)
    assert "1 of its last 3 runs failed" in page_text(admin, page_of("runs_incident", incident))


def test_an_incident_that_a_person_closed_shows_what_has_failed_since(admin: Client) -> None:
    make_trigger()
    fail(2)
    incident = Incident.objects.get()
    close_incident(incident.pk, by="ada")
    assert "Closed by ada after" in page_text(admin, page_of("runs_incident", incident))
    assert "failed since" not in page_text(admin, "/admin/")

    pass_by(timedelta(minutes=5))
    fail()
    ended("failed", "succeeded")

    page = page_text(admin, page_of("runs_incident", incident))
    assert "Closed by ada" in page and "Trigger greeter has failed since: 1 of its last 2 runs failed" in page
    assert "console-notice console-good" not in page
    assert "failed since" in page_text(admin, list_of("runs_incident"))
    home = page_text(admin, "/admin/")
    assert "failed since" in home


def test_an_incident_without_a_failure_since_it_was_closed_is_over(admin: Client) -> None:
    make_trigger()
    fail(2)
    succeed()

    assert "Trigger greeter succeeded again" in page_text(admin, page_of("runs_incident", Incident.objects.get()))
    assert "fails now and then" not in page_text(admin, "/admin/").replace("nothing fails now and then", "")


def test_an_agent_leads_to_its_runs_and_shows_that_its_trigger_is_paused(admin: Client) -> None:
    name = registry.all_agents()[0].name
    make_paused_trigger("from-elsewhere", agent=name)
    run = make_run(status="failed", trigger="from-elsewhere", agent=name, finished_at=timezone.now())

    page = page_text(admin, "/admin/runs/agentstop/agents/")

    assert "from-elsewhere</a>" in page and "console-dot-bad" in page and "1 of 1" in page
    [address] = {found for found in re.findall(r'href="([^"]*runs/run/[^"]*)"', page) if name in found}
    assert str(run.pk) in page_text(admin, unescape(address))


# Switches


def test_a_dead_mans_switch_that_is_down_is_an_alarm_for_people_although_no_agent_listens(admin: Client) -> None:
    source = make_switch("backup", kind="ping", every="1h", grace="30m")
    work()
    later(timedelta(hours=2))
    work()

    update_alarms()

    [alarm] = Alarm.objects.filter(name="switch-down:backup", ended_at=None)
    assert "it did not come in time" in alarm.text
    assert Notification.objects.filter(text__startswith="Dead man's switch backup", urgency="high").exists()
    assert "Dead man&#x27;s switch backup has been down" in page_text(admin, "/admin/")
    assert re.search(r"backup.*?\bdown\b", page_text(admin, list_of("triggers_source")), re.DOTALL)

    Source.objects.filter(pk=source.pk).update(enabled=False)
    update_alarms()
    assert not Alarm.objects.filter(name="switch-down:backup", ended_at=None).exists()


def test_an_absence_that_no_trigger_listens_to_is_an_alarm_for_people(admin: Client) -> None:
    make_switch("orders", within="1h")
    work()
    later(timedelta(hours=2))
    work()

    update_alarms()

    assert Notification.objects.filter(text__startswith="Switch orders has been down", urgency="high").exists()
    assert "No trigger listens to it." in page_text(admin, "/admin/")


@pytest.mark.parametrize(
    ("types", "source"),
    [(["absence.opened"], "orders"), (["absence.*"], ""), (["*"], "orders"), (["absence.opene[d]"], "")],
)
def test_an_absence_that_a_trigger_listens_to_is_left_to_its_agent(types: list[str], source: str) -> None:
    make_switch("orders", within="1h")
    make_trigger("listener", types=types, source=source)
    work()
    later(timedelta(hours=2))
    work()

    update_alarms()
    assert not Alarm.objects.filter(name="switch-down:orders").exists()

    Trigger.objects.update(enabled=False)
    update_alarms()
    assert Alarm.objects.filter(name="switch-down:orders", ended_at=None).exists()


def test_the_form_of_a_dead_mans_switch_names_the_address_that_it_gets(admin: Client) -> None:
    page = page_text(admin, "/admin/triggers/source/add/?choice=ping")

    assert "/ping/NAME/TOKEN" in page and "/hooks/" not in page


# Lists


def test_an_entry_of_the_audit_log_about_several_objects_leads_to_no_page(admin: Client) -> None:
    record_about("cli:ada", "export", "event", "*")

    page = page_text(admin, list_of("runs_auditentry"))

    assert "event: several, or all" in page and "/*/" not in page


def test_an_empty_list_offers_nothing_that_it_does_not_have(admin: Client) -> None:
    nothing, none_found = (page_text(admin, list_of("runs_run") + query) for query in ("", "?agent=greeter"))

    assert "There is none yet." in nothing and "Reset filters" not in nothing
    assert "Nothing matches." in none_found and "Reset filters" in none_found
    assert "new item" not in nothing + none_found


def test_a_list_is_titled_by_what_it_lists(admin: Client) -> None:
    page = page_text(admin, list_of("runs_run"))

    assert re.search(r"<title>\s*Runs\b", page) and "Select run to view" not in page


def way_to(client: Client, url: str) -> list[str]:
    """What stands above a page, in its order."""
    return re.findall(r'class="console-here"[^>]*>([^<]*)<', page_text(client, url))


def test_the_way_to_a_page_has_its_list_and_its_name_as_it_is_written(admin: Client) -> None:
    trigger, token = make_trigger("gh-repo"), create_token("deploy-bot", ["runs.view_run"], by="test")[0]

    assert way_to(admin, page_of("triggers_trigger", trigger)) == ["Triggers", "gh-repo"]
    assert way_to(admin, page_of("triggers_apitoken", token)) == ["Access", "deploy-bot"]
    assert way_to(admin, list_of("runs_auditentry")) == ["Audit log"]
    assert re.search(r"<title>[^<]*API token", page_text(admin, page_of("triggers_apitoken", token)))


def test_periodic_tasks_have_their_times_in_words_and_by_the_clock_of_the_page(admin: Client) -> None:
    hours, _ = CrontabSchedule.objects.get_or_create(minute="0", hour="4", timezone="UTC")
    PeriodicTask.objects.create(name="tidy", task="depot.tidy", crontab=hours, last_run_at=timezone.now())

    page = page_text(admin, list_of("django_celery_beat_periodictask"))

    assert "(m/h/dM/MY/d)" not in page and "04:00" in page
    assert re.search(r"field-last_run[^>]*><time datetime", page)


def test_the_result_of_a_task_is_titled_by_its_name(admin: Client) -> None:
    result = TaskResult.objects.create(task_id="98af", task_name="depot.tidy", status="SUCCESS")

    page = page_text(admin, page_of("django_celery_results_taskresult", result))

    assert re.search(r"<title>[^<]*depot.tidy, SUCCESS", page)


def test_an_address_without_a_page_leads_on(client: Client) -> None:
    answer = client.get("/nothing/of/this/name")

    assert answer.status_code == 404
    assert f'href="{reverse("admin:index")}"' in answer.content.decode()


# Numbers and times


def test_a_page_with_older_events_behind_it_shows_no_total(admin: Client) -> None:
    for number in range(51):
        make_event(type=f"visit.{number}")

    page = page_text(admin, list_of("triggers_event"))
    assert "50 on this page" in page and "50 results" not in page

    [older] = re.findall(r'href="(\?before=\d+)">Older<', page)
    last = page_text(admin, list_of("triggers_event") + older)
    assert "1 on this page" in last and "1 result" not in last


def test_a_run_that_has_not_ended_has_no_time_until_its_end(admin: Client) -> None:
    run = make_run(status="waiting", started_at=timezone.now() - SOON)
    over = make_run(status="succeeded", started_at=timezone.now() - SOON, finished_at=timezone.now())

    assert "Time from first start to end" not in page_text(admin, page_of("runs_run", run))
    assert "Time from first start to end" in page_text(admin, page_of("runs_run", over))


def test_the_page_of_a_new_source_does_not_ask_for_a_process_that_is_alive(admin: Client) -> None:
    source = Source.objects.create(slug="news", kind="feed", settings={"url": "https://example.org/feed"})
    assert "no sources process is alive" in page_text(admin, page_of("triggers_source", source))

    make_worker("sources")

    page = page_text(admin, page_of("triggers_source", source))
    assert "takes it over within seconds" in page and "manage.py sources" not in page


def test_a_source_that_no_message_has_come_from_is_not_shown_to_have_answered(admin: Client) -> None:
    owner = make_worker("sources", seen_at=timezone.now())
    source = Source.objects.create(slug="samples", kind="pushed", settings={})
    Reading.objects.create(source=source, owner_id=owner.pk)
    page = page_text(admin, page_of("triggers_source", source))
    assert "no message has come yet" in page and "its last answer" not in page

    Reading.objects.update(read_at=timezone.now())
    assert "its last answer was no error" in page_text(admin, page_of("triggers_source", source))


def test_the_header_names_the_zone_of_the_times(admin: Client) -> None:
    assert re.search(r"Times in <span[^>]*>UTC<", page_text(admin, "/admin/"))

    admin.cookies["zone"] = "Europe/Vienna"

    assert re.search(r"Times in <span[^>]*>Europe/Vienna<", page_text(admin, list_of("runs_run")))


def test_the_end_of_a_silence_is_shown_by_the_clock_of_the_page_and_items_are_silenced_with_their_checklist(
    admin: Client,
) -> None:
    checklist = create_checklist("greeter", items=[ItemEdit(text="backups")], by="test")
    Checklist.objects.filter(pk=checklist.pk).update(silenced_until=timezone.now() + timedelta(hours=1))

    page = page_text(admin, page_of("agents_checklist", checklist))

    assert re.search(r"Silenced until <time[^>]*>", page) and "silenced with its checklist" in page
