from dataclasses import dataclass

from triggers.sources.brokers.message import MessageSettings, required
from triggers.sources.settings import setting

JSON, CLOUDEVENTS, DEBEZIUM = "json", "cloudevents", "debezium"
NEW, BEGINNING = "new", "beginning"


@dataclass(frozen=True, kw_only=True)
class KafkaSettings(MessageSettings):
    """Topics, and the format of their messages."""

    servers: str = setting(
        "",
        "Servers",
        "Bootstrap servers, such as kafka-1.example.org:9092,kafka-2.example.org:9092.",
        check=required,
        secret_goes_to=str,
    )
    topics: str = setting("", "Topics", "Names, separated by commas.", check=required)
    format: str = setting(
        JSON,
        "Format",
        "json: any body. cloudevents: the Kafka binding of CloudEvents 1.0, structured or binary. debezium: change events.",
        choices=(JSON, CLOUDEVENTS, DEBEZIUM),
    )
    snapshots: bool = setting(
        False,
        "Snapshot rows",
        "Turn on to take also the rows that Debezium reads in a snapshot: each is an event.",
    )
    start: str = setting(
        NEW,
        "Start",
        "Where to begin: with new messages, or at the beginning of each partition.",
        choices=(NEW, BEGINNING),
    )
    group: str = setting(
        "",
        "Consumer group",
        "Empty: wakeful-<slug>. Progress is committed to it, for Kafka's own tools. If it has committed offsets before the source "
        "is first read, reading begins there.",
    )
    protocol: str = setting(
        "PLAINTEXT", "Security protocol", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), secret_goes_to=str
    )
    mechanism: str = setting(
        "PLAIN",
        "SASL mechanism",
        "With a SASL protocol.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        secret_goes_to=str,
    )
    username: str = setting(
        "", "User name", "With a SASL protocol; the secret of the source is the password.", secret_goes_to=str
    )

    @property
    def topic_names(self) -> list[str]:
        return [topic.strip() for topic in self.topics.split(",") if topic.strip()]

    def group_of(self, slug: str) -> str:
        return self.group or f"wakeful-{slug}"
