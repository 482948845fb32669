"""A notification becomes deliveries once, by the rules of each recipient."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError, connection, transaction

from runs.db.sql import database_now, execute, fetch
from runs.models import Approval, Delivery, Notification, Recipient, RecipientGroup
from runs.notifications.edit import change_recipient
from runs.notifications.plan import SAID, plan
from tests.support.journals import make_approval
from tests.support.notifying import make_recipient, notify, quiet_now, statuses
from tests.support.runs import make_run
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db
HALF_AN_HOUR = timedelta(minutes=30)


def planned() -> list[tuple[str, str]]:
    plan()
    found = Delivery.objects.order_by("notification_id", "name")
    return [(one.name, one.status) for one in found]


def test_a_notification_without_recipient_goes_to_everyone_who_gets_all() -> None:
    make_recipient("ada")
    make_recipient("bob", gets_all=False)
    make_recipient("cy", active=False)
    notify()

    assert planned() == [("ada", "pending")]
    assert Notification.objects.get().planned_at is not None


def test_names_of_recipients_and_groups_are_met_once_each() -> None:
    ada, bob = make_recipient("ada", gets_all=False), make_recipient("bob", gets_all=False)
    make_recipient("everyone")
    RecipientGroup.objects.create(name="office").members.set([ada, bob])
    notify(to=["office", "ada"])

    assert planned() == [("ada", "pending"), ("bob", "pending")]


def test_an_unknown_name_is_recorded_and_costs_no_message() -> None:
    make_recipient("ops")
    notify(to=["opps"])

    assert planned() == [("opps", "suppressed"), ("ops", "pending")]
    assert Delivery.objects.get(name="opps").reason == "unknown recipient 'opps'; there are: ops"


def test_a_group_without_members_costs_no_message() -> None:
    make_recipient("ops")
    RecipientGroup.objects.create(name="office")
    notify(to=["office"])

    assert planned() == [("ops", "pending")]


def test_an_unknown_name_beside_a_known_one_reaches_the_known_one_alone() -> None:
    make_recipient("ops")
    make_recipient("ada", gets_all=False)
    notify(to=["ada", "opps"])

    assert planned() == [("ada", "pending"), ("opps", "suppressed")]


def test_a_notification_is_planned_also_without_any_recipient() -> None:
    notify()

    assert planned() == []
    assert not Notification.objects.filter(planned_at=None).exists()


def test_a_second_look_plans_nothing_twice() -> None:
    make_recipient()
    notify()

    assert (plan(), plan()) == (1, 0)
    assert statuses() == ["pending"]


def test_within_the_spacing_one_is_held_and_the_others_are_merged_into_it() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    for text in "abcd":
        notify(text)

    planned()

    assert statuses() == ["pending", "held", "merged", "merged"]
    held = Delivery.objects.get(status="held")
    assert held.reason == "spacing of 30 min"
    assert held.due_at and timedelta(minutes=29) < held.due_at - database_now() <= HALF_AN_HOUR
    assert set(Delivery.objects.filter(status="merged").values_list("merged_into", flat=True)) == {held.pk}


def test_a_later_notification_is_merged_into_the_held_delivery() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    for text in "ab":
        notify(text)
    plan()
    notify("c")

    planned()

    assert statuses() == ["pending", "held", "merged"]


def test_urgent_news_passes_what_is_held() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    notify("a")
    notify("b")
    notify("c", urgency="high")

    planned()

    assert statuses() == ["pending", "held", "pending"]


def test_the_same_text_about_a_topic_is_nothing_new_in_the_same_batch_and_in_the_next() -> None:
    make_recipient()
    notify("90 %", topic="disk")
    notify("90 %", topic="disk")
    plan()
    Delivery.objects.filter(status="pending").update(status="sent", due_at=None, sent_at=database_now())
    notify("90 %", topic="disk")
    notify("95 %", topic="disk")
    notify("90 %", topic="memory")

    planned()

    assert statuses() == ["sent", "suppressed", "suppressed", "pending", "pending"]
    assert {one.reason for one in Delivery.objects.filter(status="suppressed")} == {"nothing new about its topic"}


def test_a_text_whose_delivery_failed_is_sent_again() -> None:
    make_recipient()
    notify("90 %", topic="disk")
    plan()
    Delivery.objects.update(status="failed", due_at=None)
    notify("90 %", topic="disk")

    planned()

    assert statuses() == ["failed", "pending"]


def test_urgent_news_to_a_silenced_recipient_takes_its_second_route() -> None:
    second = make_recipient("night", gets_all=False)
    make_recipient("day", second=second, silenced_until=database_now() + timedelta(hours=1))
    notify("a", urgency="high")
    notify("b")

    assert planned() == [("day", "suppressed"), ("night", "pending"), ("day", "suppressed")]


def test_routes_that_go_in_a_circle_end() -> None:
    silenced_until = database_now() + timedelta(hours=1)
    one, two = (
        make_recipient("one", silenced_until=silenced_until),
        make_recipient("two", silenced_until=silenced_until),
    )
    for first, second in ((one, two), (two, one)):
        first.second = second
        first.save()
    notify(urgency="high")

    assert planned() == [("one", "suppressed"), ("two", "suppressed")]


def test_the_recipient_of_the_settings_stays_until_its_setting_goes_or_an_edit_limits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "EMAIL_URL", "smtp://127.0.0.1")
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "mailto:ops@example.com")
    notify("a")
    plan()
    of_settings = Recipient.objects.get()
    assert (of_settings.name, of_settings.address, of_settings.channel) == (
        "WAKEFUL_NOTIFY_TO",
        "mailto:ops@example.com",
        "mail",
    )
    make_recipient("ada", "https://example.com/")

    def receivers(text: str) -> list[str]:
        notify(text)
        plan()
        return sorted(Delivery.objects.filter(notification__text=text).values_list("name", flat=True))

    assert receivers("b") == ["WAKEFUL_NOTIFY_TO", "ada"]

    change_recipient(of_settings.pk, by="test", gets_all=False)
    assert receivers("c") == ["ada"]

    change_recipient(of_settings.pk, by="test", gets_all=True)
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "")
    assert receivers("d") == ["ada"]
    assert not Recipient.objects.get(is_from_settings=True).active


def test_what_no_one_else_gets_goes_to_the_recipient_of_the_settings_although_it_does_not_get_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "inbox:ops")
    make_recipient("ada", "inbox:ada")
    notify("a")
    plan()
    change_recipient(Recipient.objects.get(is_from_settings=True).pk, by="test", gets_all=False, spacing=timedelta())
    change_recipient(Recipient.objects.get(name="ada").pk, by="test", active=False)
    notify("b")
    plan()

    assert statuses(notification__text="b", name="WAKEFUL_NOTIFY_TO") == ["pending"]


def test_what_names_only_inactive_recipients_goes_to_those_who_get_all() -> None:
    make_recipient("gone", active=False, gets_all=False)
    make_recipient("ada", gets_all=False)
    make_recipient("ops")
    notify("a", to=["gone"])
    notify("b", to=["gone", "ada"])

    assert planned() == [("gone", "suppressed"), ("ops", "pending"), ("ada", "pending"), ("gone", "suppressed")]


def ask() -> tuple[Approval, Notification]:
    approval = make_approval(make_run(status="waiting"), status="open")
    return approval, notify("May I?", link=f"approval:{approval.pk}", topic=f"approval:{approval.pk}")


def test_a_request_for_approval_does_not_wait_for_spacing_nor_for_what_is_held() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    notify("a")
    plan()
    Delivery.objects.update(status="sent", due_at=None, sent_at=database_now() - timedelta(minutes=2))
    notify("b")
    ask()
    notify("c")

    planned()

    assert statuses() == ["sent", "held", "pending", "merged"]


def test_requests_for_approval_are_one_message_a_minute_however_many_there_are() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    notify("a")
    notify("b")
    for _ in range(40):
        ask()

    planned()

    held = Delivery.objects.get(status="held")
    assert held.due_at and held.due_at - database_now() <= timedelta(minutes=1)  # what waits goes along
    assert sorted(set(statuses())) == ["held", "merged", "pending"] and statuses().count("pending") == 1


def test_a_request_for_approval_waits_for_the_end_of_quiet_hours() -> None:
    make_recipient(**quiet_now())
    ask()

    planned()

    assert statuses() == ["held"]


def test_a_link_that_is_no_approval_is_no_request() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    notify("a")
    notify("b", link="approval:of-the-board")

    planned()

    assert statuses() == ["pending", "held"]


def test_a_zone_that_this_machine_does_not_know_stops_nothing() -> None:
    make_recipient("ops", zone="Mars/Olympus", **quiet_now())
    make_recipient("ada")
    notify()

    plan()

    assert statuses(name="ada") == ["pending"]
    assert Delivery.objects.get(name="ops").reason == "quiet hours"


def test_a_transaction_takes_no_more_notifications_when_it_has_many_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.notifications.plan.MOST", 3)
    make_recipient("ada")
    make_recipient("bob")
    for text in "abc":
        notify(text)

    assert (plan(), plan(), plan()) == (2, 1, 0)
    assert len(statuses()) == 6


def test_a_secret_of_the_settings_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "https://hooks.slack.com/services/T0/B0/very-secret")
    notify()

    plan()

    recipient = Recipient.objects.get()
    assert recipient.address == "slack at hooks.slack.com" and recipient.ciphertext is None


def test_the_alarm_of_a_recipient_is_not_sent_to_it() -> None:
    make_recipient("ops")
    make_recipient("ada")
    notify("ops cannot be reached", topic="alarm:unreachable:ops:7")

    assert planned() == [("ada", "pending"), ("ops", "suppressed")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "held", "reason": "spacing"},  # not due
        {"status": "sent"},  # at no time
        {"status": "merged", "reason": "x"},  # into none
        {"status": "suppressed"},  # for no reason
        {"status": "lost"},
        {"status": "failed", "acknowledged_by": "ada"},
    ],
)
def test_the_database_refuses_deliveries_that_make_no_sense(wrong: dict[str, Any]) -> None:
    recipient, notification = make_recipient(), notify()

    with pytest.raises(IntegrityError), transaction.atomic():
        Delivery.objects.create(notification=notification, recipient=recipient, name="ops", **wrong)


def test_many_recipients_of_many_notifications_are_planned_at_once() -> None:
    for number in range(100):
        make_recipient(str(number), spacing=HALF_AN_HOUR)
    for number in range(40):
        notify(str(number))

    assert plan() == 40
    assert Delivery.objects.count() == 4000


def test_a_notification_goes_with_its_deliveries() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    for text in "abc":
        notify(text)
    plan()

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM runs_notification")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    assert not Delivery.objects.exists()


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_processes_that_plan_at_the_same_time_plan_each_notification_once() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    for number in range(60):
        notify(str(number))

    def work() -> None:
        while Notification.objects.filter(planned_at=None).exists():
            plan(7)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert statuses() == ["pending", "held", *["merged"] * 58]


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_nothing_is_merged_into_a_message_that_is_just_being_claimed() -> None:
    make_recipient(spacing=HALF_AN_HOUR)
    notify("a")
    notify("b")
    plan()
    notify("c")
    done: list[int] = []

    def work() -> None:
        done.append(plan())
        connection.close()

    with transaction.atomic():
        Delivery.objects.filter(status="held").update(status="sending")
        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: _waits_for_a_lock() or done)
        assert not done
    thread.join(60)

    assert done == [1]
    assert statuses() == ["pending", "sending", "held"]


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_the_last_text_about_a_topic_is_found_without_reading_its_history() -> None:
    ids = [make_recipient(name, gets_all=False).pk for name in ("ada", "bob")]
    execute(
        """
        WITH told AS (
          INSERT INTO runs_notification (sender, urgency, text, topic, planned_at)
          SELECT 'watch', 'normal', 'text ' || n, 'disk', clock_timestamp() FROM generate_series(1, 3000) n RETURNING id)
        INSERT INTO runs_delivery (id, notification_id, recipient_id, name, channel, is_urgent, status, reason, attempts, error,
          acknowledged_by, sent_at)
        SELECT gen_random_uuid(), told.id, recipient, 'r', 'inbox', false, 'sent', '', 1, '', '', clock_timestamp()
        FROM told CROSS JOIN unnest(%s::bigint[]) recipient
        """,
        [ids],
    )
    execute("ANALYZE runs_notification")
    execute("ANALYZE runs_delivery")
    parameters = {"topics": ["disk"], "recipients": ids, "most": 10_000}

    [(plan_of,)] = fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SAID}", parameters)

    top = (plan_of if isinstance(plan_of, list) else json.loads(plan_of))[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 100
    assert {row[2] for row in fetch(SAID, parameters)} == {"text 3000"}
