"""The search in the header: what it finds, for whom, and how much of it."""

import pytest
from django.db.models.functions import Now
from django.test import Client

from config.console.search import find as finder
from tests.config.console.conftest import LogIn
from tests.support.console import list_of, make_worker, page_of
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger


def found(client: Client, text: str) -> dict[str, list[tuple[str, str]]]:
    kinds = client.get("/admin/find/", {"q": text}).context["kinds"]
    return {kind.title: [(hit.title, hit.url) for hit in kind.hits] for kind in kinds}


def test_runs_and_events_are_found_by_a_subject_and_by_a_field(admin: Client) -> None:
    event = make_event(type="order.placed", subject="A-312", data={"order_id": "A-312"})
    run = make_run(agent="order-sync", event_id=event.pk)

    for text in ("A-312", "data.order_id=A-312", str(event.pk)):
        hits = found(admin, text)
        assert hits["Runs"] == [("order-sync · A-312", page_of("runs_run", run))], text
        assert hits["Events"] == [("order.placed · A-312", page_of("triggers_event", event))], text


@pytest.mark.parametrize("subject", ["20261127", "c0ffee", "x" * 32, "0" * 32])
def test_an_event_is_found_by_a_subject_that_looks_like_an_id(admin: Client, subject: str) -> None:
    event = make_event(type="order.placed", subject=subject)

    assert found(admin, subject)["Events"] == [(f"order.placed · {subject}", page_of("triggers_event", event))]


def test_names_pages_and_documentation_are_found_by_a_part(admin: Client) -> None:
    trigger = make_trigger("nightly-backup", agent="backup")

    hits = found(admin, "backup")

    assert hits["Triggers"] == [("nightly-backup", page_of("triggers_trigger", trigger))]
    assert ("backup", "/admin/runs/agentstop/backup/change/") in hits["Agents"]
    assert found(admin, "overni")["Pages"] == [("Overnight", "/admin/overnight/")]
    assert any(url.startswith("/docs/upgrade/#") for _, url in found(admin, "back up")["Documentation"])


def test_the_name_itself_comes_first(admin: Client) -> None:
    for slug in ("a-sync-b", "sync-all", "sync"):
        make_trigger(slug)

    assert [title for title, _ in found(admin, "sync")["Triggers"]] == ["sync", "sync-all", "a-sync-b"]


def test_only_so_many_of_a_kind_are_shown_and_a_link_leads_to_all(admin: Client) -> None:
    for number in range(finder.SHOWN + 1):
        make_trigger(f"sync-{number}")

    [kind] = [one for one in admin.get("/admin/find/", {"q": "sync-"}).context["kinds"] if one.title == "Triggers"]

    assert (len(kind.hits), kind.more_url) == (finder.SHOWN, f"{list_of('triggers_trigger')}?q=sync-")


def test_a_reader_finds_what_the_lists_show_to_them(log_in: LogIn) -> None:
    event = make_event(type="order.placed", subject="A-312")
    make_run(event_id=event.pk)
    bob = log_in("triggers.view_event", name="bob")

    hits = found(bob, "A-312")

    assert set(hits) & {"Runs", "Events"} == {"Events"}
    assert "Runs" not in [title for title, _ in found(bob, "runs").get("Pages", [])]


def test_who_is_not_logged_in_finds_nothing(client: Client, db: None) -> None:
    assert client.get("/admin/find/", {"q": "A-312"}).status_code == 302


@pytest.mark.parametrize(
    "text", ["", "a", "\0\0\0", "data.order=", "data.=1", "%", "' OR 1=1 --", "ffffffff", "x" * 5_000]
)
def test_any_text_is_answered(admin: Client, text: str) -> None:
    make_event(type="order.placed", subject="A-312")

    assert admin.get("/admin/find/", {"q": text}).status_code == 200
    assert admin.get("/admin/find/", {"q": text}, headers={"X-Part": "1"}).status_code == 200


def test_the_part_is_the_hits_alone(admin: Client) -> None:
    make_trigger("sync")

    part = admin.get("/admin/find/", {"q": "sync"}, headers={"X-Part": "1"})

    assert "<html" not in part.content.decode() and "sync" in part.content.decode()
    assert "no-store" in part["Cache-Control"]


def test_nothing_is_posted_to_it(admin: Client) -> None:
    assert admin.post("/admin/find/").status_code == 405


@pytest.mark.parametrize(("permissions", "is_there"), [((), True), (("runs.view_run",), False)])
def test_stop_everything_is_in_the_header_for_who_may_stop(
    log_in: LogIn, permissions: tuple[str, ...], is_there: bool
) -> None:
    page = log_in(*permissions, name="carol").get(list_of("runs_run")).content.decode()

    assert ("/admin/runs/agentstop/all/stop/" in page) == is_there


def test_the_page_that_asks_before_a_stop_counts_what_it_ends(admin: Client) -> None:
    make_run(agent="order-sync", status="running", worker=make_worker(), pid=1, claimed_at=Now(), deadline_at=Now())

    page = admin.get("/admin/runs/agentstop/all/stop/").content.decode()

    assert "1 running run." in page
