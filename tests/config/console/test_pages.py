"""Every page opens, at a price that does not grow with what is on it, for those who may see it."""

import gzip
import posixpath
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents import registry
from runs.models import AuditEntry, Run
from tests.config.console.page_sizes import check_size
from tests.support.console import list_of, make_failed_run, make_one_of_each, page_of
from tests.support.triggers import make_event, make_trigger

LIGHT = 200_000  # bytes
NOUNS = [
    "triggers_event",
    "triggers_trigger",
    "triggers_schedule",
    "triggers_backfill",
    "triggers_exclusioncalendar",
    "triggers_source",
    "triggers_apitoken",
    "triggers_subscription",
    "triggers_eventdelivery",
    "runs_run",
    "runs_approval",
    "runs_worker",
    "runs_alarm",
    "runs_notification",
    "runs_delivery",
    "runs_connection",
    "runs_recipient",
    "runs_recipientgroup",
    "runs_auditentry",
    "agents_checklist",
    "agents_promptagent",
    "runs_budget",
    "runs_modelprice",
]
OTHERS = [
    "/admin/",
    "/admin/inbox/",
    "/admin/inbox/?show=all",
    "/admin/runs/connection/add/",
    "/admin/runs/connection/add/?provider=google",
    "/admin/runs/recipient/add/",
    "/admin/runs/recipientgroup/add/",
    "/admin/chat-accounts/",
    "/admin/overnight/",
    "/admin/coming/",
    "/admin/coming/?view=line",
    "/admin/coming/?view=month",
    "/admin/runs/agentstop/agents/",
    "/admin/runs/agentstop/greeter-1/change/",
    "/admin/runs/queue/processes/",
    "/admin/runs/queue/restored/",
    "/admin/runs/queue/all/pause/",
    "/admin/runs/queue/all/resume/",
    "/admin/runs/queue/default/limit/",
    "/admin/runs/budget/spending/",
    "/admin/agents/checklist/add/",
    "/admin/agents/promptagent/add/",
    "/admin/runs/budget/add/",
    "/admin/runs/modelprice/add/",
    "/admin/triggers/source/add/",
    "/admin/triggers/source/add/?choice=hmac",
    "/admin/triggers/trigger/add/",
    "/admin/triggers/subscription/add/",
    "/admin/triggers/schedule/add/",
    "/admin/triggers/schedule/why/",
    "/admin/triggers/exclusioncalendar/add/",
    "/admin/triggers/apitoken/add/",
    "/admin/django_celery_beat/periodictask/",
    "/admin/django_celery_beat/periodictask/add/",
    "/admin/django_celery_results/taskresult/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/group/",
]


@pytest.fixture(autouse=True)
def _no_agents_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their modules declare agents, and import those of the library: the pages of agents would be as long as these are many."""
    monkeypatch.setattr(registry, "_agents", {})


def queries_of(client: Client, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        answer = client.get(path)
    assert answer.status_code == 200, answer
    return len(captured)


def test_each_list_costs_the_same_for_one_row_and_for_many(admin: Client) -> None:
    make_one_of_each(1)
    for noun in NOUNS:
        queries_of(admin, list_of(noun))  # fills what is cached for the life of a process
    for_one = {noun: queries_of(admin, list_of(noun)) for noun in NOUNS}

    for number in range(2, 6):
        make_one_of_each(number)

    assert {noun: queries_of(admin, list_of(noun)) for noun in NOUNS} == for_one
    assert {noun: queries for noun, queries in for_one.items() if queries >= 15} == {}
    for noun in NOUNS:
        check_size(list_of(noun), admin.get(list_of(noun)).content)


def test_every_detail_page_answers_200(admin: Client) -> None:
    rows = make_one_of_each(1)

    pages = {noun: admin.get(page_of(noun, rows[noun])) for noun in NOUNS}

    assert {noun: page.status_code for noun, page in pages.items() if page.status_code != 200} == {}
    for noun, page in pages.items():
        check_size(f"{list_of(noun)}:id/change/", page.content)


def test_every_other_page_answers_200(admin: Client) -> None:
    make_one_of_each(1)

    pages = {path: admin.get(path) for path in OTHERS}

    assert {path: page.status_code for path, page in pages.items() if page.status_code != 200} == {}
    for path, page in pages.items():
        check_size(path, page.content)


def test_history_is_neither_changed_nor_deleted_by_hand(admin: Client) -> None:
    rows = make_one_of_each(1)

    for noun in ("triggers_event", "runs_run", "runs_auditentry"):
        path = page_of(noun, rows[noun])
        assert admin.post(path, {}).status_code == 403
        assert admin.post(path.replace("change", "delete"), {"post": "yes"}).status_code == 403


def test_event_page_shows_the_payload_without_trusting_it(admin: Client) -> None:
    event = make_event(data={"name": "<script>alert(1)</script>"})

    shown = admin.get(page_of("triggers_event", event)).content.decode()

    assert "<script>alert(1)" not in shown
    assert "&lt;script&gt;alert(1)" in shown


def test_the_name_of_a_deleted_trigger_is_text(admin: Client) -> None:
    run = make_failed_run(make_trigger())
    Run.objects.filter(pk=run.pk).update(trigger="<b>gone</b>", trigger_id=None)

    for path in (list_of("runs_run"), page_of("runs_run", run)):
        shown = admin.get(path).content.decode()
        assert "&lt;b&gt;gone" in shown and "<b>gone" not in shown


def test_body_that_is_no_json_is_shown_with_the_reason(admin: Client) -> None:
    event = make_event(body=b'{"a": NaN \xff', data_error="NaN is no JSON")

    shown = admin.get(page_of("triggers_event", event)).content.decode()

    assert "NaN is no JSON" in shown
    assert "\\xff" in shown


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"ready_at": None}, "Blocked behind another run with its key."),
        ({}, "no live worker serves queue “default”"),
    ],
)
def test_queued_run_gives_the_reason_why_it_does_not_run(admin: Client, state: dict[str, Any], sentence: str) -> None:
    from tests.support.runs import make_run

    run = make_run(**state)

    assert sentence in admin.get(page_of("runs_run", run)).content.decode()


@pytest.mark.parametrize("search", ["id", "event", "trigger"])
def test_run_is_found_by_its_id_its_event_and_its_trigger(admin: Client, search: str) -> None:
    run = make_failed_run(make_trigger("wanted"))
    make_failed_run(make_trigger("other"))
    term = {"id": run.pk, "event": run.event_ids[0], "trigger": "wanted"}[search]

    answer = admin.get(list_of("runs_run"), {"q": str(term)})

    assert list(answer.context["cl"].queryset) == [run]


def test_event_is_found_by_the_senders_id(admin: Client) -> None:
    event = make_event(ce_id="delivery-7")
    make_event()

    answer = admin.get(list_of("triggers_event"), {"q": "delivery-7"})

    assert list(answer.context["cl"].queryset) == [event]


def test_list_stops_counting_at_its_limit(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.parts.panel.COUNTED", 3)
    for _ in range(5):
        AuditEntry.objects.create(by="test", action="look", kind="run", object_id="1")

    answer = admin.get(list_of("runs_auditentry"))

    assert answer.context["cl"].result_count == 3
    assert "or more; filter or search" in answer.content.decode()


def test_the_audit_log_names_objects_in_words(admin: Client) -> None:
    for kind in ("apitoken", "exclusioncalendar", "retention"):
        AuditEntry.objects.create(by="test", action="look", kind=kind, object_id="7")

    shown = admin.get(list_of("runs_auditentry")).content.decode()

    assert "API token 7" in shown
    assert "exclusion calendar 7" in shown
    assert "retention 7" in shown


@pytest.mark.parametrize("path", ["/admin/", "/admin/login/"])
def test_a_page_links_its_icon_and_other_pages_find_it(admin: Client, client: Client, path: str) -> None:
    page = (client if "login" in path else admin).get(path).content.decode()
    linked = re.search(r'<link rel="icon" href="([^"]+)" type="image/svg\+xml"', page)
    redirect = client.get("/favicon.ico")

    assert linked and linked[1] == redirect["location"]
    with closing(client.get(linked[1])) as icon:
        assert icon["content-type"] == "image/svg+xml"


def test_times_are_given_in_utc_for_those_without_scripts(admin: Client) -> None:
    run = make_failed_run(make_trigger())
    Run.objects.filter(pk=run.pk).update(created_at="2026-01-02T03:04:05Z")

    shown = admin.get(list_of("runs_run")).content.decode()

    assert 'title="2026-01-02 03:04:05.000 UTC"' in shown


def test_the_first_page_and_all_that_it_loads_are_light(admin: Client) -> None:
    """Compressed, as they go over the wire."""
    page = admin.get("/admin/").content
    urls = set(re.findall(r'<(?:link|script)[^>]* (?:href|src)="/static/([^"?]+)', page.decode()))
    weights = {"page": len(gzip.compress(page))}
    while urls:
        url = urls.pop()
        found = finders.find(url)
        assert isinstance(found, str), url
        content = Path(found).read_bytes()
        weights[url] = len(content if url.endswith(".woff2") else gzip.compress(content))
        if url.endswith(".css"):
            linked = re.findall(r'url\("?([^"):#]+)"?\)', content.decode())
            urls |= {posixpath.normpath(f"{posixpath.dirname(url)}/{one}") for one in linked} - weights.keys()

    assert {"unfold/css/styles.css", "console/console.css", "console/icons.woff2"} <= weights.keys()
    assert sum(weights.values()) < LIGHT, weights
