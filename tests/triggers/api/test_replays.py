"""Replays of many events over the API and by command."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.support.api import Api
from tests.support.triggers import make_event, make_trigger
from triggers.models import Redispatch, Replay

pytestmark = pytest.mark.django_db

SEARCH = {"type": "visitor.*", "field": ["n=1"], "triggers": ["greeter"]}


@pytest.fixture(autouse=True)
def archived() -> None:
    make_trigger()
    make_trigger("second")
    for n in (1, 2):
        make_event(data={"n": n})


def run_command(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_a_replay_is_previewed_started_paused_resumed_and_cancelled() -> None:
    api = Api()

    previewed = api.post("replays/preview/", SEARCH)
    started = api.post("replays/", {**SEARCH, "rate": 5, "priority": 1})
    url = f"replays/{started.body['id']}"

    assert previewed.body["triggers"] == [{"trigger": "greeter", "events": 1}]
    assert [one["triggers"] for one in previewed.body["sample"]] == [["greeter"]]
    assert (previewed.body["events"], previewed.body["shadow"]) == (1, None)
    assert (started.status, started.body["triggers"], started.body["rate"]) == (201, ["greeter"], 5)
    assert started.body["progress"]["total"] == 1
    assert api.post(f"{url}/pause/").body["status"] == "paused"
    assert api.post(f"{url}/resume/").body["status"] == "running"
    assert api.post(f"{url}/cancel/").body["status"] == "cancelling"
    assert api.post(f"{url}/cancel/").status == 409
    assert [one["id"] for one in api.get("replays/").body["results"]] == [started.body["id"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"field": ["x"]}, "field"),
        ({"rate": 0}, "rate"),
        ({"triggers": ["nobody"]}, "triggers"),
        ({"type": "unknown"}, "start"),
        ({"end": "soon"}, "end"),
        ({"types": []}, "types"),
    ],
)
def test_a_replay_that_makes_no_sense_is_400_naming_the_field(body: dict[str, object], field: str) -> None:
    answer = Api().post("replays/", body)

    assert (answer.status, list(answer.body)) == (400, [field])
    assert not Replay.objects.exists()


@pytest.mark.parametrize(
    "body", [{}, b"", {"rate": 1}, {"triggers": ["greeter"]}, {"end": "2050-01-01"}, {"all": False}]
)
def test_a_replay_without_selection_requires_all(body: Any) -> None:
    answer = Api().post("replays/", body)

    assert (answer.status, list(answer.body)) == (400, ["all"])
    assert not Replay.objects.exists()


def test_all_events_are_replayed_if_the_request_has_all() -> None:
    assert Api().post("replays/", {"all": True}).body["total"] == 2


def test_a_replay_does_not_start_if_there_are_more_events_than_the_preview_counted() -> None:
    api = Api()
    counted = api.post("replays/preview/", SEARCH).body["events"]
    make_event(data={"n": 1})

    refused = api.post("replays/", {**SEARCH, "events": counted})

    assert (refused.status, list(refused.body)) == (400, ["events"])
    assert api.post("replays/", {**SEARCH, "events": counted + 1}).status == 201


def test_a_replay_needs_the_permission_to_replay_events() -> None:
    api = Api(["triggers.view_event", "triggers.view_replay"])

    assert [api.post(path, SEARCH).status for path in ("replays/", "replays/preview/")] == [403, 403]


def test_the_command_previews_and_starts_a_replay_and_lists_it() -> None:
    words = ["replay", "--type", "visitor.*", "--since", "1h", "--trigger", "greeter", "--trigger", "second"]

    output = run_command(*words, "--preview")
    assert not Replay.objects.exists()
    started = json.loads(run_command(*words, "--rate", "7", "--json"))
    paused = json.loads(run_command("replays", "pause", started["id"], "--json"))

    assert output.startswith("2 events; 0 without payload") and "matches greeter, second today" in output
    assert (started["rate"], started["total"], started["triggers"]) == (7, 2, ["greeter", "second"])
    assert paused[0]["status"] == "paused"
    assert f"{started['id']} paused 0/2 at 7/s: type visitor.*" in run_command("replays")
    assert not Redispatch.objects.exists()


def test_a_command_replays_everything_with_all() -> None:
    assert "2 events at 10 per second" in run_command("replay", "--all")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["replay"], "Name events"),
        (["replay", "019b76da-a800-7000-8000-000000000001", "--type", "x"], "not both"),
        (["replay", "--errors", "--type", "x"], "--errors takes"),
        (["replay", "--field", "x"], "path=value"),
        (["replay", "--type", "x"], "no event"),
        (["replay", "--until", "1h"], "it finds all events"),
        (["replays", "pause"], "Name the replay"),
        (["replays", "pause", "x"], "No such replay"),
    ],
)
def test_a_command_that_makes_no_sense_gives_the_reason(words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run_command(*words)
