"""A thread of Slack, by `chat.postMessage`. Slack cannot tell a repeat."""

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from runs.network.posting import PostResponse
from runs.notifications.channels.channel import NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.channels.slack import escaped
from runs.notifications.channels.webhook import LONGEST_PAUSE
from runs.notifications.message import Message
from runs.notifications.places.place import KEPT, judged, post_as, text_of

ACCEPTED = re.compile(rb'\s*\{\s*"ok"\s*:\s*true\b')
LATER = frozenset({"internal_error", "service_unavailable", "request_timeout"})


class SlackThread:
    name: ClassVar[str] = "slack-thread"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        body = {
            "channel": to["channel"],
            "text": escaped(text_of(message)),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if to["thread_ts"]:
            body["thread_ts"] = to["thread_ts"]
        return call(to, "chat.postMessage", body)[0]


def call(
    to: Mapping[str, Any], method: str, body: Mapping[str, Any], *, keep: int = KEPT
) -> tuple[Outcome, Mapping[str, Any]]:
    """Call a method of Slack's API; with what it has answered, if that is kept whole."""
    answer = post_as(to["connection"], f"{to['api']}{method}", body, {}, keep=keep)
    outcome = judged(answer)
    if isinstance(answer, PostResponse) and answer.status == 429:
        return _paused("it answered 429", answer), {}
    # Slack answers 200 to what it refuses.
    return _said(answer) if isinstance(answer, PostResponse) and isinstance(outcome, Sent) else (outcome, {})


def _said(answer: PostResponse) -> tuple[Outcome, Mapping[str, Any]]:
    try:
        said = json.loads(answer.begins)
    except ValueError:  # it may be longer than what is kept, or have broken off
        said = {"ok": True} if ACCEPTED.match(answer.begins) else None
    if not isinstance(said, dict):
        return Unknown(why="it answered 200, and not what Slack answers"), {}
    if said.get("ok") is True:
        return Sent(), said
    error = str(said.get("error", ""))[:100]
    if error == "ratelimited":
        return _paused("Slack answered ratelimited", answer), {}
    if error in LATER:
        return NotNow(why=f"Slack answered {error}", after=answer.after), {}
    return Refused(why=f"Slack answered {error}"), {}


def _paused(why: str, answer: PostResponse) -> NotNow:
    """Slack counts the messages of each channel: others go on."""
    return NotNow(why=why, after=answer.after and min(answer.after, LONGEST_PAUSE), is_away=False)


PLACE = SlackThread()
