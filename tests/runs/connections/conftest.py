from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from runs.connections import consent
from runs.connections import lease as leases
from tests.support.oauth_server import OAuthServer, providing_tokens
from tests.support.secrets import forgotten as forgotten


@pytest.fixture
def provider(settings: Any, forgotten: None) -> Iterator[OAuthServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with providing_tokens() as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WAIT", 20.0)


@pytest.fixture
def in_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test has not committed is unknown to the session of another thread; `test_at_once` has these threads."""
    monkeypatch.setattr(leases, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    monkeypatch.setattr(consent, "to_its_end", lambda act: act())
