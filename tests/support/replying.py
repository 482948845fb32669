"""Sources whose events are answered at a local server, and runs that they wake."""

import json
from collections.abc import Mapping
from typing import Any

from runs.connections.edit import create_connection
from runs.connections.lease import CLOCK
from runs.connections.sealed import sealed
from runs.models import Connection
from tests.support.triggers import make_event
from triggers.models import Event, Source

TOKEN = "xoxb-token-of-the-bot-1234"


def connected_to(host: str, name: str = "bot") -> Connection:
    """A connection whose token goes to this host."""
    root = f"http://{host}" if host.startswith("127.0.0.1") else f"https://{host}"
    settings = {"token_url": f"{root}/token", "authorize_url": f"{root}/authorize", "hosts": [host]}
    made = create_connection(
        name=name, provider="generic", client_id="id", client_secret="secret-of-the-client", settings=settings, by="test"
    )  # fmt: skip
    Connection.objects.filter(pk=made.pk).update(
        state="connected", access_token=sealed(TOKEN), connected_at=CLOCK, refreshed_at=CLOCK
    )
    return made


def slack_source(port: int, reply: str = "yes") -> Source:
    settings = {"reply": reply, "reply_connection": "bot", "reply_api": f"http://127.0.0.1:{port}/api/"}
    return Source.objects.create(slug="slack", kind="slack", settings=settings)


def slack_message(source: Source, text: str = "How many?", **event: Any) -> Event:
    """As the Events API sends it."""
    inner = {"type": "app_mention", "user": "U1", "channel": "C1", "ts": "1700000000.000100", "text": text, **event}
    return make_event(source_id=source.pk, data={"type": "event_callback", "team_id": "T1", "event": inner})


def bodies(posted: list[Any]) -> list[Mapping[str, Any]]:
    return [json.loads(one.body) for one in posted]
