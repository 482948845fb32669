"""Pages name one thing in the singular, no name twice, and values in the words of the API and the documentation."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from runs.actions.stop_agents import stop_agents
from runs.models import Budget
from tests.support.console import (
    list_of,
    make_failed_run,
    make_incident,
    make_schedule,
    make_session,
    make_source,
    make_worker,
    page_of,
)
from tests.support.journals import make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_heartbeat, make_trigger
from triggers.api.tokens import create_token
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.firing import due_schedules


def words(client: Client, path: str) -> str:
    """What a person reads of a page: its HTML without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get(path).content.decode()))


def test_a_stop_of_all_agents_speaks_of_all_runs(admin: Client) -> None:
    form = words(admin, "/admin/runs/agentstop/all/stop/")
    stop_agents("*", reason="fire drill", by="test")

    assert "No run starts, and runs that are running end within seconds" in form
    assert "No run starts." in words(admin, list_of("runs_run"))
    for text in (form, words(admin, "/admin/")):
        assert "No run of it" not in text


def test_what_happens_is_read_before_the_button_is_pressed(admin: Client) -> None:
    for path, said, button in (
        ("/admin/runs/agentstop/all/stop/", "Events are still accepted", " Stop Cancel"),
        ("/admin/runs/queue/all/pause/", "Running runs finish.", " Pause Cancel"),
        ("/admin/runs/queue/all/resume/", "Every queue starts its ready runs", " Resume Cancel"),
    ):
        text = words(admin, path)
        assert -1 < text.find(said) < text.find(button)


@pytest.mark.parametrize("path", ["/admin/inbox/", "page"])
def test_an_incident_of_one_run_is_of_one_failed_run(admin: Client, path: str) -> None:
    incident = make_incident("greeter", make_failed_run(make_trigger("greeter")))

    shown = words(admin, page_of("runs_incident", incident) if path == "page" else path)

    assert "1 failed run since the last success" in shown


def test_one_of_something_is_no_plural(admin: Client) -> None:
    make_worker()
    create_token("reader", ["runs.view_run"], by="test")

    assert "1 agent " in words(admin, list_of("runs_worker"))
    assert "1 permission " in words(admin, list_of("triggers_apitoken"))
    assert "1 turn. No run holds it." in words(admin, page_of("agents_session", make_session(1)))


def test_the_overlap_policy_is_named_as_in_the_api(admin: Client) -> None:
    make_trigger("checker", overlap="queue_one")

    shown = words(admin, list_of("triggers_trigger"))

    assert "queue_one" in shown
    assert "Queue One" not in shown


def test_a_heartbeat_with_the_name_of_its_agent_is_named_once(admin: Client) -> None:
    make_heartbeat("pulse", agent="pulse")
    due_schedules.settle()

    assert words(admin, "/admin/").partition("Coming up")[2].count(" pulse ") == 1


def test_the_calendar_names_the_agent_of_a_run_that_waits(admin: Client) -> None:
    make_wait(make_run(agent="refunder", status="waiting"), key="sleep#1", due_at=timezone.now() + timedelta(hours=1))

    assert "refunder: sleep#1" in words(admin, "/admin/coming/?view=month")


def test_a_backfill_is_titled_with_the_times_of_its_schedule(admin: Client) -> None:
    now = timezone.now()
    backfill = start_backfill(make_schedule("report"), start=now - timedelta(days=8), end=now, by="test")

    page = admin.get(page_of("triggers_backfill", backfill))

    assert re.fullmatch(r"report: \w{3} \d+ \w{3} \d{4}, .* \(Europe/Vienna\)", page.context["title"])


def test_a_budget_names_its_period_once(admin: Client) -> None:
    budget = Budget.objects.create(scope="agent", name="writer", period="day", measure="usd", cap=5)

    assert "agent writer, US dollars per day: $5.00." in words(admin, page_of("runs_budget", budget))


def test_a_page_links_the_agent_and_the_source_that_it_names(admin: Client) -> None:
    source = make_source("shop")
    trigger = make_trigger("greeter", source="shop")
    run = make_failed_run(trigger)

    of_trigger = admin.get(page_of("triggers_trigger", trigger)).content.decode()

    agent = f'href="/admin/runs/agentstop/{run.agent}/change/"'
    assert page_of("triggers_source", source) in of_trigger
    assert f'href="/admin/runs/agentstop/{trigger.agent}/change/"' in of_trigger
    assert agent in admin.get(page_of("runs_run", run)).content.decode()


def test_a_run_without_a_result_has_one_sentence_about_it(admin: Client) -> None:
    shown = words(admin, page_of("runs_run", make_run(status="waiting")))

    assert "Result None yet." in shown
    assert "None yet. none" not in shown


def test_the_zone_of_times_is_seen_once() -> None:
    """On a wide page in the header, on a phone in the sidebar."""
    style = Path("config/static/console/console.css").read_text()

    assert "@media (min-width: 761px) { #nav-sidebar-inner div:has(> [data-zone-shown]) { display: none; } }" in style
    assert re.search(r"@media \(max-width: 760px\) \{[^@]*\.header-zone, [^{]*\{ display: none; \}", style)
