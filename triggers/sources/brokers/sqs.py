import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from triggers.sources.access_key import LABEL, clean_access_key, keep_ours_at_amazon, parts_of
from triggers.sources.brokers.message import UNNAMED_TYPE, MessageSettings, event_of
from triggers.sources.continuity import Gaps
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH_BYTES, Assignment, Batch, Broker, Reader, Received, SourceError
from triggers.sources.settings import server_of, setting
from triggers.sources.webhooks.object_changes import changes_of_s3

AT_ONCE = 10  # messages of one request, at most
# A batch must be confirmed within the visibility timeout of the queue.
BATCH = 100
COLLECT_FOR = 2.0  # seconds
LOOK_EVERY = 60.0  # seconds between two looks at the length of the queue: each is a request that costs
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5, 25  # seconds


def queue_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not parts.path.strip("/"):
        return "must be an address such as https://sqs.eu-central-1.amazonaws.com/123456789012/orders"
    return ""


@dataclass(frozen=True, kw_only=True)
class SqsSettings(MessageSettings):
    """A queue."""

    queue_url: str = setting(
        "",
        "Queue",
        "Its URL, such as https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo.",
        check=queue_url,
        secret_goes_to=server_of,
    )
    region: str = setting("", "Region", "Such as eu-central-1. Empty: the one in the queue's URL.")


@register
class Sqs(Broker[SqsSettings]):
    name = "sqs"
    label = "Amazon SQS"
    help_text = (
        "Reads a queue, standard or FIFO, and deletes each message after its event is recorded. The group of a FIFO message is "
        "the event's subject. A notification of S3 is an event for each change of an object (file.created, file.vanished)."
    )
    group = Group.BROKERS
    settings_class = SqsSettings
    in_sight = ("queue_url", "region")
    secret_label = LABEL
    gaps = Gaps(
        are_seen=False,
        how="a queue does not number its messages. What its retention deletes before it is read leaves no trace; give it a dead-letter "
        "queue and an alarm on the age of its oldest message.",
    )
    extra = "sqs"
    setup = (
        "Let an IAM user or role use sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes "
        "on the queue.",
        "Enter its access key as ID:SECRET, or none if the sources process gets credentials from its environment or its role.",
        "Set the queue's visibility timeout to 30 seconds or more, and its retention to as long as Wakeful may be away.",
    )
    docs_url = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/welcome.html"

    def clean_secret(self, secret: str) -> str:
        return clean_access_key(secret)

    def connect(self, assignment: Assignment[SqsSettings]) -> Reader:
        return SqsReader(assignment, boto3=self.library("boto3"), config=self.library("botocore.config").Config)


class SqsReader(Reader):
    def __init__(self, assignment: Assignment[SqsSettings], *, boto3: Any, config: Any) -> None:
        self.settings = assignment.settings
        parts = urlsplit(self.settings.queue_url)
        keep_ours_at_amazon(assignment.secret, parts.hostname or "")
        key_id, key = parts_of(assignment.secret)
        self.client = boto3.session.Session().client(
            "sqs",
            region_name=self.settings.region or _region_of(parts.hostname or ""),
            endpoint_url=f"{parts.scheme}://{parts.netloc}",
            aws_access_key_id=key_id or None,
            aws_secret_access_key=key or None,
            # The runner itself tries again.
            config=config(
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=ANSWER_TIMEOUT,
                retries={"total_max_attempts": 1, "mode": "standard"},
            ),
        )
        self.unconfirmed: list[str] = []
        self.look_at = 0.0

    def read(self, wait: float) -> Batch:
        self.unconfirmed = []
        more = self._receive(wait)
        messages, size = self._events(more), _size(more)
        until = time.monotonic() + COLLECT_FOR
        # While messages of a group are not deleted, no other reader gets later ones of it, and we get them in order.
        while more and len(messages) < BATCH and size < BATCH_BYTES and time.monotonic() < until:
            more = self._receive(0)
            messages += self._events(more)
            size += _size(more)
        return Batch(messages=messages, lag=self._lag())

    def confirm(self, batch: Batch) -> None:
        for handles in _in_tens(self.unconfirmed):
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
            answer = self.client.delete_message_batch(QueueUrl=self.settings.queue_url, Entries=entries)
            if failed := answer.get("Failed"):
                raise SourceError(
                    f"{len(failed)} messages could not be deleted from the queue: {failed[0].get('Message', failed[0].get('Code'))}",
                    remedy="They come again, and count as duplicates. If this lasts, raise the visibility timeout of the queue.",
                )
        self.unconfirmed = []

    def close(self) -> None:
        # What was not recorded may be read again at once.
        for handles in _in_tens(self.unconfirmed):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                for number, handle in enumerate(handles)
            ]
            with suppress(Exception):
                self.client.change_message_visibility_batch(QueueUrl=self.settings.queue_url, Entries=entries)
        self.client.close()

    def _receive(self, wait: float) -> list[dict[str, Any]]:
        answer = self.client.receive_message(
            QueueUrl=self.settings.queue_url,
            MaxNumberOfMessages=AT_ONCE,
            WaitTimeSeconds=int(wait),
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        self.unconfirmed += [message["ReceiptHandle"] for message in found]  # also if a later request of the read fails
        return found

    def _lag(self) -> int | None:
        if time.monotonic() < self.look_at:
            return None
        self.look_at = time.monotonic() + LOOK_EVERY
        name = "ApproximateNumberOfMessages"
        answer = self.client.get_queue_attributes(QueueUrl=self.settings.queue_url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def _events(self, messages: Sequence[dict[str, Any]]) -> list[Received]:
        return [event for message in messages for event in _of_objects(self._event(message))]

    def _event(self, message: dict[str, Any]) -> Received:
        system = message.get("Attributes", {})
        given = {name: value.get("StringValue", "") for name, value in message.get("MessageAttributes", {}).items()}
        return event_of(
            self.settings,
            id=message["MessageId"],
            body=message["Body"].encode(errors="replace"),
            headers=given,
            subject=system.get("MessageGroupId", ""),
            time=datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC)
            if "SentTimestamp" in system
            else None,
        )


def _of_objects(event: Received) -> list[Received]:
    """The changes of objects in a notification of S3, unless the settings name a type; of any other message its event."""
    changes = changes_of_s3(event.payload.data) if event.type == UNNAMED_TYPE else []
    return [
        replace(
            event,
            id=change.id or (f"{event.id} {number}" if number else event.id),
            type=change.type,
            subject=change.subject,
            time=change.time,
            payload=change.payload,
            body=event.body if len(changes) == 1 else change.body,
        )
        for number, change in enumerate(changes)
    ] or [event]


def _region_of(host: str) -> str | None:
    """The region in a name such as sqs.eu-central-1.amazonaws.com; for other hosts boto3 reads the environment."""
    first, _, rest = host.partition(".")
    return rest.partition(".")[0] if first == "sqs" and rest.partition(".")[2].startswith("amazonaws.") else None


def _size(messages: Sequence[dict[str, Any]]) -> int:
    return sum(len(message["Body"]) for message in messages)


def _in_tens(handles: Sequence[str]) -> Iterator[list[str]]:
    left = iter(handles)
    while ten := list(islice(left, AT_ONCE)):
        yield ten
