"""A lookup takes any number of rows: PostgreSQL takes 65,535 parameters in a statement."""

import ast
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from runs.models import Run, Step
from runs.retention import payloads, prune
from runs.retention.erasure import erase_runs, holders
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event
from triggers.retention.erasure import Selection, erase

pytestmark = pytest.mark.django_db

MANY = 66_000


def test_a_lookup_takes_more_ids_than_a_statement_has_parameters() -> None:
    run = make_run(status="succeeded")
    ids = [run.id, *(uuid4() for _ in range(MANY))]

    assert list(Run.objects.filter(id__among=ids)) == [run]
    assert not Step.objects.filter(run__id__among=ids).exists()
    assert not Run.objects.filter(key__among=[str(id) for id in ids]).exists()
    assert payloads.remove_payloads(ids) == [run.id]
    assert erase_runs(ids) == 0
    assert prune.with_old_payload(ids, run.created_at) == []


def test_erasure_of_a_subject_handles_any_number_of_events_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement is about few of them, and what was erased before a crash stays erased."""
    monkeypatch.setattr("triggers.retention.erasure.TOGETHER", 3)
    sizes: list[int] = []

    def count(ids: Sequence[UUID]) -> dict[UUID, set[UUID]]:
        sizes.append(len(ids))
        return holders(ids)

    monkeypatch.setattr("triggers.retention.erasure.holders", count)
    events = [make_event(subject="ada") for _ in range(10)]
    Event.objects.update(dispatched_at=events[0].received_at)
    runs = [make_run(status="succeeded", event_id=event.id, result={"of": "ada"}) for event in events]

    assert erase(Selection(subject="ada"), by="test", dry_run=True).events == 10
    done = erase(Selection(subject="ada"), by="test")

    assert (done.events, done.runs, done.left) == (10, 10, [])
    assert not Event.objects.filter(subject="ada").exists()
    assert not Run.objects.filter(id__among=[run.id for run in runs]).exclude(result=None).exists()
    assert max(sizes) == 3


@pytest.mark.parametrize(
    "path",
    [
        "runs/retention/erasure.py",
        "runs/retention/payloads.py",
        "runs/retention/prune.py",
        "runs/attempt/children.py",
        "triggers/retention/erasure.py",
    ],
)
def test_modules_that_handle_any_number_of_rows_make_no_parameter_of_each(path: str) -> None:
    tree = ast.parse(Path(path).read_text())
    used = {word.arg for call in ast.walk(tree) if isinstance(call, ast.Call) for word in call.keywords if word.arg}

    assert not {name for name in used if name.endswith("__in")} - {
        "data_error__in",
        "kind__in",
        "source__in",  # of a subquery
        "status__in",
        "subject__in",
    }
