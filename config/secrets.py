"""Which texts are secrets of this installation: `agents.kernel.redaction` keeps them out of prompts, journals, logs and pages."""

import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from django.conf import settings

from agents.kernel import redaction
from runs.notifications.channels.channel import channel_of

NAMES = re.compile(r"(KEY|KEYS|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|DSN|URL)$", re.IGNORECASE)


def know_secrets() -> None:
    """Those that a process knows when it begins; those that come later are looked up before each call of a model."""
    redaction.know_logins(settings.WAKEFUL_ADMIN_PASSWORD)
    redaction.know(*secrets_of_settings(), *secrets_of_environment())


def secrets_of_settings() -> Iterator[str]:
    for knob in settings.KNOBS:
        if knob.name == "WAKEFUL_NOTIFY_TO":
            yield from secrets_of_address(knob.value)
        elif knob.secret:
            yield from texts_in(knob.value)


def secrets_of_environment() -> Iterator[str]:
    """Such as the keys of models' providers, and the password of a proxy."""
    for name, value in os.environ.items():
        is_path = value.startswith("/")
        if NAMES.search(name) and not name.upper().endswith("URL") and not is_path:
            yield from texts_in(value)
        elif "://" in value:
            yield from passwords_in(value)


def secrets_of_address(address: str) -> Iterator[str]:
    """The secrets of a recipient's address: the whole address, unless it is shown as a whole, like that of a
    mailbox.
    """
    channel = channel_of(address)
    if channel is not None and channel.shown(address) != address:
        yield from (address, *urldefrag(address))


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            # The address of a server without a password is none; one of the web may be known to few.
            if "://" not in value or value.startswith("http") or any(passwords_in(value)):
                yield value
            yield from passwords_in(value)
        case dict():
            for name, item in value.items():
                if name.lower() == "password":
                    yield str(item or "")
                elif isinstance(item, dict):
                    yield from texts_in(item)
        case list():
            for item in value:
                yield from texts_in(item)


def passwords_in(url: str) -> Iterator[str]:
    """The passwords in a URL, both quoted and unquoted."""
    for address in url.split(";"):  # of several sentinels
        try:
            password = urlsplit(address).password or ""
        except ValueError:
            continue
        yield from (password, unquote(password))
