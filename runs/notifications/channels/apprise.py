"""Every service that apprise speaks, by its URLs (`tgram://token/chat`, `ntfys://host/topic`, …). Needs the extra `apprise`.

Apprise says only whether it worked; what it logs says more. A failure without a word about it may have arrived, and so may one
that took too long: those are unknown.
"""

import logging
import re
import threading
from importlib import import_module
from typing import Any, ClassVar

from runs.notifications.channels.channel import WHOLE, NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.message import Message

ANSWERED = re.compile(r"\berror=(\d{3})\b")
NOT_REACHED = re.compile(
    r"Connection refused|NewConnectionError|NameResolutionError|ConnectTimeout|No route to host|Network is unreachable"
)
NOT_INSTALLED = "it needs apprise, which is not installed: pip install apprise, or make run EXTRAS=apprise"
KINDS = {"low": "info", "normal": "info", "high": "warning"}


class Apprise:
    name: ClassVar[str] = "apprise"
    can_tell_repeats: ClassVar[bool] = False
    rank: ClassVar[int] = 9

    def takes(self, address: str) -> bool:
        return "://" in address

    def fault(self, address: str) -> str:
        try:
            service = _service(address)
        except ImportError:
            return NOT_INSTALLED
        return "" if service is not None else "apprise knows no such service, or it lacks a part"

    def shown(self, address: str) -> str:
        return f"{_schema(address)}://…"

    def host(self, address: str) -> str:
        return _schema(address)

    def send(self, address: str, message: Message) -> Outcome:
        log = _Log()
        done: list[bool] = []

        def notify() -> None:
            with log:
                # As plain text: where a service shows HTML or Markdown, apprise escapes what strangers wrote.
                done.append(bool(service.notify(message.text, message.subject, notify_type=kind, body_format="text")))

        try:
            service, kind = _service(address), import_module("apprise").NotifyType(KINDS[message.urgency])
        except ImportError:
            return NotNow(why=NOT_INSTALLED)
        if service is None:
            return Refused(why="apprise knows no such service")
        # Its services have time limits for each wait, and none for the whole.
        sending = threading.Thread(target=notify, daemon=True)
        sending.start()
        sending.join(WHOLE)
        if sending.is_alive():
            return Unknown(why=f"no end within {WHOLE:g} s")
        return Sent() if done == [True] else _failed(log.text)


class _Log(logging.Handler):
    """What apprise logs in this thread."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""
        self.thread = 0

    def __enter__(self) -> None:
        self.thread = threading.get_ident()
        logger = logging.getLogger("apprise")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False  # it logs addresses and payloads
        logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread and not ANSWERED.search(self.text):
            self.text = f"{self.text}\n{record.getMessage()}"[-10_000:]


def _failed(log: str) -> Outcome:
    if answered := ANSWERED.search(log):
        status = int(answered[1])
        why = f"it answered {status}"
        if status in (502, 504):
            return Unknown(why=why)
        return NotNow(why=why) if status in (408, 425, 429) or status >= 500 else Refused(why=why)
    if NOT_REACHED.search(log):
        return NotNow(why="it could not be reached")
    return Unknown(why="apprise did not say why it failed")


def _service(address: str) -> Any:
    return import_module("apprise").Apprise.instantiate(address, suppress_exceptions=True)


def _schema(address: str) -> str:
    return address.partition("://")[0]


CHANNEL = Apprise()
