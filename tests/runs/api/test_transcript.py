"""`GET /api/v1/runs/<id>/transcript/`."""

from uuid import uuid4

import pytest
from django.test import Client
from pydantic_ai import Agent as LlmAgent

from tests.support.api import Api
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.runs import make_run

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_a_program_reads_the_conversation_of_a_run(lab: Lab) -> None:
    llm = LlmAgent(Turns([("find", {"name": "Ann"})], "found").model, name="finder")

    @llm.tool_plain
    def find(name: str) -> str:
        return f"{name} is here"

    run = lab.run(lambda run: run.llm(llm, "Where?", untrusted="Ann").output)
    body = Api().get(f"runs/{run.id}/transcript/").body

    assert (body["run"], body["is_kept"], body["page"], body["pages"]) == (str(run.id), True, 1, 1)
    assert (body["usage"]["requests"], body["usage"]["cost"], body["tool_calls"]) == (2, "0", 1)
    [call] = body["calls"]
    assert (call["key"], call["is_untrusted"], len(call["turns"])) == ("llm finder#1", True, 2)
    asked, told = call["turns"]
    assert [part["text"] for part in asked["prompt"] if part["is_untrusted"]] == ["Ann"]
    [called] = asked["tool_calls"]
    assert (called["tool"], called["arguments"], called["result"]) == ("find", {"name": "Ann"}, "Ann is here")
    assert told["answer"] == [
        {"kind": "answer", "text": "found", "tool": "", "is_untrusted": False, "is_history": False}
    ]


def test_a_run_that_asked_no_model_has_no_calls() -> None:
    assert Api().get(f"runs/{make_run().id}/transcript/").body["calls"] == []


def test_who_may_not_see_runs_may_not_see_what_they_said() -> None:
    run = make_run()

    assert Api(["triggers.view_trigger"], name="other").get(f"runs/{run.id}/transcript/").status == 403
    assert Client().get(f"/api/v1/runs/{run.id}/transcript/").status_code == 401
    reader = Api(["runs.view_run"])
    assert reader.get(f"runs/{run.id}/transcript/").status == 200
    assert reader.get(f"runs/{uuid4()}/transcript/").status == 404


@pytest.mark.parametrize("page", ["0", "x", "-1"])
def test_a_page_is_a_number_from_1(page: str) -> None:
    assert Api().get(f"runs/{make_run().id}/transcript/", page=page).status == 400


def test_the_schema_describes_it() -> None:
    schema = Client().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()

    described = schema["paths"]["/api/v1/runs/{id}/transcript/"]["get"]["responses"]["200"]
    assert described["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Transcript"}
    assert set(schema["components"]["schemas"]["Turn"]["properties"]) >= {"prompt", "answer", "tool_calls", "usage"}
