"""`manage.py recipients`: what operators do to recipients, from the command line."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from runs.models import AuditEntry, Delivery, Recipient, RecipientGroup
from tests.runs.test_commands import run_command
from tests.support.notifying import make_recipient

pytestmark = pytest.mark.django_db


def recipients(*words: str) -> tuple[str, str, bool]:
    return run_command("recipients", *words)


def test_a_recipient_is_added_changed_and_removed() -> None:
    User.objects.create_user("ada", is_staff=True)
    make_recipient("night")

    added = recipients("add", "ops", "inbox:ada", "--quiet", "22:00-07:00", "--second", "night", "--digest-hour", "8")
    ops = Recipient.objects.get(name="ops")
    assert added == ("ops is added.\n", "", True)
    assert (str(ops.quiet_from), ops.digest_hour, ops.second and ops.second.name) == ("22:00:00", 8, "night")

    rules = ("--quiet", "none", "--second", "none", "--digest-hour", "none", "--spacing", "45m", "--no-active")
    assert recipients("change", "ops", *rules)[2]
    ops.refresh_from_db()
    assert (ops.quiet_from, ops.second, ops.digest_hour, ops.spacing) == (None, None, None, timedelta(minutes=45))
    assert not ops.active

    assert recipients("remove", "ops") == ("ops is removed.\n", "", True)
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"create", "change", "remove"}


def test_a_recipient_is_silenced_for_a_time() -> None:
    recipient = make_recipient()

    assert "ops is silenced until" in recipients("silence", "ops", "1h")[0]
    recipient.refresh_from_db()
    assert recipient.silenced_until
    assert recipients("unsilence", "ops")[2]


def test_a_group_is_set_and_removed() -> None:
    make_recipient("ops")
    make_recipient("night")

    assert recipients("group", "office", "ops", "night")[0] == "office has 2 members.\n"
    assert recipients("group", "office", "ops")[2]
    shown = json.loads(recipients("--json")[0])
    assert shown["groups"] == [{"id": RecipientGroup.objects.get().pk, "name": "office", "members": ["ops"]}]
    assert recipients("ungroup", "office")[2]
    assert not RecipientGroup.objects.exists()


def test_faults_name_the_field() -> None:
    make_recipient()

    assert not recipients("change", "ops", "--zone", "Vienna")[2]
    assert not recipients("change", "unknown", "--zone", "UTC")[2]
    assert Recipient.objects.get().zone == "UTC"


def test_a_test_that_does_not_arrive_in_time_is_a_failure() -> None:
    make_recipient()

    assert not recipients("test", "ops", "--wait", "0.1")[2]  # no dispatcher runs
    assert Delivery.objects.get().status == "pending"
