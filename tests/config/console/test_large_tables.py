"""What no index finds is looked for among the newest rows, and the page shows that; what an index finds, among all."""

from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from config.console.agents import figures
from config.console.incidents import failure_rates
from config.console.parts import panel
from config.console.runs import failed_children, last_runs
from runs.actions import select
from runs.actions.select import queued
from runs.db.sql import execute, fetch
from runs.models import AuditEntry, Run, Wait
from tests.support.api import Answer, Api
from tests.support.console import list_of, make_one_of_each, page_of
from tests.support.examples import some_cases
from tests.support.old_rows import id_of
from tests.support.rows_read import MANY_LIKE_IT, runs_read
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.models import Event

LOOKED_THROUGH = 2
NOW = timezone.now()


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
def test_the_first_triggers_of_agents_are_read_without_those_of_others() -> None:
    one = make_trigger(slug="one", agent="busy")
    execute(
        "INSERT INTO triggers_trigger SELECT (jsonb_populate_record(one, jsonb_build_object("
        "  'id', gen_random_uuid(), 'slug', 'busy-' || n, 'agent', 'busy-' || n %% 500))).*"
        " FROM triggers_trigger one, generate_series(1, 5000) n WHERE one.id = %s",
        [one.pk],
    )
    make_trigger(slug="zz-last", agent="idle")
    execute("ANALYZE triggers_trigger")

    given = {"agents": ["idle", "unknown", "busy-7"], "most": last_runs.TRIGGERS}
    plan = "\n".join(str(line) for (line,) in fetch(f"EXPLAIN (ANALYZE) {last_runs.TRIGGERS_OF}", given))

    assert "trigger_by_agent" in plan
    assert "Filter" not in plan


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


def test_the_newest_runs_of_a_trigger_that_no_longer_fires_are_read_without_those_of_others(admin: Client) -> None:
    trigger = make_trigger(slug="former")
    execute(MANY_LIKE_IT, [make_run(trigger="former", status="succeeded").pk])
    newer = MANY_LIKE_IT.replace("'01900000-", "'01910000-").replace("run.seq + n", "run.seq + 5000 + n")
    for run in (make_run(trigger="busy", status="succeeded"), make_run(trigger="busier", status="succeeded")):
        execute(newer, [run.pk])
        newer = newer.replace("'01910000-", "'01920000-").replace("5000 + n", "10000 + n")
    execute("ANALYZE runs_run")

    assert runs_read(partial(admin.get, page_of("triggers_trigger", trigger))) < 100
    assert runs_read(partial(call_command, "runs", trigger="former", stdout=StringIO())) < 100
    api = Api()
    seen: list[Answer] = []
    assert runs_read(lambda: seen.append(api.get("runs/", trigger="former", limit=30))) < 100
    following = parse_qs(urlsplit(seen[0].body["next"]).query)["cursor"]
    assert runs_read(lambda: seen.append(api.get("runs/", trigger="former", limit=30, cursor=following))) < 100
    ids = [run["id"] for answer in seen for run in answer.body["results"]]
    assert len(ids) == len(set(ids)) == 60
    assert ids == sorted(ids, reverse=True)


LIVE_RUNS: dict[str, dict[str, Any]] = {
    "queued": {},
    "running": {"ready_at": None, "worker_id": uuid4(), "pid": 1, "claimed_at": NOW, "deadline_at": NOW},
    "waiting": {"ready_at": None},
    "uncertain": {"ready_at": None},
}


@pytest.mark.parametrize("status", some_cases(LIVE_RUNS))
def test_the_live_runs_of_a_status_are_read_without_those_that_ended(admin: Client, status: str) -> None:
    api = Api()
    execute(MANY_LIKE_IT, [make_run(status="succeeded").pk])
    execute("ANALYZE runs_run")
    for path in (list_of("runs_run") + f"?status__exact={status}", f"/api/v1/runs/?status={status}"):
        client = admin if "admin" in path else api.client
        assert runs_read(partial(client.get, path)) < 50, path

    run = make_run(status=status, **LIVE_RUNS[status])

    page = admin.get(list_of("runs_run") + f"?status__exact={status}")
    assert [found.pk for found in page.context["cl"].result_list] == [run.pk]
    assert [found["id"] for found in api.get(f"runs/?status={status}").body["results"]] == [str(run.pk)]


def test_the_preview_of_a_bulk_action_reads_the_queued_runs_without_those_that_ended(admin: Client) -> None:
    queued_runs = [make_run() for _ in range(3)]
    execute(MANY_LIKE_IT, [make_run(status="succeeded").pk])
    execute("ANALYZE runs_run")
    form = {"action": "cancel_chosen", "select_across": "1", "_selected_action": [str(queued_runs[0].pk)]}

    assert runs_read(partial(admin.post, list_of("runs_run") + "?status__exact=queued", form)) < 50


def test_runs_are_queued_wherever_they_stand_and_however_many(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(status="waiting", ready_at=None)
    runs = [
        make_run(),
        make_run(ready_at=None, due_at=timezone.now() + timedelta(days=1)),
        make_run(ready_at=None, key="busy"),
    ]

    for few in (3, 2):
        monkeypatch.setattr(select, "FEW", few)
        assert {run.pk for run in queued(Run.objects.all())} == {run.pk for run in runs}


@pytest.mark.parametrize("asked", some_cases(["error", "queue", "agent__exact", "worker__id__exact"]))
def test_a_column_without_an_index_is_looked_for_among_the_newest(admin: Client, asked: str) -> None:
    execute(MANY_LIKE_IT, [make_run(status="succeeded").pk])
    execute("ANALYZE runs_run")
    given = {asked: str(uuid4())}

    assert runs_read(partial(admin.get, list_of("runs_run"), given)) < 50
    assert "(of the newest " in admin.get(list_of("runs_run"), given).content.decode()
    assert "(of the newest " not in admin.get(list_of("runs_run"), {"trigger": "greeter"}).content.decode()


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


def test_the_page_of_an_event_counts_all_its_runs_where_it_shows_the_first(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.console.events.page.SHOWN", 2)
    event = make_event()
    Event.objects.update(dispatched_at=NOW)
    statuses = ["succeeded", "failed", "failed", "failed"]
    runs = [make_run(event_id=event.pk, status=one, trigger=f"one-{n}") for n, one in enumerate(statuses)]

    page = admin.get(page_of("triggers_event", event)).content.decode()

    assert "Started 4 runs, 3 failed." in page
    assert "All 4; here are the first 2" in page
    listed = admin.get(list_of("runs_run"), {"q": str(event.pk)})
    assert {run.pk for run in listed.context["cl"].result_list} == {run.pk for run in runs}


def test_the_page_of_a_budget_names_that_more_runs_wait_than_it_shows(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.console.agents.budgets.SHOWN", 2)
    path = page_of("runs_budget", make_one_of_each(1)["runs_budget"])

    def wait_for_budget() -> str:
        run = make_run(status="waiting", ready_at=None)
        Wait.objects.create(run=run, key="model#1", position=0, kind="budget", asked={"reason": "spent"})
        return admin.get(path).content.decode()

    assert ["there are more" in wait_for_budget() for _ in range(3)] == [False, False, True]
