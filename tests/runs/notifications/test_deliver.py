"""What is sent, sent again, given up and left unknown, with real servers that misbehave."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db.models import F, Q

from runs.db.sql import database_now, execute
from runs.models import Approval, Delivery, Notification, Recipient, Wait
from runs.notifications import deliver, message_of_delivery
from runs.notifications.channels import mail
from runs.notifications.channels.channel import NotNow, Refused, Sent, Unknown
from runs.notifications.deliver import Deliverer, claim_next, expire, fail, record
from runs.notifications.plan import plan
from tests.support.journals import make_approval
from tests.support.notifying import delivered, make_due, make_recipient, notify, quiet_now, statuses
from tests.support.post_office import HookServer, MailServer, taking_hooks, taking_mail, text_of
from tests.support.runs import make_run
from tests.support.stack import PATIENCE

pytestmark = pytest.mark.django_db
HALF_AN_HOUR = timedelta(minutes=30)
OPS = "mailto:ops@example.com"


@pytest.fixture
def smtp(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    with taking_mail() as server:
        monkeypatch.setattr(settings, "EMAIL_URL", server.url)
        yield server


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with taking_hooks() as server:
        yield server


def one() -> Delivery:
    return Delivery.objects.get()


def test_mail_is_sent_once_and_recorded(smtp: MailServer) -> None:
    make_recipient(address=OPS)
    notify("Disk full\nOn host a.", link="https://example.com/a")

    delivered()
    delivered()

    [letter] = smtp.letters
    assert (letter["To"], letter["From"]) == ("ops@example.com", "Wakeful <wakeful@example.com>")
    assert letter["Subject"] == "Disk full On host a."
    assert text_of(letter).startswith("Disk full\nOn host a.\nhttps://example.com/a\n— greeter, ")
    assert (one().status, one().attempts) == ("sent", 1)
    assert one().sent_at is not None


def test_held_ones_go_out_together_as_one_message(smtp: MailServer) -> None:
    make_recipient(address=OPS, spacing=HALF_AN_HOUR)
    for text in ("first", "second", "third", "fourth"):
        notify(text)
    delivered()
    assert statuses() == ["sent", "held", "merged", "merged"]

    make_due()
    delivered()

    assert statuses() == ["sent", "sent", "merged", "merged"]
    assert [letter["Subject"] for letter in smtp.letters] == ["first", "3 notifications: second"]
    assert [text_of(smtp.letters[1]).count(text) for text in ("second", "third", "fourth")] == [1, 1, 1]


def test_mail_that_is_refused_fails_for_good_without_quoting_the_server(smtp: MailServer) -> None:
    smtp.manner = "refuse"
    make_recipient(address=OPS)
    notify()

    delivered()

    assert (one().status, one().error) == ("failed", "the server answered 550")
    assert Recipient.objects.get().failing_since is not None


@pytest.mark.parametrize("manner", ["later", "greylist", "hang up", "closed"])
def test_mail_that_was_not_taken_is_sent_later(smtp: MailServer, manner: Any) -> None:
    make_recipient(address=OPS)
    notify()
    if manner == "closed":
        smtp.close()
    smtp.manner = manner

    delivered()
    assert (one().status, one().attempts) == ("pending", 1)
    assert one().due_at and one().error

    smtp.manner = "take"
    if manner == "closed":
        smtp.open()
    make_due()
    delivered()
    assert (one().status, one().attempts, len(smtp.letters)) == ("sent", 2, 1)


def test_mail_that_was_taken_without_an_answer_is_unknown_and_never_repeated(smtp: MailServer) -> None:
    smtp.manner = "cut"
    make_recipient(address=OPS)
    notify()

    delivered()
    make_due()
    delivered(Deliverer())

    assert one().status == "unknown"
    assert one().reason.startswith("it may have arrived: handed over")
    assert len(smtp.letters) == 1


@pytest.mark.parametrize("manner", ["silent", "drip"])
def test_a_mail_server_that_takes_too_long_is_left(
    smtp: MailServer, manner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "PATIENCE", 0.5)
    smtp.manner = manner
    make_recipient(address=OPS)
    notify()

    delivered()

    assert one().status == "unknown"


@pytest.mark.parametrize("manner", ["later", "greylist", "hang up", "closed", "cut", "gateway"])
def test_a_webhook_is_sent_again_also_if_it_may_have_arrived(hook: HookServer, manner: Any) -> None:
    make_recipient(address=hook.url)
    notify()
    if manner == "closed":
        hook.close()
    hook.manner = manner

    delivered()
    assert (one().status, one().attempts) == ("pending", 1)

    hook.manner = "take"
    if manner == "closed":
        hook.open()
    make_due()
    delivered()
    assert (one().status, one().attempts) == ("sent", 2)
    assert set(hook.ids) == {f"msg_{one().pk}"}  # by which a receiver recognises a repeat
    assert len({posted.body for posted in hook.posted}) == 1


def test_a_receiver_that_names_a_pause_gets_the_message_after_it(hook: HookServer) -> None:
    hook.manner = "greylist"
    make_recipient(address=hook.url)
    notify()

    delivered()

    due_at = one().due_at
    assert due_at and timedelta(seconds=5) < due_at - database_now() <= timedelta(seconds=7)


@pytest.mark.parametrize(
    ("manner", "why"), [("refuse", "it answered 410"), ("redirect", "it answered 302, a redirect")]
)
def test_a_webhook_that_is_refused_fails_for_good(hook: HookServer, manner: Any, why: str) -> None:
    hook.manner = manner
    make_recipient(address=hook.url)
    notify()

    delivered()

    assert one().status == "failed" and one().error.startswith(why)


@pytest.mark.parametrize("manner", ["cut", "gateway"])
def test_slack_cannot_tell_a_repeat(hook: HookServer, manner: Any) -> None:
    hook.manner = manner
    make_recipient(address=f"slack+{hook.url}")
    notify()

    delivered()
    make_due()
    delivered()

    assert (one().status, len(hook.posted)) == ("unknown", 1)


def test_the_pauses_between_tries_grow(hook: HookServer) -> None:
    hook.close()
    make_recipient(address=hook.url)
    notify()
    pauses = []
    for _ in range(4):
        delivered()
        due_at = one().due_at
        assert due_at
        pauses.append(round((due_at - database_now()).total_seconds()))
        make_due()

    assert pauses == [5, 10, 20, 40]


def test_the_second_route_is_taken_when_the_first_refuses(hook: HookServer) -> None:
    hook.manner = "refuse"
    second = make_recipient("night", gets_all=False)
    make_recipient("day", hook.url, second=second)
    notify()

    delivered()

    assert statuses(name="day") == ["failed"] and statuses(name="night") == ["sent"]
    assert Delivery.objects.get(name="day").reason == "it answered 410; sent to night instead"
    assert Delivery.objects.get(name="night").reason == "second route of day"


def test_a_request_for_approval_waits_for_no_spacing_of_the_second_route(hook: HookServer) -> None:
    second = make_recipient("night", gets_all=False, spacing=HALF_AN_HOUR)
    make_recipient("day", hook.url, second=second)
    notify("earlier", to=["night"])
    delivered()
    Delivery.objects.update(sent_at=F("sent_at") - timedelta(minutes=2))
    hook.manner = "refuse"
    approval = make_approval(make_run(status="waiting"), status="open")
    notify("May I?", link=f"approval:{approval.pk}")

    delivered()

    assert statuses(name="day") == ["failed"] and statuses(name="night") == ["sent", "sent"]


def test_a_notification_that_reached_no_named_recipient_goes_to_those_who_get_all(hook: HookServer) -> None:
    hook.manner = "refuse"
    make_recipient("night", hook.url, gets_all=False)
    make_recipient("gone", hook.url + "?gone", gets_all=False)
    make_recipient("ops", "inbox:ops")
    notify("late", to=["night", "gone"])

    delivered()

    assert statuses(name="night") == statuses(name="gone") == ["failed"]
    assert statuses(name="ops") == ["sent"]
    assert Delivery.objects.filter(reason__endswith="sent to ops instead").count() == 1


def test_what_failed_at_every_recipient_goes_to_the_recipient_of_the_settings_although_it_does_not_get_all(
    hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "inbox:ops")
    hook.manner = "refuse"
    make_recipient("WAKEFUL_NOTIFY_TO", "inbox:ops", is_from_settings=True, gets_all=False)
    make_recipient("night", hook.url)
    make_recipient("gone", hook.url + "?gone")
    notify("late")

    delivered()

    assert statuses(name="night") == statuses(name="gone") == ["failed"]
    assert statuses(name="WAKEFUL_NOTIFY_TO") == ["sent"]


def test_a_failure_is_not_recorded_as_sent_to_one_that_is_silenced(hook: HookServer) -> None:
    hook.manner = "refuse"
    make_recipient("night", hook.url, gets_all=False)
    make_recipient("ops", "inbox:ops", silenced_until=database_now() + timedelta(hours=1))
    notify("late", to=["night"])

    delivered()

    assert statuses(name="ops") == ["suppressed"]
    assert "instead" not in Delivery.objects.get(name="night").reason


def test_a_notification_that_reached_one_named_recipient_goes_to_no_other(hook: HookServer) -> None:
    hook.manner = "refuse"
    make_recipient("gone", hook.url, gets_all=False)
    make_recipient("ada", "inbox:ada", gets_all=False)
    make_recipient("ops", "inbox:ops")
    notify("late", to=["ada", "gone"])

    delivered()

    assert statuses(name="gone") == ["failed"] and statuses(name="ada") == ["sent"]
    assert statuses(name="ops") == []


def test_a_held_message_drops_decided_approvals_and_lists_open_ones_first(smtp: MailServer) -> None:
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    approvals = [make_approval(make_run(status="waiting"), status="open", question=f"Renew {name}?") for name in "AB"]
    notify("Disk is full")
    for approval in approvals:
        notify(approval.question, link=f"approval:{approval.pk}")
    plan()
    make_due()
    Wait.objects.filter(approval=approvals[0]).update(status="closed", ended_at=database_now())

    delivered()

    [letter] = smtp.letters
    text = text_of(letter)
    assert "Renew A?" not in text and text.index("Renew B?") < text.index("Disk is full")


@pytest.mark.parametrize("status", ["expired", "open"])
def test_a_request_that_expired_while_it_was_held_is_reported_as_unanswered(smtp: MailServer, status: str) -> None:
    """Also if the timer has not ended its wait yet."""
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    approval = make_approval(make_run(status="waiting"), status="open")
    notify("Asks for approval: Renew?", link=f"approval:{approval.pk}")
    notify("Disk is full")
    notify("Pay?", link=f"approval:{make_approval(make_run(status='waiting'), status='open').pk}")
    plan()
    make_due()
    ended_at = database_now() if status == "expired" else None
    Wait.objects.filter(approval=approval).update(
        status=status, due_at=database_now() - timedelta(minutes=1), ended_at=ended_at
    )

    delivered()

    [letter] = smtp.letters
    text = text_of(letter)
    assert text.index("It has expired without an answer. Asks for approval: Renew?") < text.index("Disk is full")
    assert "3 notifications: Pay?" in letter["Subject"]


def test_a_held_message_carries_of_one_alarm_or_incident_its_last_report(smtp: MailServer) -> None:
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    notify("3 failed runs in a row", link="incident:7", topic="incident:7")
    notify("It succeeds again", link="incident:7", topic="incident:7")
    notify("Another one fails", link="incident:8", topic="incident:8")
    notify("Disk is full", link="https://grafana.example.com/d/7")
    notify("Disk is fuller", link="https://grafana.example.com/d/7")
    plan()
    make_due()

    delivered()

    [letter] = smtp.letters
    text = text_of(letter)
    assert "4 notifications" in letter["Subject"] and "3 failed runs" not in text
    assert all(said in text for said in ("succeeds again", "Another one", "is full", "is fuller"))
    assert Delivery.objects.get(notification__text="3 failed runs in a row").reason.startswith("carries the others;")


def test_a_request_that_was_left_out_of_a_message_is_not_recorded_as_sent_with_it(smtp: MailServer) -> None:
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    notify("Disk is full")
    approvals = [make_approval(make_run(status="waiting"), status="open", question=f"Renew {name}?") for name in "ABC"]
    for approval in approvals:
        notify(approval.question, link=f"approval:{approval.pk}")
    plan()
    make_due()
    Wait.objects.filter(approval=approvals[0]).update(status="done", ended_at=database_now())
    decided = {"decision": "approve", "decided_by": "ann", "decided_at": database_now()}
    Approval.objects.filter(pk=approvals[0].pk).update(**decided)
    Wait.objects.filter(approval=approvals[1]).update(status="closed", ended_at=database_now())

    delivered()

    text = text_of(smtp.letters[0])
    assert "Renew A?" not in text and "Renew B?" not in text and "Renew C?" in text
    left_out = Delivery.objects.get(notification__text="Renew A?")
    assert (left_out.status, left_out.merged_into_id) == ("suppressed", None) and "was decided" in left_out.reason
    assert statuses(notification__text="Renew C?") == ["merged"]


def test_news_behind_many_settled_requests_is_sent(smtp: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "MOST_ITEMS", 3)
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    settled = make_approval(make_run(status="waiting"), status="open")
    for _ in range(5):
        notify("Renew?", link=f"approval:{settled.pk}")
    for number in range(4):
        notify(f"Disk {number} is full")
    approval = make_approval(make_run(status="waiting"), status="open")
    notify("Pay?", link=f"approval:{approval.pk}")
    plan()
    make_due()
    Wait.objects.filter(approval=settled).update(status="closed", ended_at=database_now())

    delivered()

    [letter] = smtp.letters
    text = text_of(letter)
    assert text.index("Pay?") < text.index("Disk 0 is full") and "2 more had no room" in text and "Renew?" not in text


def test_a_link_to_an_approval_that_does_not_exist_settles_nothing(smtp: MailServer) -> None:
    make_recipient("ops", "mailto:ops@example.com")
    notify("Look", link=f"approval:{uuid4()}")

    delivered()

    assert len(smtp.letters) == 1


def test_a_message_of_many_that_failed_is_one_message_to_those_who_get_all(hook: HookServer) -> None:
    hook.manner = "refuse"
    make_recipient("night", hook.url, gets_all=False, **quiet_now())
    make_recipient("ops", "inbox:ops")
    for number in range(20):
        notify(str(number), to=["night"])
    plan()
    make_due()

    delivered()

    assert sorted(statuses(name="ops")) == [*["merged"] * 19, "sent"]


def test_a_message_whose_only_request_is_decided_is_not_sent(smtp: MailServer) -> None:
    make_recipient("ops", "mailto:ops@example.com", **quiet_now())
    approval = make_approval(make_run(status="waiting"), status="open")
    notify("Renew?", link=f"approval:{approval.pk}")
    plan()
    make_due()
    Wait.objects.filter(approval=approval).update(status="closed", ended_at=database_now())

    delivered()

    assert not smtp.letters
    assert Delivery.objects.get().reason == "what it asks for is decided, or its run was stopped"


def test_the_second_route_is_taken_after_its_time_and_the_first_is_left_alone(hook: HookServer) -> None:
    second = make_recipient("night", gets_all=False)
    make_recipient("day", hook.url, second=second, second_after=timedelta(minutes=10))
    notify()
    hook.close()
    delivered()
    assert statuses() == ["pending"]
    give_up_at = one().give_up_at
    assert give_up_at and give_up_at - database_now() <= timedelta(minutes=10)

    Delivery.objects.update(give_up_at=database_now(), due_at=database_now())
    delivered()
    hook.open()
    make_due()
    delivered()

    assert statuses(name="day") == ["failed"] and statuses(name="night") == ["sent"]
    assert hook.posted == []


def test_the_second_route_gets_all_that_was_merged_as_one_message(hook: HookServer, smtp: MailServer) -> None:
    hook.manner = "refuse"
    second = make_recipient("night", OPS, gets_all=False, spacing=HALF_AN_HOUR)
    make_recipient("day", hook.url, second=second, spacing=HALF_AN_HOUR)
    for text in ("first", "second", "third"):
        notify(text)
    delivered()  # the first alone
    Delivery.objects.filter(status="sent").update(sent_at=F("sent_at") - timedelta(hours=1))
    make_due()
    delivered()

    assert statuses(name="night") == ["sent", "sent", "merged"]
    assert [letter["Subject"] for letter in smtp.letters] == ["first", "2 notifications: second"]


def test_an_urgent_message_passes_a_second_route_that_is_silenced(hook: HookServer) -> None:
    hook.manner = "refuse"
    third = make_recipient("boss", gets_all=False)
    until = database_now() + timedelta(hours=1)
    second = make_recipient("night", gets_all=False, second=third, silenced_until=until)
    make_recipient("day", hook.url, second=second)
    notify("a", urgency="high")
    notify("b")

    delivered()

    assert statuses(name="night") == ["suppressed", "suppressed"]
    assert statuses(name="boss") == ["sent"]
    assert Delivery.objects.get(name="day", is_urgent=True).reason.endswith("sent to boss instead")


def test_a_message_that_carries_more_than_a_statement_has_parameters_can_fail() -> None:
    make_recipient("day", "https://127.0.0.1:1/", second=make_recipient("night", gets_all=False))
    notify()
    plan()
    carrier = one()
    execute(
        """
        INSERT INTO runs_delivery (id, notification_id, merged_into_id, name, channel, is_urgent, status, reason, attempts, error,
          acknowledged_by)
        SELECT gen_random_uuid(), %s::bigint, %s::uuid, 'day', 'webhook', false, 'merged', 'held', 0, '', ''
        FROM generate_series(1, 66000)
        """,
        [carrier.notification_id, carrier.pk],
    )

    assert fail(carrier.pk, Q(), "it is away")

    assert statuses(name="night") == ["pending"]


def test_an_attempt_that_was_under_way_when_its_recipient_became_inactive_is_the_last(hook: HookServer) -> None:
    hook.manner = "later"
    recipient = make_recipient(address=hook.url)
    notify()
    delivered()
    assert statuses() == ["pending"]

    Recipient.objects.filter(pk=recipient.pk).update(active=False)
    make_due()
    delivered()

    assert (statuses(), one().reason, len(hook.posted)) == (["suppressed"], "the recipient is inactive", 1)


def test_an_attempt_that_was_under_way_when_its_recipient_was_silenced_is_repeated_after_the_silence(
    hook: HookServer,
) -> None:
    hook.manner = "later"
    recipient = make_recipient(address=hook.url)
    notify()
    delivered()
    until = database_now() + timedelta(hours=1)
    Recipient.objects.filter(pk=recipient.pk).update(silenced_until=until)
    make_due()

    delivered()

    assert (statuses(), one().due_at, len(hook.posted)) == (["pending"], until, 1)


def test_deliveries_to_the_recipient_of_the_settings_end_with_the_setting(
    hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.manner = "later"
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", hook.url)
    notify()
    delivered()
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "")
    make_due()

    delivered()

    assert (statuses(), len(hook.posted)) == (["suppressed"], 1)


def test_slow_hosts_do_not_keep_the_last_thread_from_others(hook: HookServer) -> None:
    make_recipient("slow", hook.url, gets_all=False)
    make_recipient("quick", gets_all=False)
    notify(to=["slow"])
    notify(to=["quick"])
    plan()
    Delivery.objects.filter(name="slow").update(due_at=database_now() - HALF_AN_HOUR)
    deliverer = Deliverer()
    deliverer.breakers.began(Recipient.objects.get(name="slow").host)
    deliverer.sending.under_way = deliver.THREADS - 1

    deliverer.deliver_some()

    assert (statuses(name="slow"), statuses(name="quick")) == (["pending"], ["sending"])


def test_a_delivery_behind_a_dead_host_takes_the_second_route_untried(hook: HookServer) -> None:
    hook.close()
    second = make_recipient("night", gets_all=False)
    make_recipient("day", hook.url, second=second)
    deliverer = Deliverer()
    notify("a")
    delivered(deliverer)
    notify("b")
    plan()
    Delivery.objects.filter(notification__text="b").update(give_up_at=database_now() - timedelta(seconds=1))
    for breaker in deliverer.breakers.opened.values():
        breaker.retry_at = time.monotonic() + 60

    delivered(deliverer)

    assert statuses(notification__text="b") == ["failed", "sent"]
    assert Delivery.objects.get(notification__text="b", name="day").attempts == 0


def test_a_delivery_that_waited_while_no_process_ran_is_tried_before_it_is_given_up(hook: HookServer) -> None:
    make_recipient(address=hook.url)
    notify()
    plan()
    Delivery.objects.update(give_up_at=database_now() - timedelta(days=1))

    delivered()

    assert statuses() == ["sent"]


def test_a_dead_host_does_not_delay_the_others(
    hook: HookServer, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.manner = "silent"
    make_recipient("slow", hook.url, gets_all=False)
    make_recipient("ops", OPS)
    deliverer = Deliverer()
    for _ in range(20):
        notify(to=["slow"])
    notify("quick")
    plan()

    give_up_at = time.monotonic() + PATIENCE
    while not smtp.letters:
        deliverer.deliver_some()
        assert time.monotonic() < give_up_at, (statuses(), deliverer.sending.under_way, deliverer.breakers)
        time.sleep(0.01)

    assert deliverer.sending.under_way <= deliver.THREADS
    assert len(hook.posted) <= 3
    assert statuses(name="slow").count("sent") == 0
    hook.gate.set()
    hook.close()


def test_a_message_whose_process_died_is_unknown_or_repeated_when_its_lease_ends(hook: HookServer) -> None:
    make_recipient("mail", OPS)
    make_recipient("hook", hook.url)
    notify()
    plan()
    claims = {job.channel for job in (claim_next([]), claim_next([])) if job}
    assert claims == {"mail", "webhook"}

    make_due()  # their leases as well
    assert expire() == 2

    assert statuses(name="mail") == ["unknown"] and statuses(name="hook") == ["pending"]


def test_a_word_that_comes_after_the_lease_still_counts() -> None:
    make_recipient("mail", OPS)
    notify()
    plan()
    job = claim_next([])
    assert job
    make_due()
    expire()

    assert record(deliver.Result(job=job, outcome=Sent()))

    assert statuses() == ["sent"]


def test_a_word_of_another_claim_does_not_count() -> None:
    make_recipient("mail", OPS)
    notify()
    plan()
    job = claim_next([])
    assert job
    Delivery.objects.update(claim=uuid4())

    for outcome in (Sent(), Refused(why="no"), NotNow(why="no"), Unknown(why="no")):
        assert not record(deliver.Result(job=job, outcome=outcome))

    assert statuses() == ["sending"]


def test_a_claim_is_on_disk_before_anything_is_sent(hook: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        deliver, "failpoint", lambda name: seen.append(f"{name} {statuses()}") if name == "before_delivery" else None
    )
    make_recipient(address=hook.url)
    notify()

    delivered()

    assert seen == ["before_delivery ['sending']"]


def test_success_ends_the_failing_of_a_recipient(hook: HookServer) -> None:
    hook.manner = "refuse"
    make_recipient(address=hook.url)
    notify()
    delivered()
    assert Recipient.objects.exclude(failing_since=None).exists()

    hook.manner = "take"
    notify()
    delivered()

    assert not Recipient.objects.exclude(failing_since=None).exists()


def test_urgent_messages_go_first(hook: HookServer) -> None:
    make_recipient(address=hook.url)
    for number in range(10):
        notify(str(number))
    notify("now", urgency="high")
    plan()

    job = claim_next([])

    assert job and job.message.subject == "now"


def test_an_erased_text_is_not_sent(smtp: MailServer) -> None:
    make_recipient(address=OPS)
    notify("Ada's number is 7")
    plan()
    Notification.objects.update(text="(erased)")

    delivered()

    assert "Ada" not in text_of(smtp.letters[0])


def test_an_address_that_no_key_decrypts_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_ENCRYPTION_KEYS", [])
    make_recipient(address="https://example.com/", ciphertext=b"x")
    notify()

    delivered()

    assert one().status == "pending"
    assert one().error == "no key in WAKEFUL_ENCRYPTION_KEYS decrypts the address"


def test_an_address_that_changes_between_claim_and_sending_is_not_used_by_the_wrong_channel(
    hook: HookServer, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipient = make_recipient(address=OPS)

    def change(name: str) -> None:
        if name == "after_delivery_claim":
            Recipient.objects.filter(pk=recipient.pk).update(address=hook.url, channel="webhook", host="x")

    notify()
    with monkeypatch.context() as patched:
        patched.setattr(deliver, "failpoint", change)
        delivered()
    assert (one().status, one().error) == ("pending", "its address has changed meanwhile")

    make_due()
    delivered()
    assert (one().status, len(smtp.letters), len(hook.posted)) == ("sent", 0, 1)


def test_an_outcome_that_the_database_refuses_does_not_stop_the_others(hook: HookServer) -> None:
    make_recipient(address=hook.url)
    make_recipient("ada")
    deliverer = Deliverer()
    notify()
    plan()
    jobs = [job for job in (claim_next([]), claim_next([])) if job]
    for job in jobs:
        deliverer.sending.under_way += 1
        deliverer.breakers.began(job.host)
        refused = Refused(why="a\0b") if job.channel == "webhook" else Sent()
        deliverer.sending.results.put(deliver.Result(job=job, host=job.host, outcome=refused))

    deliverer.deliver_some()

    assert statuses(name="ada") == ["sent"] and statuses(name="ops") == ["sending"]  # until its lease ends
    assert deliverer.sending.under_way == 0


def test_a_message_of_many_and_long_texts_has_a_size_that_servers_take(
    hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_of_delivery, "LARGEST", 30_000)
    monkeypatch.setattr(deliver, "MOST_ITEMS", 3)
    make_recipient(address=hook.url, spacing=HALF_AN_HOUR)
    for text in ("first", "x" * 25_000, "short", "y" * 25_000, "beyond", "beyond as well"):
        notify(text)
    delivered()
    make_due()
    delivered()

    data = json.loads(hook.posted[1].body)["data"]
    assert [notification["text"][:5] for notification in data["notifications"]] == ["xxxxx", "short"]
    assert "… (shortened" in data["notifications"][0]["text"]
    assert data["more"] == 3
    assert data["subject"].startswith("5 notifications: xxx")
    assert data["text"].endswith("3 more had no room here; the console shows them.")


def test_a_channel_of_a_newer_version_is_left_to_that() -> None:
    make_recipient()
    Recipient.objects.update(channel="pigeon")
    notify()

    delivered()

    assert statuses() == ["pending"]
