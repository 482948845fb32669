"""Texts that are secrets for the time of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agents.kernel import redaction


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test makes known is not known to the tests after it."""
    for name in ("_known", "_secret_of", "_shapes_by_gram", "_touching", "_logins"):
        monkeypatch.setattr(redaction, name, type(getattr(redaction, name))(getattr(redaction, name)))
    yield


@contextmanager
def known(*secrets: str) -> Iterator[None]:
    """These alone."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_known", "_secret_of", "_shapes_by_gram", "_touching", "_logins"):
            patched.setattr(redaction, name, type(getattr(redaction, name))())
        redaction.know(*secrets)
        yield
