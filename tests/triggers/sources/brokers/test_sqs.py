"""Reading queues of moto's server."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.support.brokers import SqsQueue, moto_server
from triggers.sources.brokers.sqs import Sqs, _region_of
from triggers.sources.runner import Assignment, Reader, Received
from triggers.sources.settings import InvalidSettings

KIND = Sqs()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as address:
        yield address


def reader_of(queue: SqsQueue, **changes: Any) -> Reader:
    cleaned = KIND.clean_settings({**queue.settings, **changes})
    return KIND.connect(Assignment(slug="orders", settings=cleaned, secret=queue.secret))


def test_a_group_of_a_fifo_queue_is_a_subject_and_read_in_order(endpoint: str) -> None:
    queue = SqsQueue(endpoint)
    queue.send([("ada", number) for number in range(15)])
    reader = reader_of(queue)

    found: list[Any] = []
    while len(found) < 15:
        batch = reader.read(1)
        found += batch.messages
        reader.confirm(batch)

    assert [message.payload.data["number"] for message in found] == list(range(15))
    assert {message.subject for message in found} == {"ada"}
    assert queue.unconfirmed() == 0


def test_an_unconfirmed_message_comes_again_with_its_id(endpoint: str) -> None:
    queue = SqsQueue(endpoint, is_fifo=False)
    queue.client.send_message(
        QueueUrl=queue.url,
        MessageBody='{"type": "order.placed"}',
        MessageAttributes={"trace": {"DataType": "String", "StringValue": "t-1"}},
    )
    first = reader_of(queue)
    [message] = first.read(1).messages
    first.close()  # which gives back what it holds

    [again] = reader_of(queue, type_path="type").read(1).messages

    assert isinstance(again, Received)
    assert (again.id, again.type, again.headers) == (message.id, "order.placed", {"trace": "t-1"})
    assert again.time


def test_messages_of_a_read_that_fails_later_are_given_back_at_once(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = SqsQueue(endpoint)
    queue.send([("ada", number) for number in range(3)])
    reader = reader_of(queue)
    monkeypatch.setattr(reader, "client", SecondRequestFails(reader.client))  # type: ignore[attr-defined]
    with pytest.raises(ConnectionError):
        reader.read(1)
    reader.close()

    assert len(reader_of(queue).read(1).messages) == 3


class SecondRequestFails:
    """The client of a queue, whose connection breaks between two requests for messages."""

    def __init__(self, client: Any) -> None:
        self.client, self.asked = client, 0

    def receive_message(self, **asked: Any) -> Any:
        self.asked += 1
        if self.asked == 2:
            raise ConnectionError
        return self.client.receive_message(**asked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


def test_the_length_of_the_queue_is_its_lag(endpoint: str) -> None:
    queue = SqsQueue(endpoint, is_fifo=False)
    queue.send([("ada", number) for number in range(15)])

    batch = reader_of(queue).read(1)

    assert batch.lag is not None and batch.lag + len(batch.messages) == 15


def test_a_notification_of_s3_is_an_event_for_each_change_of_an_object(endpoint: str) -> None:
    queue = SqsQueue(endpoint, is_fifo=False)
    at = {"region_name": "eu-central-1", "aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    store = boto3.client("s3", endpoint_url=endpoint, **at)
    store.create_bucket(Bucket="reports-of-sqs", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    arn = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    store.put_bucket_notification_configuration(
        Bucket="reports-of-sqs",
        NotificationConfiguration={
            "QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}]
        },
    )
    put = store.put_object(Bucket="reports-of-sqs", Key="in/ü 1.csv", Body=b"abc")
    store.delete_object(Bucket="reports-of-sqs", Key="in/ü 1.csv")

    found = [one for one in reader_of(queue).read(1).messages if isinstance(one, Received)]
    changes = [one for one in found if one.type != "message.received"]  # which the test message of S3 is

    assert sorted(one.type for one in changes) == ["file.created", "file.vanished"]
    [created] = [one for one in changes if one.type == "file.created"]
    assert (created.subject, created.payload.data["size"]) == ("s3://reports-of-sqs/in/ü 1.csv", 3)
    assert created.payload.data["fingerprint"] == "etag:" + put["ETag"].strip('"')


def test_a_notification_of_several_records_is_as_many_events_unless_the_settings_name_a_type(endpoint: str) -> None:
    records = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "reports"}, "object": {"key": key, "sequencer": "01"}},
        }
        for key in "ab"
    ]
    queue = SqsQueue(endpoint, is_fifo=False, visibility=0)
    queue.client.send_message(QueueUrl=queue.url, MessageBody=json.dumps({"Records": records}))

    def read(**changes: Any) -> list[tuple[str, str]]:
        messages = {one.id: one for one in reader_of(queue, **changes).read(1).messages if isinstance(one, Received)}
        return sorted((one.type, (one.body or b"").decode()) for one in messages.values())

    assert read() == [("file.created", json.dumps(one, separators=(",", ":"))) for one in records]
    assert read(type="upload") == [("upload", json.dumps({"Records": records}))]


def test_records_that_do_not_name_their_change_are_as_many_events_each_time_the_message_comes(endpoint: str) -> None:
    queue = SqsQueue(endpoint, is_fifo=False, visibility=0)
    restored = {"eventSource": "aws:s3", "s3": {"bucket": {"name": "reports"}, "object": {"key": "k" * 900}}}
    records = [{**restored, "eventName": f"ObjectRestore:{step}"} for step in ("Post", "Completed")]
    queue.client.send_message(QueueUrl=queue.url, MessageBody=json.dumps({"Records": records}))

    # Its visibility ends at once, so one read may find it more than once.
    assert len({one.id for _ in range(2) for one in reader_of(queue).read(1).messages}) == 2


def test_a_batch_takes_no_further_message_once_it_has_enough_events(endpoint: str) -> None:
    queue = SqsQueue(endpoint, is_fifo=False)
    body = json.dumps({"Records": [{"eventSource": "aws:s3"}] * 100})
    for _ in range(12):
        queue.client.send_message(QueueUrl=queue.url, MessageBody=body)

    batch = reader_of(queue).read(1)

    assert 100 <= len(batch.messages) <= 1_000  # of the ten messages that one request gives at most


@pytest.mark.parametrize("secret", ["", "id", "id:", ":secret"])
def test_an_access_key_has_two_parts(secret: str) -> None:
    with pytest.raises(InvalidSettings):
        KIND.clean_secret(secret)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("sqs.eu-central-1.amazonaws.com", "eu-central-1"),
        ("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("localhost", None),
    ],
)
def test_the_region_stands_in_the_address(host: str, region: str | None) -> None:
    assert _region_of(host) == region
