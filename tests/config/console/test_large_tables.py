"""What no index finds is looked for among the newest rows, and the page shows that; what an index finds, among all."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from config.console.agents import figures
from config.console.incidents import failure_rates
from config.console.parts import panel
from config.console.runs import failed_children, last_runs
from runs.db.sql import execute, fetch
from runs.models import AuditEntry
from tests.support.console import list_of
from tests.support.old_rows import id_of
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger

LOOKED_THROUGH = 2
MANY_LIKE_IT = """
INSERT INTO runs_run SELECT (jsonb_populate_record(run, jsonb_build_object(
  'id', '01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), 'seq', run.seq + n))).*
FROM runs_run run, generate_series(1, 5000) n WHERE run.id = %s
"""


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel, "LOOKED_THROUGH", LOOKED_THROUGH)


@pytest.mark.parametrize(
    ("statement", "bounds"),
    [
        (last_runs.RUNS, {"slugs": ["", "idle"], "spawned": 50, "looked_at": 50, "last": 50}),
        (failure_rates.RATES, {"slugs": ["idle"], "most": 50, "last": 50}),
        (figures.RUNS_OF, {"slugs": ["idle"], "agent": "idle", "past": 50, "spawned": 50}),
        (figures.LAST_RUNS, {"triggers": 50, "last": 50, "spawned": 50, "strip": 20}),
    ],
    ids=["strips", "rates", "past of an agent", "list of agents"],
)
@pytest.mark.django_db
def test_what_is_read_of_an_idle_trigger_does_not_grow_with_the_runs_of_others(
    statement: str, bounds: dict[str, object]
) -> None:
    make_trigger(slug="idle")
    one = make_run(trigger="busy", status="succeeded")
    execute(MANY_LIKE_IT, [one.pk])
    execute("ANALYZE runs_run")

    plan = "\n".join(str(line) for (line,) in fetch(f"EXPLAIN (ANALYZE) {statement}", bounds))

    assert "run_by_trigger" in plan
    assert "runs_run_pkey" not in plan
    assert "Seq Scan on runs_run" not in plan


@pytest.mark.django_db
def test_the_failed_children_of_a_run_with_many_are_read_without_the_failed_runs_of_others() -> None:
    parent = make_run(status="succeeded")
    execute(MANY_LIKE_IT, [make_run(status="failed").pk])
    execute("UPDATE runs_run SET parent_id = %s WHERE status = 'failed' AND seq %% 2 = 0", [parent.pk])
    execute("ANALYZE runs_run")

    given = {"parents": [parent.pk], "most": failed_children.SHOWN}
    plan = "\n".join(str(line) for (line,) in fetch(f"EXPLAIN (ANALYZE) {failed_children.FIRST}", given))

    assert "run_by_parent" in plan
    assert "run_failed" not in plan


@pytest.mark.parametrize("search", ["?agent=greeter", "?agent=greeter&start=", "?status__exact=cancelled"])
def test_rare_runs_are_looked_for_among_the_newest(admin: Client, search: str) -> None:
    # Of two runs of one millisecond, either may be the newer.
    woken_by = [id_of(datetime.fromtimestamp(second, UTC)) for second in range(LOOKED_THROUGH + 1)]
    runs = [make_run(agent="greeter", status="cancelled", event_id=event_id) for event_id in woken_by]

    page = admin.get(list_of("runs_run") + search)

    assert {run.pk for run in page.context["cl"].result_list} == {run.pk for run in runs[1:]}
    assert "newest 100,000" in page.content.decode()


@pytest.mark.parametrize("asked", ["agent=greeter", "version=1"])
def test_runs_in_a_span_are_looked_for_among_the_newest_of_the_span(admin: Client, asked: str) -> None:
    woken_by = [id_of(datetime.fromtimestamp(second, UTC)) for second in range(LOOKED_THROUGH + 3)]
    runs = [make_run(agent="greeter", version="1", status="succeeded", event_id=event_id) for event_id in woken_by]

    page = admin.get(list_of("runs_run") + f"?{asked}&start=1970-01-01T00:00Z&end=1970-01-01T00:00:03Z")

    assert {run.pk for run in page.context["cl"].result_list} == {run.pk for run in runs[1:3]}


def test_an_address_sorts_no_list_by_a_column_without_an_index(admin: Client) -> None:
    make_run()

    listed = admin.get(list_of("runs_run") + "?o=-2").context["cl"]

    assert set(listed.queryset.query.order_by) == {"-id"}
    assert len(listed.result_list) == 1


def test_a_failed_run_is_found_however_old(admin: Client) -> None:
    runs = [make_run(status="failed") for _ in range(LOOKED_THROUGH + 1)]

    page = admin.get(list_of("runs_run") + "?status__exact=failed")

    assert {run.pk for run in page.context["cl"].result_list} == {run.pk for run in runs}


def test_an_event_is_found_by_its_id_however_old_and_by_its_type_among_the_newest(admin: Client) -> None:
    events = [make_event(type="order.placed") for _ in range(LOOKED_THROUGH + 1)]

    def found(search: str) -> set[object]:
        page = admin.get(list_of("triggers_event") + f"?q={search}")
        return {event.pk for event in page.context["cl"].result_list}

    assert found(str(events[0].pk)) == {events[0].pk}
    assert found("order.placed") == {event.pk for event in events[1:]}


def test_the_overview_counts_no_more_than_so_many_runs_of_an_hour(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.console.home.day.MOST", 2)
    for _ in range(3):
        make_run(status="failed")

    assert "<b>2+</b> of them failed" in " ".join(admin.get("/admin/").content.decode().split())


def test_the_audit_log_is_filtered_by_the_values_of_its_newest_entries(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.console.access.audit.COUNTED", 2)
    for action in ("cancel", "requeue", "replay"):
        AuditEntry.objects.create(by="cli:test", action=action, kind="run", object_id="1")

    page = admin.get(list_of("runs_auditentry")).content.decode()

    assert ("?action__exact=cancel" in page, "?action=cancel" in page) == (False, False)
    assert "?action=requeue" in page
    assert "?action=replay" in page
