"""A request for a decision in a thread of Slack, with buttons. All that a model or a stranger wrote stands in plain text, which Slack
reads no mention and no link from. Slack cannot tell a repeat."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome, Sent
from runs.notifications.channels.slack import escaped
from runs.notifications.message import Message, Request
from runs.notifications.places.place import WHOLE_ANSWER, request_of
from runs.notifications.places.slack import call
from runs.notifications.requests import PRESSED


class SlackRequest:
    name: ClassVar[str] = "slack-request"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        request = request_of(message)
        body = {"channel": to["channel"], **content(request)}
        if to["thread_ts"]:
            body["thread_ts"] = to["thread_ts"]
        outcome, said = call(to, "chat.postMessage", body, keep=WHOLE_ANSWER)
        channel, ts = said.get("channel"), said.get("ts")
        if isinstance(outcome, Sent) and isinstance(channel, str) and isinstance(ts, str):
            return Sent(receipt={"channel": channel, "ts": ts})
        return outcome


def content(request: Request) -> dict[str, Any]:
    """Text and blocks of the message; with the outcome in place of the buttons, if there is one."""
    asked = [_plain(request.title), *(_plain(text) for text in (request.question, request.detail) if text)]
    if request.arguments:
        text = [{"type": "text", "text": request.arguments}]
        asked.append({"type": "rich_text", "elements": [{"type": "rich_text_preformatted", "elements": text}]})
    page = {
        "type": "context",
        "elements": [{"type": "mrkdwn", "text": f"<{escaped(request.page)}|Open in the console>"}],
    }
    end = [_plain(request.outcome)] if request.outcome else _choices(request)
    title = f"{request.title}: {request.question}"
    return {
        "text": escaped(f"{request.outcome} {title}" if request.outcome else title),
        "blocks": [*asked, *end, page],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _choices(request: Request) -> list[Any]:
    """No one approves here what they have not seen whole."""
    deny = _button(request, "deny", "No" if request.is_question else "Deny", "danger")
    if not request.is_whole:
        return [_plain("Open it in the console to read all of it and approve it."), _actions(deny)]
    if not request.is_question:
        return [_actions(_button(request, "approve", "Approve", "primary"), deny)]
    answer = {
        "type": "input",
        "dispatch_action": True,
        "label": {"type": "plain_text", "text": "Your answer, sent by Enter"},
        "element": {
            "type": "plain_text_input",
            "action_id": f"{PRESSED}:answer:{request.id}",
            "max_length": 2_000,
            "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]},
        },
    }
    return [answer, _actions(_button(request, "approve", "Yes", "primary"), deny)]


def _plain(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text[:3_000], "emoji": False}}


def _actions(*elements: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def _button(request: Request, choice: str, label: str, style: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": label, "emoji": False}
    return {"type": "button", "text": text, "style": style, "action_id": f"{PRESSED}:{choice}:{request.id}"}


PLACE = SlackRequest()
