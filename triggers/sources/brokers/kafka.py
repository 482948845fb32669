from triggers.sources.brokers.kafka_reader import KafkaReader
from triggers.sources.brokers.kafka_settings import KafkaSettings
from triggers.sources.continuity import Gaps
from triggers.sources.kind import Group, register
from triggers.sources.runner import Assignment, Broker, Reader


@register
class Kafka(Broker[KafkaSettings]):
    name = "kafka"
    label = "Apache Kafka"
    help_text = (
        "Reads all partitions of topics; Wakeful stores the offsets together with the events. The key of a message is the event's "
        "subject."
    )
    group = Group.BROKERS
    settings_class = KafkaSettings
    in_sight = ("servers", "topics", "start", "protocol", "username")
    secret_label = "Password"  # noqa: S105  (a label)
    gaps = Gaps(
        are_seen=True,
        how="messages that were deleted before they were read are counted. A topic that was made again, or has lost its end, is noticed by "
        "its id, or by the last recorded message, which is read again at each connection.",
    )
    extra = "kafka"
    setup = (
        "Let the user read and describe the topics, and read the consumer group.",
        "Enter the servers and the topics; with a SASL protocol also the user, and the password as the source's secret.",
        "For Debezium, choose its format: the type of an event is db.schema.table.insert, .update or .delete.",
    )
    docs_url = "https://kafka.apache.org/documentation/#consumerconfigs"

    def connect(self, assignment: Assignment[KafkaSettings]) -> Reader:
        client = self.library("confluent_kafka")
        self.library("confluent_kafka.admin")
        return KafkaReader(assignment, client)
