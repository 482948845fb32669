"""What became of a request in Slack, in its message: `chat.update`, which may come again."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome
from runs.notifications.message import Message
from runs.notifications.places.place import request_of
from runs.notifications.places.slack import call
from runs.notifications.places.slack_request import content


class SlackOutcome:
    name: ClassVar[str] = "slack-outcome"
    can_tell_repeats: ClassVar[bool] = True

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        posted = to["message"]
        return call(
            to, "chat.update", {"channel": posted["channel"], "ts": posted["ts"], **content(request_of(message))}
        )[0]


PLACE = SlackOutcome()
