"""The pages of agents: their list, the page of each, and stopping and starting them. Every page shows what is stopped, as the API does."""

import inspect
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import html, timezone

from agents import registry
from config.console.agents.figures import PastRun, over_time, versions_of
from runs.actions.memory import create_note
from runs.models import AgentStop, Incident, Run
from tests.config.console.conftest import LogIn
from tests.support.api import Api
from tests.support.console import make_incident, make_worker, page_of
from tests.support.prompt_agents import make_prompt_agent
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from triggers.models import Gate

PAGE = "/admin/runs/agentstop/agents/"
NAME = registry.all_agents()[0].name


def test_an_agent_is_stopped_and_started_on_its_page(admin: Client) -> None:
    assert f"/admin/runs/agentstop/{NAME}/stop/" in admin.get(PAGE).content.decode()

    answer = admin.post(f"/admin/runs/agentstop/{NAME}/stop/", {"reason": "odd answers"}, follow=True)

    assert "No run was running." in answer.content.decode()
    stop = AgentStop.objects.get()
    assert (stop.agent, stop.reason) == (NAME, "odd answers")
    for path in (PAGE, "/admin/"):
        assert f"Agent {NAME} is stopped" in admin.get(path).content.decode()
    admin.post(f"/admin/runs/agentstop/{NAME}/start/", follow=True)
    assert not AgentStop.objects.exists()


def test_the_page_names_the_runs_that_a_stop_ends(admin: Client) -> None:
    run = make_run(agent=NAME, status="running", worker=make_worker(), pid=1, claimed_at=Now(), deadline_at=Now())

    answer = admin.post("/admin/runs/agentstop/all/stop/", follow=True).content.decode()

    assert "Stopped, with 1 running run: " in answer
    assert f'href="{page_of("runs_run", run)}"' in answer


def test_the_answers_of_gates_are_shown_where_their_agents_and_triggers_are(admin: Client) -> None:
    gate = make_gate()

    shown = admin.get(f"/admin/runs/agentstop/{NAME}/change/").content.decode()
    trigger = admin.get(page_of("triggers_trigger", gate.trigger)).content.decode()

    assert "1,200 quiet, 3 fired, 0 failed" in shown
    assert "1,200 quiet, 3 fired, 0 failed" in trigger
    assert "quiet, 7 times in a row: nothing new" in trigger


def test_the_api_shows_the_counts_and_the_last_answer_of_a_gate(db: None) -> None:
    make_gate()
    make_trigger("without")

    api = Api()
    gate = api.get("triggers/greeter/").body["gate"]

    assert (gate["quiet"], gate["fired"], gate["last_answer"], gate["in_a_row"]) == (1200, 3, "quiet", 7)
    assert api.get("triggers/without/").body["gate"] is None


def make_gate() -> Gate:
    return Gate.objects.create(
        trigger=make_trigger(agent=NAME), agent=NAME, quiet=1200, fired=3, in_a_row=7, last_answer="quiet",
        last_reason="nothing new", last_at=timezone.now(),
    )  # fmt: skip


def test_one_button_stops_all_agents(admin: Client) -> None:
    admin.post("/admin/runs/agentstop/all/stop/", follow=True)

    assert "stopped with all agents" in admin.get(PAGE).content.decode()
    assert AgentStop.objects.get().agent == "*"


def test_the_api_stops_and_starts(db: None) -> None:
    api = Api()
    stopped: Any = api.post(f"agents/{NAME}/stop/", {"reason": "x"})
    assert (stopped.status, stopped.body["stopped_runs"], stopped.body["stopped_reason"]) == (200, [], "x")
    assert api.post(f"agents/{NAME}/stop/", {}).status == 409
    assert [one["name"] for one in api.get("agents/").body["results"] if one["stopped_at"]] == [NAME]
    assert api.post(f"agents/{NAME}/start/").body["stopped_at"] is None
    assert api.get("agents/nowhere/").status == 404
    assert api.get("agents/a%00b/").status == 404


def url_of(name: str = NAME) -> str:
    return f"/admin/runs/agentstop/{name}/change/"


def text_of(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def make_past(*statuses: str, seconds: int = 2, **fields: Any) -> list[Run]:
    """Runs of the agent's trigger, the oldest first, each with its duration."""
    now = timezone.now()
    began = {"started_at": now - timedelta(seconds=seconds), "finished_at": now, **fields}
    return [make_run(status=status, agent=NAME, trigger="its-trigger", **began) for status in statuses]


def test_the_page_of_an_agent_shows_what_it_is_and_what_its_runs_came_to(admin: Client) -> None:
    trigger = make_trigger("its-trigger", agent=NAME)
    failed, *_ = make_past("failed", "succeeded", "succeeded", version="v1")
    page = text_of(admin, url_of())

    assert html.escape(inspect.getdoc(registry.get(NAME).body) or "?") in page
    assert "1 of 3 (33%)" in page and "1 of 3 runs failed" in page
    assert 'aria-label="The last 3 runs, the oldest first: 2 succeeded, 1 failed"' in page
    for address in (
        page_of("triggers_trigger", trigger),
        page_of("runs_run", failed),
        f"/admin/runs/agentstop/{NAME}/stop/",
        reverse("admin:triggers_trigger_fire_now", args=[trigger.pk]),
        reverse("admin:triggers_trigger_pause", args=[trigger.pk]),
        reverse("admin:runs_run_shadow_run", args=[failed.pk]),
    ):
        assert f'href="{address}"' in page


def test_the_pages_are_those_of_agents_and_not_of_stops(admin: Client) -> None:
    for path in (PAGE, url_of(), f"/admin/runs/agentstop/{NAME}/stop/"):
        assert "agent stop" not in text_of(admin, path).lower()


def test_the_list_leads_to_the_page_of_each_agent_in_code_or_not(admin: Client) -> None:
    made = make_prompt_agent("reader")
    page = text_of(admin, PAGE)

    assert f'href="{url_of()}"' in page
    assert f'href="{url_of("reader")}"' in page and "a prompt agent" in page
    assert f'href="{page_of("agents_promptagent", made)}"' in text_of(admin, url_of("reader"))


def test_the_page_shows_what_operators_changed(admin: Client) -> None:
    make_trigger("its-trigger", agent=NAME, key="event.id", declared={"key": "event.subject"}, overrides=["key"])

    page = text_of(admin, url_of())

    assert "Changed by operators" in page and "event.subject" in page and "event.id" in page


def test_each_part_of_the_page_is_for_those_who_may_see_its_rows(log_in: LogIn) -> None:
    make_trigger("its-trigger", agent=NAME)
    make_past("failed", error="secret of a customer")
    create_note(NAME, "disk", "db-1 fills up", by="test")

    page = text_of(log_in("runs.view_agentstop"), url_of())

    assert "secret of a customer" not in page and "db-1 fills up" not in page and "its-trigger" not in page
    assert "/fire" not in page and "/stop/" not in page
    assert "db-1 fills up" in text_of(log_in("runs.view_agentstop", "agents.view_memorynote", name="bob"), url_of())


def test_what_fails_comes_first_and_its_page_shows_why(admin: Client) -> None:
    last = registry.all_agents()[-1].name
    incident = make_incident("its-trigger", make_run(status="failed", agent=last))
    Incident.objects.update(agent=last)

    listed = text_of(admin, PAGE)

    assert listed.index(url_of(last)) < listed.index(url_of()) and "1 of them failing" in listed
    assert f'href="{page_of("runs_incident", incident)}"' in text_of(admin, url_of(last))


def test_an_agent_that_nothing_names_has_no_page(admin: Client) -> None:
    assert admin.get(url_of("nowhere")).status_code == 404
    assert admin.get(url_of("a%00b")).status_code == 404
    make_trigger("of-old", agent="gone")
    assert "This process has none of it." in text_of(admin, url_of("gone"))


def test_an_agent_that_only_its_runs_name_has_a_page(admin: Client) -> None:
    """As of one that others spawned, whose code is gone."""
    run = make_run(agent="gone", trigger="", status="failed")

    page = admin.get("/admin/runs/agentstop/gone/change/").content.decode()

    assert page_of("runs_run", run) in page and "This process has none of it." in page


def test_the_pages_cost_the_same_for_one_run_and_for_many(admin: Client) -> None:
    make_trigger("its-trigger", agent=NAME)
    make_past("failed")

    def costs() -> dict[str, int]:
        found = {}
        for path in (PAGE, url_of()):
            with CaptureQueriesContext(connection) as captured:
                admin.get(path)
            found[path] = len(captured)
        return found

    costs()  # fills what is cached for the life of a process
    for_one = costs()
    make_past(*["succeeded", "failed"] * 40)

    assert costs() == for_one == {PAGE: 12, url_of(): 26}


def test_failures_over_time_show_the_first_runs_of_each_version() -> None:
    now = timezone.now()
    runs = [
        PastRun(
            id=uuid4(), trigger="t", status="failed" if number < 5 else "succeeded", status_reason="", error="",
            version="v2" if number < 5 else "v1", created_at=now - timedelta(hours=number), started_at=None, finished_at=None,
        )
        for number in range(24)
    ]  # fmt: skip

    slots = over_time(runs)

    assert sum(one.ended for one in slots) == 24 and sum(one.failed for one in slots) == 5
    assert [one.versions for one in slots if one.versions] == [["v2"]]
    assert [(one.name, one.runs, one.failed) for one in versions_of(runs)] == [("v2", 5, 5), ("v1", 19, 0)]
    assert over_time(runs[:1]) == []


def test_the_95th_percentile_is_a_duration_that_a_run_had(admin: Client) -> None:
    make_trigger("its-trigger", agent=NAME)
    make_past(*["succeeded"] * 18, seconds=1)
    make_past(*["succeeded"] * 2, seconds=60)

    assert "1\N{NO-BREAK SPACE}min" in text_of(admin, PAGE)
    page = text_of(admin, url_of())
    assert "1 s" in page and "1 min" in page
