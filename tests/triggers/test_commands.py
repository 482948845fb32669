import json
from uuid import uuid4

import pytest

from tests.runs.test_commands import run_command
from tests.support.triggers import make_event, make_trigger
from triggers.models import Event, Redispatch

pytestmark = pytest.mark.django_db


def test_fire_prints_the_event_id() -> None:
    trigger = make_trigger()

    out, _, well = run_command("fire", "greeter", "--data", '{"name": "Ada"}')

    event = Event.objects.get(pk=out.strip())
    assert (well, event.target_id, event.data) == (True, trigger.id, {"name": "Ada"})
    assert event.ce_source.startswith("cli:")


@pytest.mark.parametrize("arguments", [("nobody",), ("greeter", "--data", "{"), ("off",)])
def test_fire_fails_where_it_did_not_fire(arguments: tuple[str, ...]) -> None:
    make_trigger()
    make_trigger("off", enabled=False)

    out, _, well = run_command("fire", *arguments)

    assert (out, well) == ("", False)
    assert not Event.objects.exists()


def test_emit_records_an_event_for_every_matching_trigger() -> None:
    out, _, well = run_command("emit", "visitor.came", "--data", '{"name": "Ada"}', "--subject", "door")

    event = Event.objects.select_related("source").get(pk=out.strip())
    assert (well, event.source.slug, event.type, event.subject, event.data) == (
        True,
        "cli",
        "visitor.came",
        "door",
        {"name": "Ada"},
    )
    assert event.target_id is None


def test_emit_with_an_id_twice_is_one_event() -> None:
    first, again = (run_command("emit", "visitor.came", "--id", "7", "--source", "/door") for _ in range(2))

    assert first[0] == again[0]
    assert (first[1], again[1]) == ("", "duplicate: nothing was recorded\n")
    assert Event.objects.count() == 1


@pytest.mark.parametrize("data", ['"\\u0000"', "NaN", "{"])
def test_emit_refuses_data_that_cannot_be_kept(data: str) -> None:
    assert run_command("emit", "visitor.came", "--data", data)[2] is False


def test_replay_processes_the_others_and_reports_refusals() -> None:
    event, unknown = make_event(), uuid4()
    make_trigger()

    out, err, well = run_command("replay", unknown, event.id, "nonsense", "--trigger", "greeter", "--json")

    redispatch = Redispatch.objects.get()
    assert json.loads(out) == [{"event": str(event.id), "trigger": "greeter", "replay_id": str(redispatch.replay_id)}]
    assert err.splitlines() == [f"{unknown}: no such event", "nonsense: no such event"]
    assert not well


def test_replay_to_an_unknown_trigger_is_refused() -> None:
    _, err, well = run_command("replay", make_event().id, "--trigger", "nobody")

    assert "no such trigger: nobody" in err
    assert not well
