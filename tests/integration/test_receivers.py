"""Mail, webhook and Slack servers in processes of their own go through every fault while agents' messages are sent: nothing is lost,
nothing arrives twice where the receiver cannot tell, and a person resolves what is unknown, over the API."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.post_office import Manner, ServerProcess
from tests.support.stack import Stack, StackMaker, eventually
from triggers.api.tokens import ensure_token

pytestmark = pytest.mark.chaos
INSERT = """
INSERT INTO runs_notification (sender, urgency, text, "to")
VALUES ('greeter', 'normal', %s, '{mail, hook, slack}') RETURNING id
"""


class Office:
    """Three receivers on two servers, and a stack that notifies them."""

    def __init__(self, stack: Stack, mail: ServerProcess, hook: ServerProcess) -> None:
        self.stack, self.mail, self.hook = stack, mail, hook
        self.texts: list[str] = []

    def behave(self, manner: Manner) -> None:
        self.mail.behave(manner)
        self.hook.behave(manner)

    def tell(self, text: str) -> None:
        self.texts.append(text)
        self.stack.query(INSERT, text)

    def statuses(self, text: str) -> dict[str, str]:
        rows = self.stack.query(
            "SELECT name, status FROM runs_delivery JOIN runs_notification told ON told.id = notification_id WHERE text = %s",
            text,
        )
        return {row["name"]: row["status"] for row in rows}

    def until(self, text: str, **wanted: str) -> None:
        eventually(lambda: self.statuses(text) == wanted or None)

    def tried(self, text: str) -> None:
        """Each of the three was tried, and waits."""
        eventually(
            lambda: (
                len(
                    self.stack.query(
                        "SELECT 1 FROM runs_delivery JOIN runs_notification told ON told.id = notification_id "
                        "WHERE text = %s AND status = 'pending' AND attempts > 0",
                        text,
                    )
                )
                == 3
            )
        )

    def hurry(self) -> bool:
        """What waits for its next try is due now; the breakers of hosts decide still."""
        self._due("pending")
        return True

    def end_leases(self) -> None:
        self._due("sending")

    def _due(self, status: str) -> None:
        self.stack.query("UPDATE runs_delivery SET due_at = now() WHERE status = %s RETURNING id", status)

    def delivery(self, name: str, text: str) -> Any:
        found = self.stack.query(
            "SELECT delivery.* FROM runs_delivery delivery JOIN runs_notification told ON told.id = notification_id "
            "WHERE text = %s AND name = %s",
            text, name,
        )  # fmt: skip
        return found[0]

    def resolve(self, name: str, text: str, outcome: str) -> Any:
        path = f"/api/v1/deliveries/{self.delivery(name, text)['id']}/resolve/"
        return self.stack.api("POST", path, {"outcome": outcome})

    def arrived(self, server: ServerProcess, *, signed: bool | None = None) -> Counter[str]:
        """How often each text came; of webhooks, those with an id are distinguished from those of Slack."""
        found = [text.split("\n")[0] for id, text in server.taken if signed is None or bool(id) == signed]
        return Counter(found)


SENT = {"mail": "sent", "hook": "sent", "slack": "sent"}


@pytest.fixture
def office(make_stack: StackMaker, tmp_path: Path) -> Iterator[Office]:
    mail, hook = ServerProcess("mail", tmp_path / "mail"), ServerProcess("hook", tmp_path / "hook")
    try:
        stack = make_stack(env={"EMAIL_URL": f"smtp://127.0.0.1:{mail.port}/?tls=none&from=wakeful@example.com"})
        with stack.orm():
            ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
        stack.start("web")
        for name, address in (
            ("mail", "mailto:ops@example.com"),
            ("hook", f"http://127.0.0.1:{hook.port}/hook"),
            ("slack", f"slack+http://127.0.0.1:{hook.port}/slack"),
        ):
            made = stack.api(
                "POST", "/api/v1/recipients/", {"name": name, "address": address, "spacing": 0, "gets_all": False}
            )
            assert made.status == 201, made.body
        yield Office(stack, mail, hook)
    finally:
        mail.kill()
        hook.kill()


def test_receivers_go_through_every_fault(office: Office) -> None:
    stack = office.stack
    dispatcher = stack.start("dispatcher")
    office.tell("well")
    office.until("well", **SENT)

    office.behave("slow")
    office.tell("slow")
    office.until("slow", **SENT)
    office.behave("take")

    # Killed before anything is handed over: tried again once they are back.
    office.mail.kill()
    office.hook.kill()
    office.tell("killed")
    office.tried("killed")
    office.mail.start()
    office.hook.start()
    office.hurry()
    office.until("killed", **SENT)

    # 429 and 451; 503 and 421: later.
    manners: tuple[Manner, Manner] = ("greylist", "later")
    for manner in manners:
        office.behave(manner)
        office.tell(manner)
        office.tried(manner)
        office.behave("take")
        eventually(lambda manner=manner: office.hurry() and office.statuses(manner) == SENT, every=0.5)  # type: ignore[misc]

    # 410 and 550: failed, and a person sends them again.
    office.behave("refuse")
    office.tell("refuse")
    office.until("refuse", mail="failed", hook="failed", slack="failed")
    office.behave("take")
    for name in SENT:
        assert office.resolve(name, "refuse", "arrived").status == 409
        assert office.resolve(name, "refuse", "send_again").status == 200
    office.until("refuse", **SENT)

    # Cut after the message was taken: unknown where the receiver cannot tell, repeated where it can.
    office.behave("cut")
    office.tell("cut")
    eventually(lambda: office.statuses("cut") == {"mail": "unknown", "hook": "pending", "slack": "unknown"})
    office.behave("take")
    eventually(lambda: office.hurry() and office.statuses("cut")["hook"] == "sent", every=0.5)
    assert office.statuses("cut") == {"mail": "unknown", "hook": "sent", "slack": "unknown"}
    unknown = stack.api("GET", "/api/v1/deliveries/?status=unknown").json()["results"]
    assert {one["recipient"] for one in unknown} == {"mail", "slack"}
    assert all(one["reason"].startswith("it may have arrived") for one in unknown)
    assert office.resolve("mail", "cut", "arrived").json()["status"] == "sent"
    assert office.resolve("slack", "cut", "send_again").json()["status"] == "pending"
    office.until("cut", **SENT)

    # Killed while they hold the message, without an answer.
    office.behave("silent")
    office.tell("held")
    eventually(lambda: office.arrived(office.mail)["held"] and office.arrived(office.hook)["held"] == 2)
    office.mail.kill()
    office.hook.kill()
    eventually(lambda: office.statuses("held") == {"mail": "unknown", "hook": "pending", "slack": "unknown"})
    office.behave("take")
    office.mail.start()
    office.hook.start()
    for name in ("mail", "slack"):
        assert office.resolve(name, "held", "arrived").status == 200
    eventually(lambda: office.hurry() and office.statuses("held") == SENT, every=0.5)

    # The dispatcher dies while the receivers hold the message; its successor repeats only what they can tell.
    office.behave("silent")
    office.tell("orphan")
    eventually(lambda: office.arrived(office.mail)["orphan"] and office.arrived(office.hook)["orphan"] == 2)
    dispatcher.kill()
    office.behave("take")
    stack.start("dispatcher")
    office.end_leases()
    eventually(lambda: office.statuses("orphan") == {"mail": "unknown", "hook": "sent", "slack": "unknown"})
    for name in ("mail", "slack"):
        assert office.resolve(name, "orphan", "arrived").status == 200

    assert all(office.statuses(text) == SENT for text in office.texts)
    once = Counter(office.texts)
    assert office.arrived(office.mail) == once  # nothing lost, nothing twice
    assert office.arrived(office.hook, signed=False) == once + Counter(["cut"])  # which a person had sent again
    ids = {(id, text.split("\n")[0]) for id, text in office.hook.taken if id}
    assert Counter(text for _, text in ids) == once  # repeats have the id of the first
    audited = stack.query("SELECT detail FROM runs_auditentry WHERE action = 'resolve'")
    assert len(audited) == 3 + 2 + 2 + 2
