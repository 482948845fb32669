"""Connections to the server of `oauth_server`, and the rows to look through for what must not stand there."""

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection as database
from django.db.models import F

from runs.connections.edit import create_connection
from runs.connections.lease import CLOCK
from runs.connections.sealed import sealed
from runs.models import Connection
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, SCOPES, OAuthServer


def new_connection(server: OAuthServer, name: str = "mail", **more: Any) -> Connection:
    values: dict[str, Any] = {
        "provider": "generic",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "scopes": SCOPES,
        "settings": server.settings,
        **more,
    }
    return create_connection(name=name, by="test", **values)


def connected(
    provider: OAuthServer, name: str = "mail", *, left: float = 3600, life: float = 3600, **more: Any
) -> Connection:
    """A connection whose access token lasts for `left` more seconds, of `life`."""
    made = new_connection(provider, name, **more)
    access, refresh = provider._new("access"), provider._new("refresh") if provider.gives_refresh else ""
    grant = provider.allow(access=access, refresh=refresh)
    grant.access[access] += left - provider.lasts
    Connection.objects.filter(pk=made.pk).update(
        state="connected",
        access_token=sealed(access),
        refresh_token=sealed(refresh),
        connected_at=CLOCK,
        refreshed_at=CLOCK - timedelta(seconds=life - left),
        expires_at=CLOCK + timedelta(seconds=left),
        granted=list(SCOPES),
        revision=F("revision") + 1,
    )
    made.refresh_from_db()
    return made


def later(made: Connection, seconds: float) -> None:
    """As if so much time had passed: its times lie further back."""
    gone = timedelta(seconds=seconds)
    times = {
        name: F(name) - gone for name in ("expires_at", "refreshed_at", "retry_at", "claimed_until", "failing_since")
    }
    Connection.objects.filter(pk=made.pk).update(**times)


def everything_stored() -> str:
    """The text of every row of every table."""
    texts = []
    with database.cursor() as cursor:
        for model in apps.get_models():
            if model._meta.managed and not model._meta.proxy:
                cursor.execute(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{model._meta.db_table}\" t")
                texts.append(cursor.fetchone()[0])
    return "\n".join(texts)
