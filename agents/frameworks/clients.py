"""Clients of providers, in models of other frameworks."""

from typing import Any

CLIENTS = ("client", "async_client", "root_client", "root_async_client", "_client", "_async_client")


def without_retries(model: Any) -> None:
    """Only steps make, count and pay requests."""
    for client in clients_of(model):
        if hasattr(client, "max_retries"):
            client.max_retries = 0


def clients_of(model: Any) -> list[Any]:
    found = [getattr(model, name, None) for name in CLIENTS]
    return [client for one in found for client in (one, getattr(one, "_client", None)) if client is not None]
