"""A thread of Slack, by `chat.postMessage`. Slack cannot tell a repeat."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from runs.network.posting import PostResponse
from runs.notifications.channels.channel import NotNow, Outcome, Refused, Sent
from runs.notifications.channels.slack import escaped
from runs.notifications.message import Message
from runs.notifications.places.place import judged, post_as, text_of

LATER = frozenset({"ratelimited", "internal_error", "service_unavailable", "request_timeout"})


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
        answer = post_as(to["connection"], f"{to['api']}chat.postMessage", body, {})
        outcome = judged(answer)
        # Slack answers 200 to what it refuses.
        return _said(answer) if isinstance(answer, PostResponse) and isinstance(outcome, Sent) else outcome


def _said(answer: PostResponse) -> Outcome:
    try:
        said = json.loads(answer.begins)
    except ValueError:  # it may be longer than what is kept
        return Sent() if answer.begins.lstrip().startswith(b'{"ok":true') else Refused(why="its answer is no JSON")
    if said.get("ok") is True:
        return Sent()
    error = str(said.get("error", ""))[:100]
    if error in LATER:
        return NotNow(why=f"Slack answered {error}", after=answer.after)
    return Refused(why=f"Slack answered {error}")


PLACE = SlackThread()
