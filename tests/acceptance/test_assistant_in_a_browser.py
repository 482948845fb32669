"""docs/assistant.md in a browser, on real processes and local servers: two accounts are connected, mail wakes the triage, and a draft
stands in the mailbox. Then a request in Slack waits for a person, who approves by the button there. Nothing else is sent."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from playwright.sync_api import Locator, Page, expect

from tests.acceptance.test_operators_day import log_in
from tests.support.asking import FORM, SIGNING, TS, pressed, signature
from tests.support.chat_servers import taking_slack
from tests.support.household import Household, keeping_house
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, OAuthServer, providing_tokens
from tests.support.post_office import HookServer, MailServer, taking_mail
from tests.support.stack import ROOT, Stack, StackMaker, eventually
from tests.support.wire import Call, Wire

pytestmark = [pytest.mark.browser, pytest.mark.chaos, pytest.mark.timeout(900)]
ASKED_AT = "1700000000.000100"  # the timestamp of the message in Slack
ANSWER = "Room 7 is booked for Friday."
BOOKED = "room.booked"
EVENTS = "SELECT 1 FROM triggers_event WHERE type = %s"
RUN = "SELECT id, status FROM runs_run WHERE agent = %s"


class Assistant:
    """A person at the console and in Slack, and the servers around them."""

    def __init__(
        self, stack: Stack, page: Page, provider: OAuthServer, house: Household, slack: HookServer, smtp: MailServer
    ) -> None:
        self.stack, self.page, self.provider = stack, page, provider
        self.house, self.slack, self.smtp = house, slack, smtp

    # In the console

    def connect(self, name: str, host: str, scope: str) -> str:
        """Make a connection and consent at the provider; returns the access token that it got."""
        page = self.page
        page.get_by_role("link", name=re.compile("Connections$")).first.click()
        page.get_by_title("Add connection").click()
        page.get_by_role("link", name="Connect Other").click()
        page.locator("[name=name]").fill(name)
        page.locator("[name=client_id]").fill(CLIENT_ID)
        page.locator("[name=client_secret]").fill(CLIENT_SECRET)
        page.locator("[name=setting_issuer]").fill(self.provider.url)
        page.locator("[name=setting_hosts]").fill(host)
        page.locator("[name=more_scopes]").fill(scope)
        page.get_by_role("button", name="Save").click()
        page.get_by_role("link", name=re.compile(r"\bConnect$")).click()
        page.locator("#modal-content").get_by_role("button", name="Go to the provider").click()
        expect(page.get_by_text("Allow Wakeful?")).to_be_visible()
        page.get_by_role("link", name="Allow").click()
        expect(page.get_by_text(f"Connection {name} is connected.")).to_be_visible()
        [token] = self.provider.grants[-1].access
        return token

    def make_source(self, kind: str, **fields: str) -> None:
        page = self.page
        page.get_by_role("link", name=re.compile("Sources$")).first.click()
        page.get_by_title("Add source").click()
        page.locator(".console-kinds").locator("a").filter(has_text=kind).first.click()
        for name, value in fields.items():
            fill(page.locator(f"[name={name}]"), value)
        page.get_by_role("button", name="Create the source").click()
        expect(page.get_by_text(f"Source {fields['slug']} is created.")).to_be_visible()

    def open_run(self, agent: str) -> None:
        page = self.page
        page.get_by_role("link", name=re.compile("Runs$")).first.click()
        page.locator("#result_list").get_by_role("link", name=agent).first.click()

    # In Slack

    def sends(self, body: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type, **signature(body)}
        assert self.stack.request("POST", "/hooks/slack/", body=body, headers=headers).status == 200

    def commands(self, text: str) -> None:
        command = {"team_id": "T1", "user_id": "U1", "user_name": "ada", "channel_id": "C1", "trigger_id": "1.2"}
        self.sends(urlencode({**command, "command": "/wakeful", "text": text}).encode(), FORM)

    def mentions(self, text: str) -> None:
        event = {"type": "app_mention", "user": "U1", "channel": "C1", "ts": ASKED_AT, "text": text}
        body = {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}
        self.sends(json.dumps(body).encode(), "application/json")

    def presses(self, delivery: str, user: str) -> None:
        payload = pressed(delivery, user={"id": user, "username": "ada", "team_id": "T1"})
        self.sends(urlencode({"payload": json.dumps(payload)}).encode(), FORM)

    def posted(self, method: str) -> list[dict[str, Any]]:
        """What Slack got by this method of its API."""
        return [json.loads(one.body) for one in self.slack.posted if one.path == f"/api/{method}"]


def fill(field: Locator, value: str) -> None:
    """Also where the field is folded, or a choice."""
    if not field.is_visible():
        field.locator("xpath=ancestor::details[not(@open)]").locator("summary").first.click()
    if field.evaluate("field => field.tagName") == "SELECT":
        field.select_option(value)
    else:
        field.fill(value)


@pytest.fixture
def assistant(
    make_stack: StackMaker, wire: Wire, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Assistant]:
    with (
        providing_tokens() as provider,
        keeping_house("", tmp_path) as house,
        taking_slack(monkeypatch) as slack,
        taking_mail() as smtp,
    ):
        env = {
            **wire.env,
            "WAKEFUL_APPS": "household",
            "PYTHONPATH": str(ROOT / "tests" / "userapps"),
            "HOUSEHOLD": house.url,
            "WAKEFUL_LIBRARY": "mail-triage",
            "WAKEFUL_MODEL": "builtin",
            "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8",
            "WAKEFUL_ENCRYPTION_KEYS": ",".join(settings.WAKEFUL_ENCRYPTION_KEYS),
            "EMAIL_URL": smtp.url,
        }
        stack = make_stack(env=env, agents=True)
        stack.env["WAKEFUL_URL"] = stack.url
        stack.admit()
        stack.up()
        stack.start("sources")
        yield Assistant(stack, page, provider, house, slack, smtp)


def test_a_mail_gets_a_draft_and_an_answer_in_slack_is_approved_by_the_button_there(
    assistant: Assistant, wire: Wire
) -> None:
    stack, page, house = assistant.stack, assistant.page, assistant.house
    log_in(page, stack)

    # Connected: each account by a consent at its provider.
    house.token = assistant.connect("mail", house.host, "mail.modify")
    token_of_the_bot = assistant.connect("bot", f"127.0.0.1:{assistant.slack.port}", "chat:write")
    assert house.token != token_of_the_bot
    page.get_by_role("link", name=re.compile("Agents$")).first.click()
    expect(page.get_by_role("link", name="mail-triage").first).to_be_visible()

    # A mail arrives: a label, and a draft in its thread.
    assistant.make_source(
        "Gmail, by a connection", slug="inbox", gmail__connection="mail", gmail__every="10s", gmail__begin_with="new"
    )
    eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE position IS NOT NULL"))
    page.reload()
    expect(page.get_by_text("It is read, without an error; no message has come yet").first).to_be_visible()
    house.receive("Guest <guest@example.org>", "Friday", "Do you come on Friday?", {})
    eventually(lambda: [run["status"] for run in stack.query(RUN, "mail-triage")] == ["succeeded"])
    assert len(house.labels_of("m0")) == 1 and house.labels_of("m0")[0].startswith("Wakeful/")
    [draft] = house.drafts
    assert draft["threadId"] == "t-m0" and house.recipients_of_drafts() == ["guest@example.org"]
    assistant.open_run("mail-triage")
    for step in ("label", "draft"):
        expect(page.get_by_role("link", name=step, exact=True).first).to_be_visible()

    # Slack: a source that asks, an agent in words, and an account that is linked.
    assistant.make_source(
        "Slack",
        slug="slack",
        secret=SIGNING,
        slack__reply="yes",
        slack__reply_connection="bot",
        slack__reply_api=f"http://127.0.0.1:{assistant.slack.port}/api/",
        slack__approvals="yes",
    )
    page.get_by_role("link", name=re.compile("Agents$")).first.click()
    page.get_by_role("link", name=re.compile("Prompt agents$")).click()
    page.get_by_title("Add prompt agent").click()
    page.locator("[name=name]").fill("front-desk")
    page.locator("[name=instructions]").fill("Book the room that the message names, then answer with the tool reply.")
    for tool in ("emit", "reply"):
        page.locator(f"[name=tools][value={tool}]").check()
    for name, value in {"model": "openai-chat:gpt-4o", "types": "app_mention", "source": "slack"}.items():
        fill(page.locator(f"[name={name}]"), value)
    page.get_by_role("button", name="Create the agent").click()
    expect(page.get_by_text("front-desk is ready. Try it.")).to_be_visible()
    page.get_by_role("link", name=re.compile("Approvals$")).first.click()
    page.get_by_role("link", name=re.compile("Chat accounts$")).click()
    page.get_by_role("button", name="Make a code for slack").click()
    assistant.commands(page.locator("[data-secret]").inner_text())
    page.goto(f"{stack.url}/admin/chat-accounts/")
    expect(page.get_by_role("cell", name="T1/U1", exact=True)).to_be_visible()

    # A question in Slack: the booking waits for a person, who gets the question in the thread.
    booking = Call("emit", type=BOOKED, data={"room": 7})
    wire.script("desk", [booking], [Call("reply", text=ANSWER)], [Call("final_result", notify=False, items=[])])
    assistant.mentions(wire.prompt("desk", "slack", "<@U0> Book a room for Friday, please."))
    [request] = eventually(lambda: assistant.posted("chat.postMessage"))
    assert (request["channel"], request["thread_ts"]) == ("C1", ASKED_AT)
    assert BOOKED in json.dumps(request["blocks"])
    [buttons] = [block for block in request["blocks"] if block["type"] == "actions"]
    approve = next(button for button in buttons["elements"] if button["text"]["text"] == "Approve")
    delivery = approve["action_id"].rpartition(":")[2]
    eventually(lambda: stack.query("SELECT 1 FROM runs_delivery WHERE id = %s AND status = 'sent'", delivery))

    # An account that is not linked decides nothing.
    assistant.presses(delivery, "U2")
    eventually(lambda: assistant.posted("chat.postEphemeral"))
    assert not stack.query("SELECT 1 FROM runs_approval WHERE decision <> ''")
    assert len(assistant.posted("chat.postMessage")) == 1
    assert not stack.query(EVENTS, BOOKED)

    # The person presses, twice: one decision, one answer in the thread, and the request is changed.
    assistant.presses(delivery, "U1")
    assistant.presses(delivery, "U1")
    eventually(lambda: [run["status"] for run in stack.query(RUN, "front-desk")] == ["succeeded"])
    [_, answer] = eventually(lambda: assistant.posted("chat.postMessage")[1:] and assistant.posted("chat.postMessage"))
    assert (answer["channel"], answer["thread_ts"], answer["text"]) == ("C1", ASKED_AT, ANSWER)
    [update] = eventually(lambda: assistant.posted("chat.update"))
    assert update["ts"] == TS and "Approved by slack:admin" in update["text"]
    assert "actions" not in {block["type"] for block in update["blocks"]}
    assert stack.query("SELECT decision, decided_by FROM runs_approval") == [
        {"decision": "approve", "decided_by": "slack:admin"}
    ]
    assert len(stack.query("SELECT 1 FROM runs_auditentry WHERE kind = 'approval'")) == 1
    assert len(stack.query(EVENTS, BOOKED)) == 1
    assistant.open_run("front-desk")
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()

    # Nothing else was sent, and each token went to its own host.
    eventually(lambda: not stack.query("SELECT 1 FROM runs_delivery WHERE status IN ('pending', 'sending', 'held')"))
    assert len(assistant.posted("chat.postMessage")) == 2 and len(assistant.posted("chat.update")) == 1
    assert {one.headers["authorization"] for one in assistant.slack.posted} == {f"Bearer {token_of_the_bot}"}
    assert not house.refused and not any("send" in path for _, path in house.asked)
    assert len(house.drafts) == 1 and not assistant.smtp.letters
