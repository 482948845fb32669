"""An operator chooses a kind, follows the steps at the provider, sends a test event and sees how the source does."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from config.console.parts.html import emphasised
from config.console.sources.reading import BODY_CHARACTERS
from runs.db.sql import execute
from runs.models import AuditEntry
from tests.config.console.test_actions import press
from tests.support.console import page_of
from tests.support.hooks import make_source, post, signed_headers
from tests.support.triggers import make_event
from triggers.models import Event, PoisonMessage, Reading, RefusedDelivery, Source, WatchedTable
from triggers.sources.databases.tables.sweep import sweep_tables
from triggers.sources.kind import kinds

ADD = "/admin/triggers/source/add/"


@pytest.fixture(autouse=True)
def address(settings: Any) -> str:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    return "https://wakeful.example.com/hooks/shop/"


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def test_every_kind_can_be_chosen_and_its_form_opens(admin: Client) -> None:
    chosen = text_of(admin.get(ADD))

    for name, kind in kinds().items():
        assert f'href="?choice={name}"' in chosen
        form = admin.get(ADD, {"choice": name})
        assert form.status_code == 200
        assert emphasised(kind.setup[0].partition("{url}")[0]) in text_of(form)
    assert "console-kinds" in text_of(admin.get(ADD, {"choice": "telegraph"}))


def test_the_steps_name_the_real_address(admin: Client, address: str) -> None:
    shown = text_of(admin.get(page_of("triggers_source", make_source())))

    assert f"<code>{address}</code>" in shown
    assert "This address works on this machine only" not in shown


def test_an_address_that_only_works_here_is_reported(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_URL, settings.ALLOWED_HOSTS = "", ["127.0.0.1", "testserver"]

    assert "Set WAKEFUL_URL" in text_of(admin.get(page_of("triggers_source", make_source())))


def test_a_new_source_keeps_only_the_limits_that_were_set(admin: Client) -> None:
    form = {"choice": "github", "slug": "hub", "enabled": "on", "secret": "s" * 20}
    replies = {"github__reply": "no", "github__reply_api": "https://api.github.com/"}
    form |= replies
    limits = {"limits__networks": "192.0.2.0/24", "limits__max_body": "", "limits__per_minute": "0"}

    admin.post(ADD, {**form, **limits, "limits__equal_bodies": "new"})

    source = Source.objects.get(slug="hub")
    assert (source.limits, source.settings["reply"]) == ({"networks": "192.0.2.0/24"}, "no")
    edit = page_of("triggers_source", source).replace("change", "edit")
    assert 'value="192.0.2.0/24"' in text_of(admin.get(edit))
    refused = admin.post(edit, {"enabled": "on", "limits__networks": "somewhere", **replies})
    assert list(refused.context["form"].errors) == ["limits__networks"]
    admin.post(edit, {"enabled": "on", "limits__per_minute": "60", **replies})
    source.refresh_from_db()
    assert source.limits == {"per_minute": 60}


def test_settings_that_do_not_fit_the_installation_are_shown_at_their_field(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_FILE_ROOTS = ["/data"]
    form = {"choice": "directory", "slug": "in", "enabled": "on", "directory__patterns": "*", "directory__settle": "5s"}
    form |= {"directory__every": "30s", "directory__directory": "/elsewhere"}

    refused = admin.post(ADD, form)

    assert list(refused.context["form"].errors) == ["directory__directory"]
    admin.post(ADD, {**form, "directory__directory": "/data/in"})
    assert Source.objects.get(slug="in").settings["directory"] == "/data/in"


def test_a_test_event_leads_to_its_event_or_to_the_reason(admin: Client) -> None:
    source = make_source()
    send = page_of("triggers_source", source).replace("change", "test")

    accepted = text_of(admin.post(send, {"_form_submitted": "True"}, follow=True))
    Source.objects.filter(pk=source.pk).update(enabled=False)
    refused = text_of(admin.post(send, {"_form_submitted": "True"}, follow=True))

    event = Event.objects.get(source=source)
    assert page_of("triggers_event", event) in accepted and "Test event accepted (202)" in accepted
    assert "Test event refused (404): the source is disabled." in refused


def test_the_health_line_shows_the_last_event_the_rate_what_waits_and_the_last_refusal(admin: Client) -> None:
    source = make_source()
    for id_ in ("a", "b", "c"):
        post(b"{}", signed_headers(b"{}", id_=id_))
    post(b"{}", signed_headers(b"{}", secret="stranger"))
    for event in Event.objects.exclude(ce_id="c"):
        execute(
            "UPDATE triggers_event SET dispatched_at = received_at + %s::interval WHERE id = %s::uuid",
            [timedelta(milliseconds=40), event.pk],
        )

    shown = text_of(admin.get(page_of("triggers_source", source)))

    last = Event.objects.get(ce_id="c")
    health = shown[shown.index("<h2>Health</h2>") : shown.index("<h2>Set-up")]
    assert page_of("triggers_event", last) in health
    assert "<dd>3</dd>" in health and "1, the first since" in health and "40 ms" in health
    assert RefusedDelivery.objects.get().reason in health


def test_the_health_of_a_source_without_events_is_a_page_as_well(admin: Client) -> None:
    assert "none within the retention period" in text_of(admin.get(page_of("triggers_source", make_source())))


def test_whether_triggers_of_any_source_listen_is_known_from_its_first_event_on(admin: Client) -> None:
    source = make_source("inbox")

    before = text_of(admin.get(page_of("triggers_source", source)))
    make_event(source_id=source.pk)
    Event.objects.update(dispatched_at=timezone.now())

    assert "None names this source. It has no event yet" in before
    assert "None: its events start no run." in text_of(admin.get(page_of("triggers_source", source)))


def test_a_kind_that_needs_no_secret_is_not_called_unverified(admin: Client) -> None:
    topic = {"topic": "arn:aws:sns:eu-west-1:123456789012:uploads"}
    signed_by_aws = make_source("topic", "sns", secret=None, settings=topic)
    unverified = make_source("open", "none", secret=None, settings={"unverified": True})

    assert "Deliveries are proved by a key that only the sender has" in text_of(
        admin.get(page_of("triggers_source", signed_by_aws))
    )
    assert "Unverified: anyone" in text_of(admin.get(page_of("triggers_source", unverified)))


def test_a_watched_table_shows_its_triggers_and_is_swept_on_request(admin: Client) -> None:
    assert "<option>auth.Group</option>" in text_of(admin.get(ADD, {"choice": "table"}))
    form = {"choice": "table", "slug": "groups", "enabled": "on", "table__table": "auth.Group", "table__inserts": "on"}
    admin.post(ADD, {**form, "table__most": "", "table__sweep_hours": ""})
    source = Source.objects.get(slug="groups")
    assert source.settings["most"] == 100_000
    press(admin, "triggers_source", source, "check-table")
    assert AuditEntry.objects.get(action="check").object_id == str(source.pk)
    page = page_of("triggers_source", source)

    shown = text_of(admin.get(page))
    assert "Its triggers are there: each change is an event" in shown
    assert "auth_group" in shown
    assert "Sweep now" in shown
    press(admin, "triggers_source", source, "sweep-table")
    assert WatchedTable.objects.get(source=source).sweep_wanted
    assert sweep_tables(budget=timedelta(seconds=10)) == {"groups": ""}

    Group.objects.create(name="night")
    assert "db.auth.group.insert" in text_of(admin.get(page_of("triggers_event", Event.objects.get(source=source))))


def test_the_page_of_a_source_that_is_read_shows_little_of_much(admin: Client) -> None:
    source = make_source("orders", kind="kafka", secret=None)
    Reading.objects.create(source=source, position={"seen": ["0123456789abcdef"] * 10_000})
    PoisonMessage.objects.create(source=source, origin="o", message_id="1", reason="r", body=b"x" * 10**6, size=10**6)

    with CaptureQueriesContext(connection) as queries:
        text = text_of(admin.get(page_of("triggers_source", source)))

    assert len(text) < 200_000 and "x" * BODY_CHARACTERS in text and "x" * (BODY_CHARACTERS + 1) not in text
    assert not any('"body", "triggers_poisonmessage"."size"' in query["sql"] for query in queries)


@pytest.mark.django_db
def test_who_may_change_sources_watches_no_table_without_a_permission_for_it(client: Client) -> None:
    user = User.objects.create_user("ada", password="x", is_staff=True)
    sources = Permission.objects.filter(codename__in=["add_source", "change_source", "view_source"])
    user.user_permissions.set(sources)
    client.force_login(user)
    form = {"choice": "table", "slug": "groups", "enabled": "on", "table__table": "auth.Group", "table__inserts": "on"}
    made = Source.objects.create(slug="made", kind="table", settings={"table": "auth.Group"})
    edit = page_of("triggers_source", made).replace("change", "edit")

    assert 'href="?choice=table"' not in text_of(client.get(ADD))
    assert [client.post(ADD, form).status_code, client.post(edit, form).status_code] == [403, 403]
    assert edit not in text_of(client.get(page_of("triggers_source", made)))
    user.user_permissions.add(Permission.objects.get(codename="watch_table"))
    assert 'href="?choice=table"' in text_of(client.get(ADD))
    assert client.post(ADD, form).status_code == 302
    assert Source.objects.filter(slug="groups").exists()


def test_a_short_secret_is_taken_with_a_warning(admin: Client) -> None:
    source = make_source(secret=None)

    warned = text_of(press(admin, "triggers_source", source, "enter-secret", secret="short", hours="0"))
    assert "fewer than 16 characters" in warned and "The secret is saved" in warned
    assert "fewer than" not in text_of(
        press(admin, "triggers_source", source, "enter-secret", secret="long enough for this", hours="0")
    )
