"""The page of a run shows what it was given beside what came of it, its own code first, and follows the run while it is live."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agents.kernel.redaction import MARK, know
from config.console.parts import payload
from config.console.runs import comparison
from config.console.runs.traceback import traceback_of
from runs.models import Attempt, AttemptRow, Run
from tests.support.console import page_of
from tests.support.journals import make_child, make_step
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event

OWN = '  File "/home/ada/depot/agents.py", line 119, in pick\n    raise Permanent("no bad-1")\n'
LIBRARY = '  File "/venv/lib/python3.11/site-packages/django/db/utils.py", line 9, in execute\n    return call()\n    ^^^^^^\n'
TRACE = f"Traceback (most recent call last):\n{LIBRARY}{LIBRARY}{OWN}agents.exceptions.Permanent: no bad-1\n"


def text_of(client: Client, run: Run, **query: Any) -> str:
    return client.get(page_of("runs_run", run), query).content.decode()


def make_order_run(subject: str = "A-312", **fields: Any) -> Run:
    event = make_event(type="order.paid", subject=subject, data={"sku": "bad-1"})
    return make_run(event_id=event.pk, **{"status": "succeeded", "result": {"picked": 3}, **fields})


def make_dispatched_event() -> Event:
    event = make_event(type="order.paid")
    Event.objects.filter(pk=event.pk).update(dispatched_at=timezone.now())
    return event


def live_url(run: Run) -> str:
    return reverse("admin:runs_run_live", args=[run.pk])


# Input and result


def test_the_event_stands_beside_the_result_and_its_subject_is_the_title(admin: Client) -> None:
    page = text_of(admin, make_order_run())

    beside = page.partition('class="console-beside"')[2]
    assert (
        page.index("<h2>Input</h2>")
        < page.index("<h2>Result</h2>")
        < page.index("<h2>Journal</h2>" if "<h2>Journal" in page else "Claims")
    )
    assert "&quot;sku&quot;: &quot;bad-1&quot;" in beside and "order.paid" in beside and "<b>A-312</b>" in beside
    assert "&quot;picked&quot;: 3" in beside
    assert "greeter · A-312" in page


def test_the_input_of_a_mapping_stands_before_the_data_of_its_event(admin: Client) -> None:
    page = text_of(admin, make_order_run(input={"order": 312}))

    assert page.index("&quot;order&quot;: 312") < page.index("Data of the event") < page.index("&quot;sku&quot;")


def test_a_removed_payload_is_said_to_be_removed(admin: Client) -> None:
    run = make_order_run(result=None, payload_removed_at=timezone.now())

    assert text_of(admin, run).count(payload.REMOVED) == 2


def test_secrets_stand_nowhere_and_a_long_input_is_cut_after_they_are_gone(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    know("hunter2-of-the-depot")
    monkeypatch.setattr(payload, "LONGEST", 40)
    page = text_of(admin, make_order_run(input={"a": "hunter2-of-the-depot", "b": "x" * 90}))

    assert "hunter2" not in page and MARK in page
    assert "The first 40 of " in page


# Children


def test_a_child_that_failed_is_seen_on_the_page_of_the_event(admin: Client) -> None:
    event = make_dispatched_event()
    run = make_run(event_id=event.pk, status="succeeded")
    make_child(run, status="succeeded")
    bad = make_child(run, agent="pick", status="failed", error="OutOfStock: bad-1")

    page = admin.get(page_of("triggers_event", event)).content.decode()

    assert "Started 1 run." in page and "1 of its 2 children failed." in page
    assert page_of("runs_run", bad) in page and "OutOfStock: bad-1" in page


def test_the_page_of_an_event_counts_its_failed_runs(admin: Client) -> None:
    event = make_dispatched_event()
    make_run(event_id=event.pk, status="failed")

    assert "Started 1 run, 1 failed." in admin.get(page_of("triggers_event", event)).content.decode()


# Traceback


def test_frames_of_the_own_code_are_in_sight_and_others_folded() -> None:
    first, folded, own = traceback_of("Traceback", TRACE).pieces

    assert (first.text, first.frames) == ("Traceback (most recent call last):", 0)
    assert folded.summary == "2 frames of Wakeful and libraries"
    assert (own.text, own.frames) == (f"{OWN}agents.exceptions.Permanent: no bad-1", 0)


def test_a_traceback_without_own_frames_is_whole() -> None:
    text = f"Traceback (most recent call last):\n{LIBRARY}OperationalError: gone\n"

    assert [(piece.text, piece.frames) for piece in traceback_of("Traceback", text).pieces] == [(text, 0)]


def test_no_line_of_a_traceback_is_lost() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/x/depot/a.py", line 1, in f\n  |     g()\n  | ExceptionGroup: two\n'
    )
    text = f"{TRACE}\nDuring handling of the above exception, another exception occurred:\n\n{TRACE}{group}"

    assert "\n".join(piece.text for piece in traceback_of("Traceback", text).pieces) == text.rstrip("\n")


def test_a_failed_run_shows_its_error_in_place_of_a_result(admin: Client) -> None:
    run = make_order_run(status="failed", result=None, error="Permanent: no bad-1")
    now = timezone.now()
    AttemptRow.objects.create(
        run=run, epoch=1, number=1, started_at=now, ended_at=now, outcome=Attempt.Outcome.FAILED, traceback=TRACE
    )

    beside = text_of(admin, run).partition('class="console-beside"')[2]

    assert beside.index("<h2>Error</h2>") < beside.index("2 frames of Wakeful and libraries")


# Live


def test_a_live_run_is_asked_for_again_and_an_unchanged_one_costs_one_query_and_no_content(admin: Client) -> None:
    run = make_run(status="waiting")
    page = admin.get(page_of("runs_run", run))
    [live] = [one for one in page.context["sections"] if one.template == "admin/console/live.html"]
    assert live.url == live_url(run) and f'data-live="{live.url}"' in page.content.decode()

    with CaptureQueriesContext(connection) as queries:
        answer = admin.get(live_url(run), headers={"If-None-Match": live.tag})

    assert (answer.status_code, answer.content) == (304, b"")
    assert len([one for one in queries.captured_queries if "runs_" in one["sql"]]) == 1


def test_what_a_live_run_does_changes_its_tag(admin: Client) -> None:
    run = make_run(status="waiting")
    tag = admin.get(live_url(run))["ETag"]

    make_step(run, "mail")
    answer = admin.get(live_url(run), headers={"If-None-Match": tag})

    assert answer.status_code == 200 and "mail" in answer.content.decode()
    assert not answer.has_header("X-Final")
    assert "<html" not in answer.content.decode()


def test_the_end_of_a_run_ends_the_requests(admin: Client) -> None:
    run = make_run(status="waiting")
    tag = admin.get(live_url(run))["ETag"]
    Run.objects.filter(pk=run.pk).update(status="cancelled", finished_at=timezone.now())

    answer = admin.get(live_url(run), headers={"If-None-Match": tag})

    assert (answer.status_code, answer["X-Final"]) == (200, "1")
    assert "live.js" not in text_of(admin, run)


# Comparison


def test_a_failed_run_is_compared_with_the_last_success_of_its_trigger(admin: Client) -> None:
    now = timezone.now()
    good, bad = make_order_run("A-311"), make_order_run("A-312", status="failed", error="x")
    for run, seconds in ((good, 1), (bad, 5)):
        make_step(run, "pick", started_at=now, ended_at=now + timedelta(seconds=seconds))
    make_step(bad, "pack")
    url = reverse("admin:runs_run_compare", args=[bad.pk])

    assert url in text_of(admin, bad)
    page = admin.get(url).content.decode()
    assert page_of("runs_run", good) in page
    assert "Both had the same input." in page
    assert "+4 s" in page and "only one has it" in page


def test_without_a_success_before_it_the_comparison_says_so(admin: Client) -> None:
    page = admin.get(reverse("admin:runs_run_compare", args=[make_order_run().pk])).content.decode()

    assert f"None of the {comparison.LOOKED_THROUGH:,} runs of its trigger before it succeeded." in page
