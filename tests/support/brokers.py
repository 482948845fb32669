"""Brokers for tests, each with the source that reads it: `send` puts numbered messages of a key into it, in order."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

Message = tuple[str, int]  # key, number
MOST = 100


def body_of(message: Message) -> str:
    key, number = message
    return json.dumps({"key": key, "number": number})


class TestBroker(ABC):
    """A queue, stream or topic of its own on a real broker."""

    __test__ = False
    kind: str
    secret = ""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Those of a source that reads it from its beginning."""

    @abstractmethod
    def send(self, messages: Sequence[Message]) -> None: ...

    @abstractmethod
    def unconfirmed(self) -> int:
        """Messages that the source was given and has not confirmed."""


class RedisStream(TestBroker):
    kind = "redis_streams"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = url.replace(f":{parts.password}@", "")
        self.secret, self.stream = parts.password or "", f"orders-{uuid4()}"
        self.client = redis.Redis.from_url(url)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "stream": self.stream,
            "group": "wakeful",
            "start": "beginning",
            "body_field": "body",
            "subject_field": "key",
        }

    def send(self, messages: Sequence[Message]) -> None:
        with self.client.pipeline(transaction=False) as pipeline:
            for message in messages:
                pipeline.xadd(self.stream, {"key": message[0], "body": body_of(message)})
            pipeline.execute()

    def unconfirmed(self) -> int:
        found: Any = self.client.xpending(self.stream, "wakeful")
        return int(found["pending"])


class SqsQueue(TestBroker):
    """Of moto's server, FIFO or standard. `send` waits while MOST messages are in the queue: moto compares each one with all
    others in it."""

    kind = "sqs"
    secret = "testing:testing"

    def __init__(self, endpoint: str, *, is_fifo: bool = True, visibility: int = 60) -> None:
        self.is_fifo = is_fifo
        key_id, _, key = self.secret.partition(":")
        self.client = boto3.client(
            "sqs",
            region_name="eu-central-1",
            endpoint_url=endpoint,
            aws_access_key_id=key_id,
            aws_secret_access_key=key,
        )
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if is_fifo else {}
        name = f"orders-{uuid4()}" + (".fifo" if is_fifo else "")
        made = self.client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": str(visibility), **fifo})
        self.url = made["QueueUrl"]

    @property
    def settings(self) -> dict[str, Any]:
        return {"queue_url": self.url, "region": "eu-central-1", **({} if self.is_fifo else {"subject_path": "key"})}

    def send(self, messages: Sequence[Message]) -> None:
        for number, ten in enumerate(_in_parts(messages, 10)):
            while number % 5 == 4 and self.unconfirmed() > MOST:
                time.sleep(0.05)
            entries: list[Any] = [
                {
                    "Id": str(place),
                    "MessageBody": body_of(message),
                    **({"MessageGroupId": message[0]} if self.is_fifo else {}),
                }
                for place, message in enumerate(ten)
            ]
            assert not self.client.send_message_batch(QueueUrl=self.url, Entries=entries).get("Failed")

    def unconfirmed(self) -> int:
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


class KafkaTopic(TestBroker):
    """Of librdkafka's own mock cluster, which lives in its producer."""

    kind = "kafka"
    group = "wakeful-test"

    def __init__(self) -> None:
        self.topic = f"orders-{uuid4()}"
        self.producer = Producer({"test.mock.num.brokers": 3, "linger.ms": 20})
        self.servers = ",".join(f"{one.host}:{one.port}" for one in self.producer.list_topics().brokers.values())
        self.consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": self.group, "enable.auto.commit": False}
        )

    @property
    def settings(self) -> dict[str, Any]:
        return {"servers": self.servers, "topics": self.topic, "start": "beginning", "group": self.group}

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.put(body_of(message).encode(), key=message[0])
        self.producer.flush()

    def put(self, body: bytes | None, *, key: str | None = None, headers: dict[str, str] | None = None) -> None:
        named: Any = list((headers or {}).items())
        self.producer.produce(self.topic, body, key=key, headers=named)
        self.producer.poll(0)

    def unconfirmed(self) -> int:
        partitions = self.consumer.list_topics(self.topic).topics[self.topic].partitions
        ends = {
            number: self.consumer.get_watermark_offsets(TopicPartition(self.topic, number), cached=False)
            for number in partitions
        }
        stands = self.consumer.committed([TopicPartition(self.topic, number) for number in partitions])
        return sum(ends[one.partition][1] - max(one.offset, ends[one.partition][0]) for one in stands)


@contextmanager
def moto_server() -> Iterator[str]:
    """The address of a server of moto's."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def _in_parts(messages: Sequence[Message], size: int) -> Iterator[list[Message]]:
    left = iter(messages)
    while part := list(islice(left, size)):
        yield part
