import json
from dataclasses import dataclass
from uuid import uuid4

from triggers.sources.databases.changes import subject_of
from triggers.sources.databases.debezium import Envelope, pk_in
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import setting
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.standard_webhooks import StandardWebhooks, StandardWebhooksSettings

SOURCE = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
ROW = {"id": 1, "message": "A test event from Wakeful."}


@dataclass(frozen=True, kw_only=True)
class DebeziumSettings(StandardWebhooksSettings):
    """Settings for what a request of Debezium does not contain."""

    key: str = setting("id", "Primary key", "The columns of the primary key, separated by commas.")


@register
class Debezium(StandardWebhooks):
    """The HTTP sink of Debezium Server, which signs as Standard Webhooks has it."""

    name = "debezium"
    label = "Debezium Server"
    help_text = "Changes of databases that Debezium Server sends over HTTP."
    group = Group.DATABASES
    docs = "replication#debezium"
    setup = (
        "At Debezium Server, set debezium.sink.type=http, debezium.sink.http.url={url} and debezium.format.value=json.",
        "Set debezium.sink.http.authentication.type=standard-webhooks and debezium.sink.http.authentication.webhook.secret to the secret "
        "of this source.",
        "Enter the columns of the primary key here: Debezium's requests do not name them.",
    )
    docs_url = "https://debezium.io/documentation/reference/stable/operations/debezium-server.html"
    settings_class = DebeziumSettings

    def describe(self, delivery: Delivery, proof: Proof, settings: StandardWebhooksSettings) -> Description:
        envelope = Envelope.read(read_payload(delivery.body).data)
        if envelope is None:
            return super().describe(delivery, proof, settings)
        row = envelope.after if isinstance(envelope.after, dict) else envelope.before
        columns = [one.strip() for one in settings.key.split(",")] if isinstance(settings, DebeziumSettings) else []
        pk = pk_in({one: row[one] for one in columns if one in row} if isinstance(row, dict) else None)
        name = envelope.name()
        return Description(
            # Debezium signs each attempt after its own restart with another id.
            id=envelope.digest(),
            type=f"db.{name}.{envelope.operation}",
            payload=Payload(data=envelope.data(pk)),
            subject=subject_of(name, pk),
            time=envelope.time,
        )

    def sample(self, settings: StandardWebhooksSettings) -> Sample:
        body = {"op": "c", "before": None, "after": ROW, "source": {**SOURCE, "lsn": uuid4().int >> 80}}
        headers = {"Content-Type": "application/json", f"{self.prefix}-id": str(uuid4())}
        return Sample(body=json.dumps(body).encode(), headers=headers)
