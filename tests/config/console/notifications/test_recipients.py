"""The pages of recipients: a person adds one, edits its rules, silences and tests it, and reads what it got and why."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from runs.models import Delivery, Recipient, RecipientGroup
from runs.notifications.plan import plan
from tests.config.console.conftest import LogIn
from tests.config.console.test_actions import press
from tests.support.console import list_of, page_of
from tests.support.notifying import delivered, make_recipient, notify
from tests.support.post_office import taking_hooks

pytestmark = pytest.mark.django_db
RULES = {"zone": "UTC", "spacing": "30m", "repeat_after": "1d", "second_after": "10m", "least_urgency": "low"}


def text_of(client: Client, recipient: Recipient, **query: Any) -> str:
    """Its page, as a person reads it."""
    page = client.get(page_of("runs_recipient", recipient), query).content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def form_of(client: Client, recipient: Recipient) -> dict[str, str]:
    """What a browser would send of the form as it is."""
    page = client.get(page_of("runs_recipient", recipient).replace("/change/", "/edit/")).content.decode()
    fields: dict[str, str] = {}
    for tag in re.findall(r"<input[^>]*>", page):
        named = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if named.get("type") != "checkbox" or "checked" in tag:
            fields[named.get("name", "")] = named.get("value", "on" if named.get("type") == "checkbox" else "")
    chosen = re.findall(r'<select name="([\w-]+)".*?</select>', page, re.DOTALL)
    for name in chosen:
        options = re.search(rf'<select name="{name}".*?</select>', page, re.DOTALL)
        selected = options and re.search(r'value="([^"]*)" selected', options[0])
        fields[name] = selected[1] if selected else ""
    return fields


def save(client: Client, recipient: Recipient, fields: dict[str, str]) -> Any:
    return client.post(page_of("runs_recipient", recipient).replace("/change/", "/edit/"), fields, follow=True)


def test_a_recipient_is_added_with_its_rules(admin: Client) -> None:
    night = make_recipient("night")
    given = {**RULES, "quiet_from": "22:00", "quiet_until": "07:00", "digest_hour": "8", "second": str(night.pk)}

    admin.post("/admin/runs/recipient/add/", {**given, "name": "ops", "address": "inbox:ada", "active": "on"})

    made = Recipient.objects.get(name="ops")
    assert (made.digest_hour, made.second, made.gets_all) == (8, night, False)
    shown = text_of(admin, made)
    assert "22:00 to 07:00" in shown and "at 8:00" in shown and "night , after 10 min" in shown


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("address", "ops@example.com", "Use mailto:"),
        ("address", "inbox:unknown", "The console has no user"),
        ("zone", "Vienna", "Enter one such as Europe/Vienna"),
        ("quiet_until", "07:00", "Enter both quiet hours"),
        ("spacing", "often", "is not a duration"),
        ("name", "office", "Enter another name"),
    ],
)
def test_a_fault_stays_in_the_form_with_its_fix(admin: Client, field: str, value: str, fix: str) -> None:
    RecipientGroup.objects.create(name="office")
    given = {**RULES, "name": "ops", "address": "inbox:ada", "active": "on", field: value}

    answer = admin.post("/admin/runs/recipient/add/", given)

    assert answer.status_code == 200
    assert any(fix in error for error in answer.context["form"].errors[field])
    assert not Recipient.objects.exists()


def test_an_edit_saves_only_what_this_person_changed(admin: Client) -> None:
    recipient = make_recipient(spacing=timedelta(minutes=5), zone="Europe/Vienna", digest_hour=8)
    fields = form_of(admin, recipient)
    Recipient.objects.update(digest_hour=9, active=False)  # by another person, meanwhile

    save(admin, recipient, {**fields, "spacing": "10m"})

    recipient.refresh_from_db()
    assert (recipient.spacing, recipient.digest_hour, recipient.active) == (timedelta(minutes=10), 9, False)
    assert recipient.address == "inbox:ops"


def test_the_recipient_of_the_settings_keeps_its_address(admin: Client) -> None:
    recipient = make_recipient("WAKEFUL_NOTIFY_TO", is_from_settings=True)

    page = admin.get(page_of("runs_recipient", recipient).replace("/change/", "/edit/")).content.decode()
    save(admin, recipient, {**form_of(admin, recipient), "digest_hour": "7"})

    assert 'name="address"' not in page and 'name="active"' not in page
    recipient.refresh_from_db()
    assert recipient.digest_hour == 7
    assert press(admin, "runs_recipient", recipient, "remove").status_code == 200
    assert Recipient.objects.exists()


def test_who_leaves_no_recipient_that_gets_all_reads_what_that_means(admin: Client) -> None:
    first, last = make_recipient("first"), make_recipient("last")
    warning = "No active recipient gets notifications that name no recipient"

    assert warning not in save(admin, first, {**form_of(admin, first), "gets_all": ""}).content.decode()
    assert warning in save(admin, last, {**form_of(admin, last), "active": ""}).content.decode()


def test_the_recipient_of_the_settings_is_shown_as_the_last_resort(admin: Client) -> None:
    recipient = make_recipient("WAKEFUL_NOTIFY_TO", is_from_settings=True, gets_all=False)

    assert "no, except what no one else gets" in text_of(admin, recipient)


def test_a_silence_is_shown_with_its_end_by_the_clock_of_the_console(admin: Client) -> None:
    recipient = make_recipient(zone="Asia/Tokyo")

    press(admin, "runs_recipient", recipient, "silence", length="7d")
    recipient.refresh_from_db()

    assert recipient.silenced_until
    until = recipient.silenced_until.astimezone(UTC)
    assert f"Silenced until {until:%Y-%m-%d %H:%M:%S} UTC" in text_of(admin, recipient)
    press(admin, "runs_recipient", recipient, "silence", length="")
    assert "Silenced until" not in text_of(admin, recipient)


def test_a_test_shows_that_it_arrived_or_why_not(admin: Client) -> None:
    with taking_hooks() as hook:
        recipient = make_recipient(address=hook.url)
        press(admin, "runs_recipient", recipient, "test")
        assert 'hx-trigger="every 2s' in admin.get(page_of("runs_recipient", recipient)).content.decode()
        assert "The test is on its way." in text_of(admin, recipient)

        delivered()
        assert "The test has arrived at " in text_of(admin, recipient)

        hook.manner = "refuse"
        press(admin, "runs_recipient", recipient, "test")
        delivered()
        assert "The test has failed: it answered 410." in text_of(admin, recipient)


def test_the_page_shows_what_was_sent_held_merged_and_why_by_the_clock_of_the_console(admin: Client) -> None:
    recipient = make_recipient(zone="Asia/Tokyo", spacing=timedelta(hours=1))
    for text in ("first", "second", "third"):
        notify(text)
        delivered()
    notify("beneath", urgency="low")
    Recipient.objects.update(least_urgency="normal")
    plan()
    Delivery.objects.update(created_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC))

    shown = text_of(admin, recipient)
    held = text_of(admin, recipient, status="held")

    assert "2026-11-20 23:30:00 UTC" in shown and "2026-11-21" not in shown
    assert "all 4 · held 1 · merged 1 · sent 1 · suppressed 1" in shown.replace("  ", " ")
    assert "spacing of 1 h" in shown
    assert "goes out together with the one that is held" in shown
    assert "urgency low is below normal" in shown
    assert "second" in held and "third" not in held


def test_the_history_is_read_page_by_page(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.notifications.history.PER_PAGE", 2)
    recipient = make_recipient()
    for text in ("one", "two", "three", "four", "five"):
        notify(f"message {text}")
    delivered()
    seen = []
    query: dict[str, str] = {}
    while query is not None:
        page = admin.get(page_of("runs_recipient", recipient), query).content.decode()
        seen.append(re.findall(r"message (\w+)", page))
        older = re.search(r'href="\?(before=[\w-]+)">Older', page)
        if not older:
            break
        query = dict([older[1].split("=")])

    assert seen == [["five", "four"], ["three", "two"], ["one"]]


def test_the_inbox_of_a_missing_user_is_marked_as_unread(admin: Client) -> None:
    recipient = make_recipient(address="inbox:ada")
    assert "no one reads" not in text_of(admin, recipient)

    Recipient.objects.update(address="inbox:bob")
    recipient.refresh_from_db()

    assert "no one reads what is sent to it" in text_of(admin, recipient)


def test_an_operator_silences_and_tests_and_does_not_edit(log_in: LogIn) -> None:
    recipient = make_recipient()
    operator = log_in("runs.view_recipient", "runs.silence_recipient", "runs.test_recipient")

    assert press(operator, "runs_recipient", recipient, "silence", length="1h").status_code == 200
    assert press(operator, "runs_recipient", recipient, "test").status_code == 200
    for button in ("edit", "remove"):
        assert press(operator, "runs_recipient", recipient, button).status_code == 403
    assert operator.get(list_of("runs_recipient") + "add/").status_code == 403


def test_a_group_is_added_and_edited(admin: Client) -> None:
    ops, night = make_recipient("ops"), make_recipient("night")

    admin.post("/admin/runs/recipientgroup/add/", {"name": "office", "members": [str(ops.pk), str(night.pk)]})
    group = RecipientGroup.objects.get(name="office")
    assert group.members.count() == 2
    press(admin, "runs_recipientgroup", group, "edit", name="office", members=[str(night.pk)])

    assert list(group.members.all()) == [night]
    assert "office" in text_of(admin, night)
