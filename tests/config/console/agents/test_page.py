"""The Agents page stops and starts agents, and every page shows what is stopped; so does the API."""

from typing import Any

from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from agents import registry
from runs.models import AgentStop
from tests.support.api import Api
from tests.support.console import make_worker, page_of
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from triggers.models import Gate

PAGE = "/admin/runs/agentstop/agents/"
NAME = registry.all_agents()[0].name


def test_an_agent_is_stopped_and_started_on_its_page(admin: Client) -> None:
    assert f"/admin/runs/agentstop/{NAME}/stop/" in admin.get(PAGE).content.decode()

    answer = admin.post(f"/admin/runs/agentstop/{NAME}/stop/", {"reason": "odd answers"}, follow=True)

    assert "Nothing of it was running." in answer.content.decode()
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

    shown = admin.get(PAGE).content.decode()
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
