"""Notifications through real processes: an agent's message arrives, and a dispatcher that dies while it sends repeats nothing that
the receiver could not tell."""

from collections.abc import Iterator

import pytest

from tests.support.post_office import HookServer, MailServer, taking_hooks, taking_mail
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.long

INSERT = "INSERT INTO runs_notification (sender, urgency, text) VALUES ('greeter', 'normal', 'Hello') RETURNING id"
LEASE_ENDS = "UPDATE runs_delivery SET due_at = now() WHERE status = 'sending' RETURNING id"


@pytest.fixture
def smtp() -> Iterator[MailServer]:
    with taking_mail() as server:
        yield server


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with taking_hooks() as server:
        yield server


def statuses(stack: Stack) -> list[str]:
    return [row["status"] for row in stack.query("SELECT status FROM runs_delivery ORDER BY id")]


def test_two_settings_bring_an_agents_message_by_mail(make_stack: StackMaker, smtp: MailServer) -> None:
    env = {"EMAIL_URL": smtp.url, "WAKEFUL_NOTIFY_TO": "mailto:ops@example.com", "WAKEFUL_DEMO": "1"}
    stack = make_stack(env=env)
    with stack.orm():
        make_trigger("reminder")
    stack.start("dispatcher")
    stack.start("worker", concurrency=1)

    stack.manage("fire", "reminder", "--data", '{"text": "tea"}')

    eventually(lambda: smtp.letters)
    assert smtp.letters[0]["Subject"] == "Reminder: tea"
    assert "/admin/runs/run/" in str(smtp.letters[0].get_content())
    eventually(lambda: statuses(stack) == ["sent"])


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "letters"), [("after_delivery_claim", 0), ("before_delivery", 0), ("after_delivery", 1)]
)
def test_mail_of_a_dispatcher_that_died_is_unknown(
    make_stack: StackMaker, smtp: MailServer, point: str, letters: int
) -> None:
    stack = make_stack(env={"EMAIL_URL": smtp.url, "WAKEFUL_NOTIFY_TO": "mailto:ops@example.com"})
    stack.query(INSERT)

    dispatcher = stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"})
    assert dispatcher.wait() == -9
    assert statuses(stack) == ["sending"]
    stack.query(LEASE_ENDS)
    stack.start("dispatcher")

    eventually(lambda: statuses(stack) == ["unknown"])
    assert len(smtp.letters) == letters


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "posted"), [("after_delivery_claim", 1), ("before_delivery", 1), ("after_delivery", 2)]
)
def test_a_webhook_of_a_dispatcher_that_died_is_repeated_with_the_same_id(
    make_stack: StackMaker, hook: HookServer, point: str, posted: int
) -> None:
    stack = make_stack(env={"WAKEFUL_NOTIFY_TO": hook.url})
    stack.query(INSERT)

    dispatcher = stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"})
    assert dispatcher.wait() == -9
    stack.query(LEASE_ENDS)
    stack.start("dispatcher")

    eventually(lambda: statuses(stack) == ["sent"])
    assert len(hook.posted) == posted
    assert len(set(hook.ids)) == 1


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["before_plan_commit", "after_plan_commit"])
def test_a_dispatcher_that_died_while_planning_plans_nothing_twice(
    make_stack: StackMaker, hook: HookServer, point: str
) -> None:
    stack = make_stack(env={"WAKEFUL_NOTIFY_TO": hook.url})
    stack.query(INSERT)

    assert stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"}).wait() == -9
    stack.start("dispatcher")

    eventually(lambda: statuses(stack) == ["sent"])
    assert len(hook.posted) == 1


@pytest.mark.chaos
def test_two_dispatchers_send_each_message_once(make_stack: StackMaker, hook: HookServer) -> None:
    stack = make_stack()
    stack.query(
        "INSERT INTO runs_recipient (name, address, channel, host, is_from_settings, gets_all, zone, spacing, least_urgency, "
        "repeat_after, second_after, active) VALUES ('ops', %s, 'webhook', 'x', false, true, 'UTC', '0', 'low', '1 day', "
        "'10 minutes', true) RETURNING id",
        hook.url,
    )
    stack.query(
        "INSERT INTO runs_notification (sender, urgency, text) SELECT 'greeter', 'normal', n FROM generate_series(1, 200) n RETURNING id"
    )

    stack.start("dispatcher")
    stack.start("dispatcher")

    eventually(lambda: statuses(stack).count("sent") == 200)
    assert len(hook.ids) == len(set(hook.ids)) == 200
