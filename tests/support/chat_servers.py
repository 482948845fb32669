"""Slack and Telegram as local servers, to which this process may send."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings

from runs.notifications.places import telegram
from tests.support.asking import POSTED
from tests.support.post_office import HookServer, taking_hooks

BOT = "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOpp"  # the token of a bot of Telegram
SENT = (
    b'{"ok":true,"result":{"message_id":8,"chat":{"id":-100123,"type":"supergroup"},"date":1700000000,"text":"Four."}}'
)


@contextmanager
def taking_slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    monkeypatch.setattr(settings, "WAKEFUL_HTTP_NETWORKS", ["127.0.0.0/8"])
    with taking_hooks() as slack:
        slack.says = json.dumps(POSTED).encode()
        yield slack


@contextmanager
def taking_telegram(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_NETWORKS", ["127.0.0.0/8"])
    with taking_hooks() as server:
        server.says = SENT
        monkeypatch.setattr(telegram, "API", f"http://127.0.0.1:{server.port}")
        yield server
