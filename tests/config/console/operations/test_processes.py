"""The Processes page shows the state of all processes; queues are paused from it, and every page shows that."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION
from runs.models import AuditEntry, Queue, Worker
from runs.queues.pause import EVERY, pause
from tests.support.console import make_worker
from tests.support.runs import make_run

PAGE = "/admin/runs/queue/processes/"
RESTORED = "/admin/runs/queue/restored/"


def page_text(client: Client, path: str = PAGE) -> str:
    """The page's words, without its markup."""
    answer = client.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_the_processes_page_reports_a_complete_installation_as_healthy(admin: Client) -> None:
    for kind in ("dispatcher", "beat", "worker"):
        make_worker(kind)

    assert "All required processes are alive, and nothing is late." in page_text(admin)


@pytest.mark.django_db(transaction=True)
def test_the_age_of_a_transaction_that_cannot_be_read_is_shown_as_unknown(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OLDEST_TRANSACTION, "sql", "SELECT 1 / 0 AS nothing")

    assert "unknown" in page_text(admin).partition("Oldest transaction")[2][:40]


def test_two_versions_are_shown_side_by_side(admin: Client) -> None:
    make_worker("worker")
    Worker.objects.create(kind="worker", host="there", pid=2, version="2", concurrency=2)

    assert "2 versions run side by side: 1 (1 process), 2 (1 process)." in page_text(admin)


def test_a_stopped_process_is_shown_with_the_reason(admin: Client) -> None:
    now = "2999-01-01T00:00Z"
    make_worker("worker", stopped_at=now, stopped_reason="lease lost")

    assert "lease lost" in page_text(admin)


def test_the_page_costs_the_same_for_one_process_and_for_many(admin: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page_text(admin)
        return len(captured)

    make_worker()
    page_text(admin)
    for_one = queries()
    for _ in range(5):
        make_worker()
        make_run()

    assert queries() == for_one < 9


@pytest.mark.parametrize(("name", "queue"), [("all", EVERY), ("default", "default")])
def test_a_queue_is_paused_and_resumed_in_the_operators_name(admin: Client, name: str, queue: str) -> None:
    admin.post(f"/admin/runs/queue/{name}/pause/", {"reason": "the printer burns"})
    assert Queue.objects.get(pk=queue).paused_by == "admin:ada"

    admin.post(f"/admin/runs/queue/{name}/resume/")
    assert Queue.objects.get(pk=queue).paused_at is None
    assert [entry.action for entry in AuditEntry.objects.filter(kind="queue").order_by("id")] == ["pause", "resume"]


def test_a_pause_wants_a_reason_and_a_look_changes_nothing(admin: Client) -> None:
    admin.get("/admin/runs/queue/all/pause/")
    admin.post("/admin/runs/queue/all/pause/", {})
    admin.get("/admin/runs/queue/all/resume/")

    assert not Queue.objects.filter(paused_at__isnull=False).exists()


def test_a_queue_is_limited_and_freed(admin: Client) -> None:
    admin.post("/admin/runs/queue/default/limit/", {"max_running": "3"})
    assert Queue.objects.get(pk="default").max_running == 3

    admin.post("/admin/runs/queue/default/limit/", {"max_running": ""})
    assert Queue.objects.get(pk="default").max_running is None


@pytest.mark.parametrize("path", ["defualt/pause/", "all/limit/"])
def test_a_queue_that_is_not_there_is_404(admin: Client, path: str) -> None:
    assert admin.get(f"/admin/runs/queue/{path}").status_code == 404


@pytest.mark.parametrize("path", ["/admin/", PAGE, "/admin/runs/run/", "/admin/triggers/trigger/add/"])
def test_every_page_shows_a_banner_while_a_queue_is_paused(admin: Client, path: str) -> None:
    assert "the printer" not in page_text(admin, path)

    pause(EVERY, reason="the printer <burns>", by="admin:bob")

    page = page_text(admin, path)
    assert "All queues" in page
    assert "by admin:bob: the printer &lt;burns&gt;. Events are accepted" in page


def test_the_login_page_shows_no_pause_reason(client: Client, db: Any) -> None:
    pause(EVERY, reason="secret", by="admin:bob")

    assert "secret" not in client.get("/admin/login/").content.decode()


def test_after_a_restore_the_page_shows_waiting_runs_and_the_checks_to_make(admin: Client) -> None:
    make_worker("worker", seen_at="2026-01-01T00:00Z", started_at="2025-12-31T00:00Z", stopped_at="2026-01-02T00:00Z")
    make_run(trigger="invoices")
    pause(EVERY, reason="started with --paused", by="cli:root")

    page = page_text(admin, RESTORED)

    assert "All queues are paused: events are accepted and become runs, but no run starts." in page
    assert "last process seen before this start: 2026-01-01 00:00:00 UTC" in page
    assert "invoices 1 list" in page
    assert "sequences are ahead of the newest rows" in page


def test_a_sequence_behind_its_rows_is_found(admin: Client) -> None:
    make_run()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET seq = seq + 1000")

    assert "a sequence is behind its rows" in page_text(admin, RESTORED)
