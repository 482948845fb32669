"""`GET /api/v1/runs/<id>/transcript/`."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from pydantic_ai import Agent as LlmAgent

from runs.models import Run, Step
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
    first, second = call["turns"]
    assert [part["text"] for part in first["prompt"] if part["is_untrusted"]] == ["Ann"]
    [called] = first["tool_calls"]
    assert (called["tool"], called["arguments"], called["result"]) == ("find", {"name": "Ann"}, "Ann is here")
    assert second["answer"] == [
        {"kind": "answer", "text": "found", "tool": "", "is_untrusted": False, "is_history": False}
    ]


def test_a_run_that_called_no_model_has_no_calls() -> None:
    assert Api().get(f"runs/{make_run().id}/transcript/").body["calls"] == []


def calling(lab: Lab, arguments: Any) -> Run:
    """A run whose model called a tool with these arguments."""
    llm = LlmAgent(Turns([("note", arguments)], "done").model, name="clerk")

    @llm.tool_plain
    def note(text: str) -> str:
        return "noted"

    return lab.run(lambda run: run.llm(llm, "go").output)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "\\ud800"}',
        '{"text": "a\\u0000b"}',
        '{"text": NaN}',
        '{"text": 1e400}',
        '{"text": ' + "[" * 200 + "]" * 200 + "}",
        '{"text": ' + "[" * 100_000,
        '{"text": ' + "9" * 5000 + "}",
        "{",
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_are_no_json_are_shown_as_the_model_gave_them(
    lab: Lab, admin_client: Client, arguments: str
) -> None:
    run = calling(lab, '{"text": "x"}')
    request = Step.objects.get(run=run, key="llm clerk#1:request 1")
    assert request.output
    request.output["answer"]["parts"][0]["args"] = arguments  # as earlier versions recorded it
    request.save(update_fields=["output"])

    [called] = Api().get(f"runs/{run.id}/transcript/").body["calls"][0]["turns"][0]["tool_calls"]
    page = admin_client.get(f"/admin/runs/run/{run.pk}/change/")

    assert called["arguments"].startswith(arguments[:20])
    assert (page.status_code, called["result"]) == (200, "noted")


def test_many_tools_are_listed_with_their_names_and_the_beginning_of_their_descriptions(
    lab: Lab, admin_client: Client
) -> None:
    llm = LlmAgent(Turns("done").model, name="clerk")
    for number in range(60):

        def act(place: str, many: int) -> str:
            return ""

        act.__doc__ = f"Tool {number}. " + "d" * 2000
        llm.tool_plain(name=f"tool{number}")(act)

    run = lab.run(lambda run: run.llm(llm, "go").output)

    tools = Api().get(f"runs/{run.id}/transcript/").body["calls"][0]["turns"][0]["tools"]
    assert [tool["name"] for tool in tools] == [f"tool{number}" for number in range(60)]
    assert tools[7]["description"].startswith("Tool 7. ddd") and "more characters" in tools[7]["description"]
    assert list(tools[7]["parameters"]["properties"]) == ["many", "place"]
    page = admin_client.get(f"/admin/runs/run/{run.pk}/change/")
    assert page.status_code == 200 and "tool59(many, place): Tool 59. ddd" in page.content.decode()


def test_long_settings_stay_an_object(lab: Lab, admin_client: Client) -> None:
    llm = LlmAgent(Turns("done").model, name="clerk")

    run = lab.run(lambda run: run.llm(llm, "go", model_settings={"stop_sequences": ["x" * 70_000]}).output)

    settings = Api().get(f"runs/{run.id}/transcript/").body["calls"][0]["turns"][0]["settings"]
    assert "more characters" in settings["stop_sequences"]
    assert admin_client.get(f"/admin/runs/run/{run.pk}/change/").status_code == 200


@pytest.mark.parametrize("schema", [True, {"properties": None}, {"properties": [1]}, {}])
def test_the_schema_of_a_tool_may_be_anything(lab: Lab, admin_client: Client, schema: Any) -> None:
    run = calling(lab, {"text": "x"})
    request = Step.objects.get(run=run, key="llm clerk#1:request 1")
    assert request.arguments
    request.arguments[0]["tools"][0]["parameters"] = schema
    request.save(update_fields=["arguments"])

    assert "note()" in admin_client.get(f"/admin/runs/run/{run.pk}/change/").content.decode()


def test_a_transcript_requires_permission_to_view_runs() -> None:
    run = make_run()

    assert Api(["triggers.view_trigger"], name="other").get(f"runs/{run.id}/transcript/").status == 403
    assert Client().get(f"/api/v1/runs/{run.id}/transcript/").status_code == 401
    reader = Api(["runs.view_run"])
    assert reader.get(f"runs/{run.id}/transcript/").status == 200
    assert reader.get(f"runs/{uuid4()}/transcript/").status == 404


@pytest.mark.parametrize("page", ["0", "x", "-1"])
def test_a_page_is_a_number_from_1(page: str) -> None:
    assert Api().get(f"runs/{make_run().id}/transcript/", page=page).status == 400


def test_the_api_schema_describes_the_transcript() -> None:
    schema = Client().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()

    described = schema["paths"]["/api/v1/runs/{id}/transcript/"]["get"]["responses"]["200"]
    assert described["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Transcript"}
    assert set(schema["components"]["schemas"]["Turn"]["properties"]) >= {"prompt", "answer", "tool_calls", "usage"}
