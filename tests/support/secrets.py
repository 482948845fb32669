"""Texts that are secrets for the time of a test."""

from collections.abc import Iterator

import pytest

from agents.kernel import redaction


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test makes known is not known to the tests after it."""
    for name in ("_known", "_secret_of", "_logins"):
        monkeypatch.setattr(redaction, name, type(getattr(redaction, name))(getattr(redaction, name)))
    monkeypatch.setattr(redaction, "_shapes", redaction._shapes)
    yield
