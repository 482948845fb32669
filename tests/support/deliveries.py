"""Deliveries as tests make them, and what our schemes make of them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from triggers.sources.http.headers import Headers
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import Delivery

FIXTURES = Path(__file__).parents[1] / "triggers" / "fixtures"
NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
SOURCE = UUID("0a5f9b1e-5c1d-4a0e-9a53-2f1c6e1d7b11")


def secrets(*values: str) -> list[SigningSecret]:
    return [SigningSecret(id=number, value=value.encode()) for number, value in enumerate(values, start=1)]


def delivery(body: bytes, headers: Mapping[str, str], at: datetime = NOW) -> Delivery:
    return Delivery(source_id=SOURCE, endpoint="/hooks/test/", headers=Headers(headers), body=body, received_at=at)


def take(
    kind: str,
    body: bytes,
    headers: Mapping[str, str],
    *values: str,
    settings: Mapping[str, object] | None = None,
    at: datetime = NOW,
) -> Receipt:
    receipt = receive(*cleaned(kind, settings or {}), secrets(*values), delivery(body, headers, at))
    assert isinstance(receipt, Receipt)
    return receipt


def recorded(name: str) -> tuple[bytes, dict[str, str]]:
    """A payload from the fixtures with the headers it came with."""
    lines = (FIXTURES / f"{name}.headers").read_text().splitlines()
    return (FIXTURES / name).read_bytes(), dict(line.split(": ", 1) for line in lines)
