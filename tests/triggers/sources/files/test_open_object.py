"""An agent opens the object of an event by `open_file`, on a server that speaks S3."""

import csv
import io
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

import boto3
import pytest

from agents import Event
from agents.exceptions import NetworkRefused, is_permanent
from agents.files import FileChanged, FileRefused, FileUnavailable, open_file
from agents.guards.network import network_refused
from tests.support.brokers import moto_server
from tests.support.hooks import make_source
from triggers.models import Source

pytestmark = pytest.mark.django_db
KEYS = "testing:testing"
MORE_THAN_ANNOUNCED = (
    b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n'
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with moto_server() as address:
        yield address


class Store:
    """A bucket, and the source that lists it."""

    def __init__(self, address: str, *, has_versions: bool = False, **settings: Any) -> None:
        self.bucket = f"in-{uuid4()}"
        self.address, self.has_versions = address, has_versions
        given = {"bucket": self.bucket, "server": address, "region": "eu-central-1", **settings}
        self.source = make_source(self.bucket, "object_store", KEYS, settings=given)

    @cached_property
    def client(self) -> Any:
        """Of the bucket, which is made with it."""
        at = {"region_name": "eu-central-1", "aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        client = boto3.client("s3", endpoint_url=self.address, **at)
        client.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        if self.has_versions:
            client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})
        return client

    def put(self, key: str, body: bytes) -> Event:
        """The event of the object."""
        made = self.client.put_object(Bucket=self.bucket, Key=key, Body=body)
        return self.event(key, made["ETag"].strip('"'), made.get("VersionId", ""))

    def event(self, key: str, etag: str, version: str = "", source: str = "") -> Event:
        data = {"path": f"s3://{self.bucket}/{key}", "size": 3, "fingerprint": f"etag:{etag}", "version": version}
        return event(data, source or self.bucket)


def event(data: Any, source: str = "topic") -> Event:
    return Event(id=uuid4(), type="file.created", source=source, time=datetime.now(UTC), data=data)


@pytest.fixture
def store(address: str) -> Store:
    return Store(address)


def test_the_object_of_an_event_is_read_as_it_arrives(store: Store) -> None:
    woken = store.put("in/ü 1.csv", b"a;1\nb;2\n" * 100_000)

    with open_file(woken) as file:
        assert file.read(4) == b"a;1\n"
        assert sum(1 for _ in csv.reader(io.TextIOWrapper(file), delimiter=";")) == 199_999
    with open_file(woken) as file:  # and what is not read is left there
        assert file.readline() == b"a;1\n"


def test_an_object_that_has_changed_or_is_gone_is_not_opened(store: Store) -> None:
    woken = store.put("a", b"one")
    store.put("a", b"two")
    with pytest.raises(FileChanged, match="has changed since its event") as changed, open_file(woken):
        pass
    assert is_permanent(changed.value)

    store.client.delete_object(Bucket=store.bucket, Key="a")
    with pytest.raises(FileChanged, match="not there any more"), open_file(woken):
        pass


def test_the_version_of_an_event_is_opened_although_another_one_has_replaced_it(address: str) -> None:
    store = Store(address, has_versions=True)
    first, second = store.put("a", b"one"), store.put("a", b"two")
    store.client.delete_object(Bucket=store.bucket, Key="a")

    for woken, content in ((first, b"one"), (second, b"two")):
        with open_file(woken) as file:
            assert file.read() == content

    store.client.delete_object(Bucket=store.bucket, Key="a", VersionId=first.data["version"])
    with pytest.raises(FileChanged, match="not there any more"), open_file(first):
        pass


def test_a_large_object_is_opened_only_where_the_agent_allows_it(store: Store) -> None:
    woken = store.put("a", b"0123456789")

    with pytest.raises(FileRefused, match="has 10 bytes; open_file reads at most 9"), open_file(woken, most=9):
        pass
    with open_file(woken, most=10) as file:
        assert file.read() == b"0123456789"


def test_an_event_of_another_source_opens_what_a_source_lists_and_nothing_else(address: str) -> None:
    store = Store(address, prefix="in/", patterns="*.csv")
    notified = store.put("in/a.csv", b"one")
    with open_file(event(notified.data)) as file:
        assert file.read() == b"one"

    for key, reason in (
        ("secret.csv", "not among the objects"),
        ("in/a.txt", "not among the objects"),
        ("in/../secret.csv", "its key has a part"),
    ):
        with pytest.raises(FileRefused, match=reason), open_file(store.put(key, b"one")):
            pass
    Source.objects.filter(pk=store.source.pk).update(enabled=False)
    with pytest.raises(FileRefused, match="not among the objects"), open_file(notified):
        pass


@pytest.mark.parametrize(
    "data",
    [
        {"path": "s3://bucket/a"},
        {"path": "s3://bucket/a", "fingerprint": ""},
        {"path": "s3://bucket/a", "fingerprint": "sha256:00"},
        {"path": "s3://bucket/a", "fingerprint": "etag:"},
        {"path": "s3://bucket/", "fingerprint": "etag:1"},
        {"path": "s3:///a", "fingerprint": "etag:1"},
        {"path": "s3://bucket/a", "fingerprint": "etag:1", "version": 3},
        {"path": "gs://bucket/a", "fingerprint": "etag:1"},
        {"path": "https://shop.blob.core.windows.net/reports/a", "fingerprint": "etag:1"},
    ],
)
def test_an_event_that_names_no_object_opens_none(data: dict[str, Any]) -> None:
    with pytest.raises(FileRefused), open_file(event(data)):
        pass


def test_a_transaction_does_not_wait_for_a_store(store: Store) -> None:
    woken = store.put("a", b"one")

    with network_refused("import-orders"), pytest.raises(NetworkRefused, match="durable=True"), open_file(woken):
        pass


def test_a_key_that_the_store_refuses_is_an_error_without_the_key(store: Store) -> None:
    with server(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as elsewhere:
        moved(store, elsewhere)
        with pytest.raises(FileRefused, match="s3:GetObject") as refused, open_file(store.event("a", "1")):
            pass

    assert "testing" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", FileUnavailable),
        (b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", FileUnavailable),
        (b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc', FileUnavailable),
        (b'HTTP/1.1 200 OK\r\nETag: "1"\r\nConnection: close\r\n\r\nabc', FileRefused),
        (b'HTTP/1.1 200 OK\r\nETag: "1"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n', FileRefused),
        (MORE_THAN_ANNOUNCED, FileRefused),
        (b'HTTP/1.1 200 OK\r\nETag: "2"\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc', FileChanged),
    ],
)
def test_a_store_that_fails_or_knows_no_condition_gives_no_wrong_content(
    answer: bytes, error: type[Exception], store: Store
) -> None:
    with server(answer) as elsewhere:
        moved(store, elsewhere)
        with pytest.raises(error), open_file(store.event("a", "1")) as file:
            file.read()


def test_without_the_extra_its_name_is_in_the_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(FileRefused, match=r"wakeful\[s3\]"), open_file(store.event("a", "1")):
        pass


def test_a_source_without_a_key_signs_for_no_server_of_another(store: Store) -> None:
    store.source.secrets.all().delete()

    with pytest.raises(FileRefused, match="no access key"), open_file(store.event("a", "1")):
        pass


def moved(store: Store, address: str) -> None:
    Source.objects.filter(pk=store.source.pk).update(settings={**store.source.settings, "server": address})


class server:
    """Answers each connection with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def __enter__(self) -> str:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)  # this ends the accept of the thread; on Linux, close does not
        self.listening.close()
        self.thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # the caller has gone
                connection.recv(65_536)
                connection.sendall(self.answer)
