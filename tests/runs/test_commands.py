import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from uuid_utils.compat import uuid7

from runs.models import AuditEntry
from runs.states import RunStatus
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def run_command(*arguments: Any) -> tuple[str, str, bool]:
    """What the command printed, what it complained of, and whether it ended well."""
    out, err = StringIO(), StringIO()
    try:
        call_command(*map(str, arguments), stdout=out, stderr=err, no_color=True)
    except CommandError:
        return out.getvalue(), err.getvalue(), False
    return out.getvalue(), err.getvalue(), True


def test_requeue_names_the_runs_it_refuses_and_requeues_the_others() -> None:
    failed, queued, unknown = make_run(status=RunStatus.FAILED), make_run(), uuid7()

    out, err, well = run_command("requeue", queued.id, failed.id, unknown, "nonsense")

    assert out == f"{failed.id} queued\n"
    refusals = err.splitlines()
    assert refusals[0].startswith(f"{queued.id}: ") and "queued" in refusals[0]
    assert refusals[1:] == [f"{unknown}: no such run", "nonsense: no such run"]
    assert not well
    assert AuditEntry.objects.get().by.startswith("cli:")


def test_requeue_as_json_prints_the_runs() -> None:
    failed = make_run(status=RunStatus.FAILED)

    out, err, well = run_command("requeue", failed.id, "--json")

    [run] = json.loads(out)
    assert (run["id"], run["status"]) == (str(failed.id), "queued")
    assert (err, well) == ("", True)


def test_runs_lists_the_filtered_runs_newest_first() -> None:
    runs = [make_run(status=RunStatus.FAILED, error="boom\nat line 1") for _ in range(3)]
    make_run(trigger="other")

    out, _, _ = run_command("runs", "--status", "failed", "--trigger", "greeter", "--limit", "2")

    lines = out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == sorted((str(run.id) for run in runs), reverse=True)[:2]
    assert all(line.endswith("boom") for line in lines)


@pytest.mark.parametrize("arguments", [("--status", "done"), ("--event", "42"), ("--limit", "-1")])
def test_runs_refuses_invalid_filters(arguments: tuple[str, str]) -> None:
    assert run_command("runs", *arguments)[2] is False


def test_pause_and_resume_of_everything() -> None:
    assert run_command("pause", "--reason", "restoring")[0] == "All queues are paused.\n"
    assert run_command("resume")[0] == "All queues are resumed.\n"

    assert [(entry.action, entry.object_id) for entry in AuditEntry.objects.order_by("id")] == [
        ("pause", "*"),
        ("resume", "*"),
    ]


def test_pause_of_a_queue_that_is_not_there_is_refused() -> None:
    assert run_command("pause", "defualt", "--reason", "x")[2] is False


def test_a_pause_that_waits_shows_whether_anything_still_runs() -> None:
    assert run_command("pause", "--reason", "deploy", "--wait", "0")[0].endswith("None of its runs is running.\n")
