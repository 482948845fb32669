"""What the machine trusts is read once by a process, whichever client of a provider asks."""

import ssl
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import pytest
from pydantic_ai import Agent

from agents.llm.providers.models import model_for

HTTPS = httpx2.URL("https://provider.test")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key")


def trusted_by(client: Any) -> ssl.SSLContext:
    context = client._transport_for_url(HTTPS)._pool._ssl_context
    assert isinstance(context, ssl.SSLContext)
    return context


def client_of(model: str) -> Any:
    served: Any = model_for(Agent(model, defer_model_check=True))
    return served.client._client


def test_clients_of_providers_read_the_certificates_of_the_machine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client_of("openai-chat:gpt-4o")
    reads: list[Any] = []
    monkeypatch.setattr(httpcore2, "default_ssl_context", lambda **how: reads.append(how))

    chat, messages = client_of("openai-chat:gpt-4o"), client_of("anthropic:claude-sonnet-4-6")

    assert not reads
    assert trusted_by(chat) is trusted_by(messages)
    assert trusted_by(chat).verify_mode == ssl.CERT_REQUIRED and trusted_by(chat).check_hostname


def test_a_client_that_trusts_something_else_shares_nothing(tmp_path: Path) -> None:
    shared = trusted_by(client_of("openai-chat:gpt-4o"))
    own = ssl.create_default_context()

    assert trusted_by(httpx2.AsyncClient(verify=own)) is own
    assert trusted_by(httpx2.AsyncClient(verify=False)) is not shared
    assert shared.verify_mode == ssl.CERT_REQUIRED
    assert trusted_by(httpx2.AsyncClient(trust_env=False)) is not shared
