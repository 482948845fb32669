"""Bulk actions on all runs that a filter finds: previewed, then done to those and no others."""

from typing import Any

import pytest
from django.test import Client

from config.console.runs import bulk
from runs.models import Run
from tests.config.console.test_actions import take_the_others
from tests.support.console import list_of, make_failed_run
from tests.support.runs import make_run
from tests.support.triggers import make_trigger


def ask(client: Client, action: str, query: str = "", **progress: Any) -> Any:
    """Submit the action on all that match, with one row ticked as the page has it."""
    one = Run.objects.order_by("-id").values_list("pk", flat=True)[0]
    form = {"action": action, "select_across": "1", "_selected_action": [str(one)], **progress}
    return client.post(list_of("runs_run") + query, form)


def go_on(client: Client, action: str, answer: Any, query: str = "") -> Any:
    progress = answer.context["progress"]
    return ask(client, action, query, **{field.name: field.value() for field in progress})


def statuses() -> list[str]:
    return list(Run.objects.order_by("seq").values_list("status", flat=True))


def notice_and_rows(answer: Any) -> tuple[str, list[Any]]:
    notice, table = answer.context["sections"]
    return notice.text, list(table.rows)


def test_preview_shows_how_many_by_status_and_agent_and_for_how_many_it_is_possible(admin: Client) -> None:
    trigger = make_trigger()
    for _ in range(3):
        make_failed_run(trigger)
    make_run(status="succeeded", agent="mailer")

    text, rows = notice_and_rows(ask(admin, "requeue_chosen"))

    assert text == "4 runs match the filter. Requeue is possible for 3 of them."
    assert rows == [("failed", "greeter", "3", "3"), ("succeeded", "mailer", "1", "0")]
    assert statuses() == ["failed", "failed", "failed", "succeeded"]


def test_preview_keeps_to_the_filter(admin: Client) -> None:
    make_failed_run(make_trigger())
    make_run(status="queued")

    text, _ = notice_and_rows(ask(admin, "cancel_chosen", "?status__exact=queued"))

    assert text == "1 runs match the filter. Cancel is possible for 1 of them."


def test_a_bulk_action_goes_in_batches_and_ends_on_the_list(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    trigger = make_trigger()
    for _ in range(5):
        make_failed_run(trigger)
    query = "?status__exact=failed"

    first = go_on(admin, "requeue_chosen", ask(admin, "requeue_chosen", query), query)
    assert first.context["sections"][0].text == "2 of 5 requeued."
    second = go_on(admin, "requeue_chosen", first, query)
    last = go_on(admin, "requeue_chosen", second, query)

    assert statuses() == ["queued"] * 5
    assert last.status_code == 302
    assert last.url == list_of("runs_run") + query


def test_a_run_that_comes_to_match_meanwhile_is_left_alone(admin: Client) -> None:
    trigger = make_trigger()
    make_failed_run(trigger)
    preview = ask(admin, "requeue_chosen")
    go_on(admin, "requeue_chosen", preview)
    late = make_failed_run(trigger)

    go_on(admin, "requeue_chosen", preview)

    assert Run.objects.get(pk=late.pk).status == "failed"


def test_refused_runs_are_counted_and_the_others_are_requeued(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 1)
    gone = make_failed_run(make_trigger())
    Run.objects.filter(pk=gone.pk).update(payload_removed_at="2026-01-01T00:00:00Z", error="")
    fine = make_failed_run(make_trigger("other"))

    answer = ask(admin, "requeue_chosen")
    for _ in range(2):
        answer = go_on(admin, "requeue_chosen", answer)
        assert answer.status_code == 200
    answer = go_on(admin, "requeue_chosen", answer)

    messages = [str(message) for message in admin.get(list_of("runs_run")).context["messages"]]
    assert messages[0] == "1 requeued."
    assert messages[1].startswith("1 refused")
    assert Run.objects.get(pk=fine.pk).status == "queued"


def test_runs_that_are_gone_by_then_are_counted_as_refused(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make_run()
    answer = ask(admin, "cancel_chosen")
    take_the_others(monkeypatch)
    go_on(admin, "cancel_chosen", answer)

    notice_and_rows = [str(message) for message in admin.get(list_of("runs_run")).context["messages"]]
    assert notice_and_rows[0].startswith("1 cancelled")
    assert notice_and_rows[1] == "2 refused: see the page of each run."
