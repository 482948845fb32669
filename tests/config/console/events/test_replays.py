"""Replays of many events in the admin: from a search, with a preview, to the buttons of a replay."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.shadow.process import NotTried
from tests.config.console.test_actions import press
from tests.support.console import list_of, page_of
from tests.support.triggers import make_event, make_trigger
from tests.triggers.replays.test_replays import carry_out
from triggers.events.search import Search
from triggers.models import Replay
from triggers.replays.start import start_replay
from triggers.retention.payloads import remove_payloads

NOUN = "triggers_replay"
ADD = "/admin/triggers/replay/add/"
FORM = {"type": "visitor.*", "rate": "20", "priority": "4"}


@pytest.fixture
def archived() -> Any:
    make_trigger("greeter")
    make_trigger("second", types=["visitor.*", "order.*"])
    return [make_event(data={"n": 1}), make_event(data={"n": 2}), make_event(type="stock.counted")]


def preview(admin: Client, **fields: str) -> str:
    return admin.post(reverse("admin:triggers_replay_preview"), {**FORM, **fields}).content.decode()


def test_a_search_leads_to_the_form_and_the_form_to_a_replay(admin: Client, archived: Any) -> None:
    cl = admin.get(list_of("triggers_event") + f"?type=visitor.*&source__id__exact={archived[0].source_id}").context[
        "cl"
    ]
    [(url, label)] = cl.links
    form = admin.get(url).context["form"]
    assert (label, form["type"].value(), form["source"].value()) == (
        "Replay these",
        "visitor.*",
        str(archived[0].source_id),
    )

    answer = admin.post(ADD, {**FORM, "field": "n=1\n", "triggers": []})

    [replay] = Replay.objects.all()
    assert answer.headers["Location"] == page_of(NOUN, replay)
    assert (replay.search, replay.rate, replay.priority) == ({"type": "visitor.*", "fields": ["n=1"]}, 20, 4)
    assert (replay.total, replay.by) == (1, "admin:ada")


def test_the_preview_counts_events_and_names_triggers(admin: Client, archived: Any) -> None:
    remove_payloads([archived[0].pk])

    shown = preview(admin, type="")

    assert "The search finds 3 events." in shown
    assert "1 of them is skipped, because retention" in shown
    assert "1 of them is skipped, because none of the triggers" in shown
    assert "greeter" in shown and "second" in shown


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"field": "x"}, "use path=value"),
        ({"start": "2999-01-01"}, "begins in the future"),
        ({"start": "1h", "end": "2h"}, "ends before it begins"),
        ({"type": "unknown"}, "finds no event"),
        ({"rate": "0"}, "greater than or equal"),
    ],
)
def test_the_preview_shows_errors_of_the_form_and_no_replay_starts(
    admin: Client, archived: Any, fields: dict[str, str], message: str
) -> None:
    assert message in preview(admin, **fields)
    assert admin.post(ADD, {**FORM, **fields}).status_code == 200
    assert not Replay.objects.exists()


def test_a_sample_is_tried_and_starts_nothing(admin: Client, archived: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def report_of(command: list[str]) -> Any:
        tried.append(command)
        raise NotTried("Two shadow runs are in progress.")

    monkeypatch.setattr("config.console.events.replay_form.report_of", report_of)

    shown = admin.post(ADD, {**FORM, "_try": "1"}).content.decode()

    assert "greeter, second" in shown and "Two shadow runs are in progress." in shown
    assert tried == [["shadow", str(archived[1].pk), "--trigger", "greeter", "--by", "admin:ada"]]
    assert not Replay.objects.exists()


def test_a_replay_shows_its_progress_and_only_the_buttons_that_apply(admin: Client, archived: Any) -> None:
    replay = start_replay(Search(type="visitor.*"), by="test")

    running = admin.get(page_of(NOUN, replay)).content.decode()
    paused = press(admin, NOUN, replay, "pause").content.decode()
    press(admin, NOUN, replay, "resume")
    cancelled = press(admin, NOUN, replay, "cancel").content.decode()

    assert "Running at 10 events per second." in running and "Progress: 0 of 2" in running
    assert [way_to(replay, name) in running for name in ("pause", "resume", "cancel")] == [True, False, True]
    assert "Paused: no more events are taken" in paused
    assert [way_to(replay, name) in paused for name in ("pause", "resume", "cancel")] == [False, True, True]
    assert "being cancelled" in cancelled
    assert not any(way_to(replay, name) in cancelled for name in ("pause", "resume", "cancel"))


def test_a_replay_of_one_event_is_of_an_event(admin: Client, archived: Any) -> None:
    make_event(type="order.placed")
    replay = start_replay(Search(type="order.*"), by="test")
    carry_out(replay)

    shown = admin.get(page_of(NOUN, replay)).content.decode()

    assert "Done: 1 event was dispatched again." in shown
    assert "replay of 1 event<" in shown


def way_to(replay: Replay, name: str) -> str:
    """The address of a button."""
    return reverse(f"admin:triggers_replay_{name}", args=[replay.pk])


def test_the_form_replays_everything_only_if_that_is_chosen(admin: Client, archived: Any) -> None:
    refused = admin.post(ADD, {**FORM, "type": ""})

    assert list(refused.context["form"].errors) == ["all"]
    assert not Replay.objects.exists()
    admin.post(ADD, {**FORM, "type": "", "all": "on"})
    assert Replay.objects.get().total == 3
