"""A text in a channel of Slack that one person alone sees: `chat.postEphemeral`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome
from runs.notifications.channels.slack import escaped
from runs.notifications.message import Message
from runs.notifications.places.place import text_of
from runs.notifications.places.slack import call


class SlackWhisper:
    name: ClassVar[str] = "slack-whisper"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        body = {"channel": to["channel"], "user": to["user"], "text": escaped(text_of(message))}
        if to["thread_ts"]:
            body["thread_ts"] = to["thread_ts"]
        return call(to, "chat.postEphemeral", body)[0]


PLACE = SlackWhisper()
