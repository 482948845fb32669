"""The first page: what needs a person, as far as possible ended in place; each number opens the list that it counts."""

import re
from datetime import datetime, timedelta
from html import unescape
from uuid import UUID

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from uuid_utils import uuid7

from config.console.home import page as home
from config.console.home import waiting
from runs.db.sql import fetch
from runs.models import Approval, AuditEntry, Run
from tests.config.console.conftest import LogIn
from tests.support.console import make_failed_run, make_incident, make_one_of_each, make_source, make_worker
from tests.support.journals import make_approval
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.declarations.overrides import override
from triggers.models import Event, RefusedDelivery, Source, Trigger

HOME = "/admin/home/"


def shown(client: Client) -> str:
    return client.get(HOME).content.decode()


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def link_of(page: str, text: str) -> str:
    """The address of the first link with this text in it."""
    links = re.findall(r'<a [^>]*href="([^"]+)"[^>]*>(.*?)</a>', page, re.DOTALL)
    return next(unescape(url) for url, inside in links if text in re.sub(r"<[^>]+>", "", inside))


def listed(client: Client, url: str) -> set[object]:
    return {row.pk for row in client.get(url).context["cl"].result_list}


def pressed(client: Client, verb: str) -> str:
    """Press the first button of this kind; the message that follows."""
    value = re.search(rf'formaction="{HOME}{verb}/" name="value" value="([^"]+)"', shown(client))
    assert value, f"no button {verb}"
    answer = client.post(f"{HOME}{verb}/", {"value": unescape(value[1])})
    return [str(message) for message in get_messages(answer.wsgi_request)][-1]


def event_of(source: Source, at: datetime) -> Event:
    """One that came then."""
    id = UUID(int=uuid7().int)
    return Event.objects.create(
        id=id, source=source, ce_source="test", ce_id=str(id), type="came", root_id=id, received_at=at, dispatched_at=at
    )


def test_the_sentence_counts_what_needs_a_person(admin: Client) -> None:
    make_worker()
    assert "0 processes" not in shown(admin)
    make_incident("order-sync", make_failed_run(make_trigger("order-sync")))
    make_approval(make_run(status="waiting"), status="open")

    page = shown(admin)

    assert re.search(r'id="home-verdict">\w+ things need you', page)
    assert "order-sync fails since" in words(page)
    assert "1 approval waits" in page


def test_a_cause_is_one_row_also_if_its_trigger_is_paused(admin: Client) -> None:
    trigger = make_trigger("payment-post")
    make_incident("payment-post", make_failed_run(trigger))
    Trigger.objects.update(paused_at=timezone.now(), paused_reason="10 failures in a row")

    assert shown(admin).count(">Trigger payment-post</a>") == 1


def test_requeue_and_resume_in_place(admin: Client) -> None:
    run = make_failed_run(make_trigger("payment-post"))
    make_incident("payment-post", run)
    Trigger.objects.update(paused_at=timezone.now())

    assert pressed(admin, "requeue") == "1 requeued."
    assert pressed(admin, "resume").startswith("Trigger payment-post is resumed")
    assert (Run.objects.get().status, Trigger.objects.get().paused_at) == ("queued", None)


def test_failures_without_an_incident_are_requeued_in_place_up_to_the_last_one_that_was_seen(admin: Client) -> None:
    trigger = make_trigger("order-sync")
    seen, other = make_failed_run(trigger), make_failed_run(make_trigger("other"))
    value = re.search(r'requeue-lately/" name="value" value="(order-sync[^"]+)"', shown(admin))
    later = make_failed_run(trigger)
    assert value

    answer = admin.post(f"{HOME}requeue-lately/", {"value": unescape(value[1])})

    assert [str(message) for message in get_messages(answer.wsgi_request)] == ["1 requeued."]
    statuses = dict(Run.objects.values_list("pk", "status"))
    assert statuses == {seen.pk: "queued", later.pk: "failed", other.pk: "failed"}


def test_a_cause_is_acknowledged_muted_and_no_longer_muted_in_place(admin: Client) -> None:
    make_worker(version="2.0")
    incident = make_incident("order-sync", make_failed_run(make_trigger("order-sync")))

    assert pressed(admin, "acknowledge") == "Acknowledged."
    assert "acknowledged by admin:ada" in re.sub(r"<[^>]+>", "", shown(admin))
    assert pressed(admin, "mute") == "Muted until a worker starts with a version other than 2.0."
    page = shown(admin)
    assert "All is well" not in page and "order-sync fails since" not in words(page)
    assert listed(admin, link_of(page, "1 muted cause")) == {incident.pk}
    assert 'class="home-cause home-muted"' in page
    assert pressed(admin, "unmute") == "No longer muted."
    assert "order-sync fails since" in words(shown(admin))


def test_a_mute_that_has_no_version_to_wait_for_is_refused_in_words(admin: Client) -> None:
    make_incident("order-sync", make_failed_run(make_trigger("order-sync")))

    assert pressed(admin, "mute").startswith("No worker has run yet")


def test_a_requeue_up_to_a_number_that_no_failure_has_requeues_all(admin: Client) -> None:
    incident = make_incident("order-sync", make_failed_run(make_trigger("order-sync")))

    assert admin.post(f"{HOME}requeue/", {"value": f"{incident.pk}:{10**30}"}).status_code == 302
    assert Run.objects.get().status == "queued"


def test_a_mute_hides_no_other_cause_and_no_pause(admin: Client) -> None:
    make_worker(version="2.0")
    trigger = make_trigger("order-sync")
    muted, other = (make_failed_run(trigger) for _ in range(2))
    make_incident("order-sync", muted)
    pressed(admin, "mute")

    page = shown(admin)
    assert listed(admin, link_of(page, "1 failed run of the last day")) == {other.pk}

    Trigger.objects.update(paused_at=timezone.now())
    assert "order-sync is paused since" in words(shown(admin))


@pytest.mark.parametrize(("verb", "decision"), [("approve", "approve"), ("deny", "deny")])
def test_an_approval_is_decided_in_place_for_the_question_that_was_seen(
    admin: Client, verb: str, decision: str
) -> None:
    approval = make_approval(make_run(status="waiting"), status="open", arguments={"amount": 42})
    assert '<dt>amount</dt><dd class="arguments-json">42</dd>' in shown(admin)

    pressed(admin, verb)

    assert Approval.objects.get(pk=approval.pk).decision == decision


def test_a_decision_without_the_question_or_for_another_one_decides_nothing(admin: Client) -> None:
    approval = make_approval(make_run(status="waiting"), status="open")

    without = admin.post(f"{HOME}approve/", {"value": str(approval.pk)})
    another = admin.post(f"{HOME}approve/", {"value": f"{approval.pk}:{'0' * 64}"})

    assert without.status_code == 404
    assert "another question" in str(next(iter(get_messages(another.wsgi_request))))
    assert Approval.objects.get().decision == ""


@pytest.mark.parametrize(("is_tainted", "length"), [(True, 1), (False, 1000)])
def test_what_strangers_wrote_and_what_cannot_be_read_in_a_row_is_decided_on_its_page(
    admin: Client, is_tainted: bool, length: int
) -> None:
    make_approval(make_run(status="waiting", is_tainted=is_tainted), status="open", arguments={"text": "x" * length})

    page = shown(admin)

    assert f"{HOME}approve/" not in page
    assert "Read and decide" in page


def test_who_may_only_look_sees_no_button(log_in: LogIn) -> None:
    make_incident("greeter", make_failed_run(make_trigger()))
    make_approval(make_run(status="waiting"), status="open")
    seen = ("runs.view_run", "triggers.view_event", "triggers.view_trigger", "runs.view_approval")
    viewer = log_in(*seen)

    page = shown(viewer)

    assert "formaction" not in page
    assert "asks:" in page
    for verb in ("approve", "deny", "requeue", "requeue-lately", "resume", "acknowledge", "mute", "unmute", "test"):
        assert viewer.post(f"{HOME}{verb}/", {"value": "1:1"}).status_code == 403
    assert log_in("runs.view_alarm", name="bob").get(HOME).status_code == 403


@pytest.mark.parametrize("value", ["", "x", "1:x", "source:x", "none:"])
def test_a_value_that_no_button_has_changes_nothing(admin: Client, value: str) -> None:
    def answer(verb: str) -> int:
        return admin.post(f"{HOME}{verb}/", {"value": value}).status_code

    assert {
        answer(verb)
        for verb in ("approve", "requeue", "requeue-lately", "acknowledge", "mute", "unmute", "test", "none")
    } == {404}
    assert admin.get(f"{HOME}approve/").status_code == 405


def test_each_number_opens_the_runs_that_it_counts(admin: Client) -> None:
    trigger = make_trigger()
    failed = {make_failed_run(trigger).pk for _ in range(2)}
    all_of_day = failed | {make_run(status="succeeded", event_id=make_event().pk, agent="greeter").pk}
    make_run(status="failed", event_id=UUID("01890000-0000-7000-8000-000000000000"))

    page = shown(admin)

    for text, runs in (("3 runs in 24 h", all_of_day), ("2 of them failed", failed), ("failed, hatched", failed)):
        words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
        assert text in words
        assert listed(admin, link_of(re.sub(r"</?b>", "", page), text)) == runs
    [bar] = [
        url
        for url, says in re.findall(r'<a href="([^"]+)" data-count="3" aria-label="([^"]+)"', page)
        if ": 3 runs, 2 failed" in says
    ]
    assert listed(admin, unescape(bar)) == all_of_day


def test_an_uncertain_run_waits_for_a_person(admin: Client) -> None:
    run = make_run(status="uncertain")

    assert f'href="/admin/runs/run/{run.pk}/change/">Answer</a>' in shown(admin)
    assert "1 uncertain run" in shown(admin)


@pytest.mark.parametrize("trigger", ["sync", ""])
def test_the_failed_runs_of_a_cause_are_those_of_the_last_day_and_of_nothing_else(admin: Client, trigger: str) -> None:
    failed, old = (make_run(status="failed", trigger=trigger, agent="sync", error="no") for _ in range(2))
    for _ in range(3):
        make_run(status="failed", trigger="other", agent="other" if trigger else "sync", error="sync: no")
    Run.objects.filter(pk=old.pk).update(finished_at=timezone.now() - timedelta(days=3))
    page = shown(admin)

    assert listed(admin, link_of(page, "1 failed run of the last day")) == {failed.pk}
    assert listed(admin, link_of(page, "2 of 2 failed")) == {failed.pk, old.pk}


def test_what_is_counted_up_to_a_bound_has_a_plus_sign(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "COUNTED", 6)
    monkeypatch.setattr(home, "CAUSES", 2)
    for number in range(7):
        make_approval(make_run(status="waiting"), status="open")
        make_run(status="uncertain")
        make_incident(f"thing-{number}", make_failed_run(make_trigger(f"thing-{number}")))
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown(admin)))

    assert re.search(r"At least \w+ things need you\.", page)
    assert "6+ approvals wait" in page and "6+ approvals in all" in page
    assert "6+ uncertain runs" in page and "6+ uncertain runs in all" in page
    assert "2+ incidents" in page


def test_without_a_run_there_is_no_time_to_its_start(admin: Client) -> None:
    assert "<b>–</b> event → start, p95" in " ".join(shown(admin).split())

    make_run(status="succeeded", started_at=timezone.now() + timedelta(seconds=2), event_id=UUID(int=uuid7().int))

    assert re.search(r"<b>[12]\.\d s</b> event → start, p95", " ".join(shown(admin).split()))


def test_a_deploy_before_it_stands_beside_a_cause_and_in_the_chart(admin: Client) -> None:
    now = timezone.now()
    make_worker(version="1", started_at=now - timedelta(days=3))
    make_worker(version="2026.11.2", started_at=now - timedelta(minutes=30))
    make_incident("greeter", make_failed_run(make_trigger()), first_at=now - timedelta(minutes=24))

    page = shown(admin)

    assert "began 6 min after version 2026.11.2" in page
    assert "▲ 2026.11.2" in page


def test_a_source_that_is_quiet_for_longer_than_usual_or_refused_stands_out(admin: Client) -> None:
    now = timezone.now()
    for slug, minutes in (("steady", 1), ("silent", 100)):
        source = make_source(slug)
        for number in range(8):
            event_of(source, now - timedelta(minutes=minutes + number))
    RefusedDelivery.objects.create(source=make_source("stranger"), hour=now, reason="signature", status=401, count=3)

    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown(admin)))

    assert re.search(r"steady github last event .*? usually every 1 min as usual", page)
    assert re.search(r"silent github last event .*? usually every 1 min silent", page)
    assert re.search(r"stranger github no event yet refused", page)


def test_what_people_changed_since_yesterday_stands_apart_from_deploys(admin: Client, log_in: LogIn) -> None:
    trigger, now = make_trigger("order-sync", policy={"retries": 3}), timezone.now()
    override(trigger, {"policy": {"retries": 5}}, by="admin:ada")
    for by, action, days in (("cli:deploy", "changed", 0), ("admin:ada", "login", 0), ("admin:old", "pause", 3)):
        AuditEntry.objects.create(
            by=by, action=action, kind="trigger", object_id=str(trigger.pk), at=now - timedelta(days)
        )

    page = shown(admin)
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)).partition("Changed since yesterday")[2]
    people, _, commands = words.partition("by commands and deploys")

    assert "override trigger order-sync admin:ada policy.retries: 3 → 5" in people
    assert "changed trigger order-sync cli:deploy" in commands
    assert not {"login", "admin:old", "cli:"} & set(people.split())
    assert {entry.action for entry in admin.get(link_of(page, "all by people")).context["cl"].result_list} == {
        "override"
    }
    may_look = ("runs.view_run", "triggers.view_event", "triggers.view_trigger")
    assert "Changed since yesterday" not in shown(log_in(*may_look, name="bob"))


def test_a_fresh_installation_has_one_button_and_shows_the_run_that_comes_of_it(admin: Client) -> None:
    make_trigger("greeter")

    assert pressed(admin, "test") == "The test event is accepted."
    event = Event.objects.get(type="manual.fired")
    make_run(agent="greeter", event_id=event.pk)

    assert event.target_id == Trigger.objects.get().pk
    assert 'aria-label="The first runs"' in shown(admin)
    for _ in range(3):
        make_run()
    assert "Begin here" not in shown(admin)


def test_who_looks_again_gets_nothing_until_something_changes(admin: Client) -> None:
    etag = re.search(r'data-tag="([^"]+)"', admin.get("/admin/").content.decode())
    assert etag
    tag = unescape(etag[1])

    same = admin.get(HOME, headers={"If-None-Match": f"W/{tag}"})
    make_trigger()
    make_incident("greeter")
    other = admin.get(HOME, headers={"If-None-Match": tag})

    assert (same.status_code, same.content) == (304, b"")
    assert (other.status_code, other.headers["ETag"] != tag) == (200, True)


def test_the_page_costs_the_same_for_one_row_and_for_many(admin: Client) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            admin.get(HOME)
        return len(captured)

    make_one_of_each(1)
    statements()  # fills what is cached for the life of a process
    one = statements()
    for number in range(2, 5):
        make_one_of_each(number)

    assert statements() - one <= 3  # the value of each button Requeue
    assert one <= 47


def test_no_statement_scans_the_runs_or_the_events(admin: Client) -> None:
    """Where an index serves, PostgreSQL scans no table that it is kept from scanning."""
    make_one_of_each(1)
    admin.get(HOME)  # fills what is cached for the life of a process
    scans = "SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)"
    large = ["runs_run", "triggers_event", "triggers_decision", "runs_step", "runs_wait", "runs_delivery"]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        before = fetch(scans, [large])

        admin.get(HOME)

        assert fetch(scans, [large]) == before
