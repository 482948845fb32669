"""Forking, resolving, signalling and deciding on the command line, and doing one thing to all runs a filter finds."""

import json
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from uuid_utils.compat import uuid7

from runs.management.arguments import since
from runs.models import Approval, AuditEntry, Run, Step
from runs.states import RunStatus
from tests.runs.test_commands import run_command
from tests.support.journals import ARGUMENTS, make_asking_run, make_step
from tests.support.runs import make_run
from triggers.models import Event

pytestmark = pytest.mark.django_db


def test_fork_prints_the_new_run_and_what_it_came_from() -> None:
    origin = make_run(status=RunStatus.FAILED, input={"a": 1})
    make_step(origin, "a")
    make_step(origin, "b", status="failed")

    out, err, well = run_command("fork", origin.id, "--step", "b")

    new = Run.objects.exclude(pk=origin.pk).get()
    assert (out, err, well) == (f"{new.id} queued, forked from {origin.id}\n", "", True)
    assert ([step.key for step in new.steps.all()], new.input) == (["a"], {"a": 1})


def test_fork_from_nowhere_is_refused() -> None:
    origin = make_run(status=RunStatus.FAILED)

    out, err, well = run_command("fork", origin.id, "--step", "nowhere")

    assert (out, well) == ("", False)
    assert "has no entry 'nowhere'" in err


def test_resolve_records_what_happened() -> None:
    run = make_run(status=RunStatus.UNCERTAIN)
    make_step(run, "charge", status="started")

    out, _, well = run_command("resolve", run.id, "--outcome", "happened", "--result", '{"id": 1}')

    assert (out, well) == (f"{run.id} queued\n", True)
    assert Step.objects.get().output == {"id": 1}


def test_a_question_that_the_operator_has_not_seen_is_not_resolved() -> None:
    run = make_run(status=RunStatus.UNCERTAIN, epoch=3)
    make_step(run, "charge", status="started")

    _, err, well = run_command("resolve", run.id, "--outcome", "fail", "--epoch", "2")

    assert "another question" in err and not well


def test_signal_makes_an_event_for_each_run() -> None:
    runs, finished = [make_run(), make_run()], make_run(status=RunStatus.SUCCEEDED)

    out, err, well = run_command("signal", *(run.id for run in runs), finished.id, "go", "--data", "7")

    assert out == "".join(f"{run.id} signalled\n" for run in runs)
    assert err.startswith(f"{finished.id}: ") and not well
    assert list(Event.objects.values_list("data__data", flat=True)) == [7, 7]
    assert AuditEntry.objects.filter(action="signal", by__startswith="cli:").count() == 2


@pytest.mark.parametrize(
    ("how", "status", "arguments"),
    [
        ([], "approved", ARGUMENTS),
        (["--arguments", '{"cents": 1}'], "edited", {"cents": 1}),
        (["--deny"], "denied", None),
    ],
)
def test_the_approve_command_decides_with_arguments_and_reason(how: list[str], status: str, arguments: Any) -> None:
    opened = make_asking_run()

    out, _, well = run_command("approve", opened.id, *how, "--reason", "so")

    assert (out, well) == (f"{opened.id} {status}\n", True)
    approval = Approval.objects.get()
    assert (approval.decided_arguments, approval.reason) == (arguments, "so")
    assert approval.decided_by.startswith("cli:")


def test_an_invalid_decision_is_refused_on_the_command_line() -> None:
    approval = make_asking_run()

    out, err, well = run_command("approve", uuid7(), "nonsense", approval.id, "--digest", "0" * 64)

    assert (out, well) == ("", False)
    assert [line.partition(": ")[2] for line in err.splitlines()[:2]] == ["no such approval"] * 2
    assert "has another question" in err.splitlines()[2]


def test_cancel_does_what_it_can() -> None:
    queued, finished = make_run(), make_run(status=RunStatus.SUCCEEDED)

    out, err, well = run_command("cancel", queued.id, finished.id)

    assert (out, well) == (f"{queued.id} cancelled\n", False)
    assert err.startswith(f"{finished.id}: ") and "already succeeded" in err


# --- All that a filter finds ---


def make_some() -> None:
    for _ in range(3):
        make_run(status=RunStatus.FAILED)
    make_run(status=RunStatus.CANCELLED)
    make_run(status=RunStatus.FAILED, trigger="other")
    make_run()


def test_a_preview_shows_how_many_and_does_nothing() -> None:
    make_some()

    assert run_command("requeue", "--trigger", "greeter", "--dry-run")[0] == "3 runs would be requeued\n"
    assert json.loads(run_command("cancel", "--trigger", "greeter", "--dry-run", "--json")[0]) == {"runs": 1}

    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["--status", "failed"], 4),
        (["--status", "failed", "--trigger", "greeter"], 3),
        (["--trigger", "greeter"], 3),
        (["--status", "cancelled"], 1),
        (["--since", "1h"], 4),
        (["--since", "2100-01-01"], 0),
    ],
)
def test_requeue_takes_all_that_a_filter_finds(wanted: list[str], found: int) -> None:
    make_some()

    out, _, well = run_command("requeue", *wanted)

    assert well and len(out.splitlines()) == found
    assert Run.objects.filter(status=RunStatus.QUEUED).count() == 1 + found


def test_runs_are_requeued_in_the_order_in_which_they_first_stood_in_the_queue() -> None:
    runs = [make_run(status=RunStatus.FAILED) for _ in range(5)]

    out, _, _ = run_command("requeue", "--status", "failed")

    assert [line.split()[0] for line in out.splitlines()] == [str(run.id) for run in runs]


def test_cancel_with_a_filter_selects_unfinished_runs() -> None:
    make_some()
    waiting = make_asking_run().wait.run_id

    out, _, well = run_command("cancel", "--since", "1h")

    assert well and len(out.splitlines()) == 2
    assert Run.objects.get(pk=waiting).status == "cancelled"
    assert Approval.objects.get().status == "closed"


@pytest.mark.parametrize("command", ["requeue", "cancel"])
def test_requeue_and_cancel_require_either_ids_or_a_selection(command: str) -> None:
    run = make_run()

    assert run_command(command)[2] is False
    assert run_command(command, run.id, "--trigger", "greeter")[2] is False
    assert run_command(command, "--status", "succeeded")[2] is False

    assert Run.objects.get().status == "queued"


def test_since_is_a_duration_ago_or_an_instant() -> None:
    assert abs(since("2h") - (timezone.now() - timedelta(hours=2))) < timedelta(seconds=5)
    assert since("2026-05-01T08:00") == since("2026-05-01T10:00+02:00") == datetime(2026, 5, 1, 8, tzinfo=UTC)
    assert run_command("requeue", "--since", "soon")[2] is False


@pytest.mark.parametrize(("text", "remedy"), [("soon", "a duration ago, e.g. 2h"), ("99999999w", "too long")])
def test_an_invalid_since_is_refused_with_forms_that_work(text: str, remedy: str) -> None:
    with pytest.raises(ArgumentTypeError, match=remedy):
        since(text)
