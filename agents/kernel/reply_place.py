"""Where the message that woke a run can be answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ReplyPlace:
    """`kind` is the name of a file in `runs.notifications.places`, and `to` what it sends by: JSON without secrets. `thread` is the
    same for all messages of a conversation, and a valid name of a session. `asks`: a model that has seen data of strangers answers
    after a person has approved it."""

    kind: str
    to: Mapping[str, Any]
    name: str
    thread: str
    asks: bool = True
