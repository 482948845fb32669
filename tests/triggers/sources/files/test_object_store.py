"""Objects of a bucket, on a server that speaks S3: each that is new, changed or removed is one event."""

from collections.abc import Iterator
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import boto3
import pytest
from django.db import transaction

from tests.support.brokers import moto_server
from triggers.models import Source, WatchedFile
from triggers.sources.files import beginning, ledger, object_store
from triggers.sources.kind import kinds
from triggers.sources.runner import Assignment, Reader, Received, Runner, SourceError

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with moto_server() as address:
        yield address


class Bucket:
    """A bucket, and the source that lists it."""

    def __init__(self, address: str, **settings: Any) -> None:
        self.name = f"in-{uuid4()}"
        self.client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="eu-central-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        self.client.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        self.settings = {
            "bucket": self.name,
            "server": address,
            "region": "eu-central-1",
            "begin_with": "all",
            **settings,
        }
        self.source = Source.objects.create(slug=self.name, kind="object_store", settings=self.settings)
        self.position: Any = None
        self.messages: list[Received] = []

    def put(self, key: str, body: str = "1") -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=body.encode())

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def connect(self, **settings: Any) -> Reader:
        runner = kinds()["object_store"]
        assert isinstance(runner, Runner)
        self.settings = {**self.settings, **settings}
        given = runner.clean_settings(self.settings)
        secret = "testing:testing"
        return runner.connect(
            Assignment(slug="in", settings=given, secret=secret, position=self.position, source_id=self.source.pk)
        )

    def look(self, *, kills: bool = False, **settings: Any) -> list[tuple[str, str]]:
        """List it once; `kills`: each part by a process that was started again."""
        found: list[Received] = []
        reader = self.connect(**settings)
        while True:
            if kills:
                reader = self.connect()
            batch = reader.read(0)
            assert len(batch.messages) <= object_store.MOST_MESSAGES
            with transaction.atomic():
                if batch.keep:
                    batch.keep()
            found += [message for message in batch.messages if isinstance(message, Received)]
            self.position = batch.position or self.position
            if batch.position and batch.position["is_complete"] and not batch.position["after"]:
                self.messages += found
                return [(one.type.removeprefix("file."), one.subject.partition(f"{self.name}/")[2]) for one in found]


def test_new_changed_and_removed_objects_are_one_event_each(address: str) -> None:
    bucket = Bucket(address, prefix="in/", patterns="*.csv")
    for key in ("in/b.csv", "in/a/ü.csv", "in/folder/", "in/notes.txt", "out/c.csv"):
        bucket.put(key)

    assert bucket.look() == [("created", "in/a/ü.csv"), ("created", "in/b.csv")]
    data = bucket.messages[-1].payload.data
    assert (data["path"], data["size"]) == (f"s3://{bucket.name}/in/b.csv", 1)
    assert data["fingerprint"].startswith("etag:")

    bucket.put("in/b.csv")  # with the same content
    assert bucket.look() == []
    bucket.put("in/b.csv", "2")
    bucket.remove("in/a/ü.csv")
    assert bucket.look() == [("vanished", "in/a/ü.csv"), ("changed", "in/b.csv")]
    assert bucket.look(patterns="*") == [("created", "in/notes.txt")]


def test_many_are_compared_in_parts_also_where_one_side_has_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PAGE", 4)
    monkeypatch.setattr(object_store, "MOST_MESSAGES", 3)
    monkeypatch.setattr(ledger, "AFTER", ledger.AFTER.replace("LIMIT 1000", "LIMIT 4"))
    bucket = Bucket(address)
    keys = [f"{number:02}" for number in range(9)]
    for key in keys:
        bucket.put(key)
    assert bucket.look(kills=True) == [("created", key) for key in keys]

    for key in keys[2:7]:
        bucket.remove(key)
    bucket.put("05x")
    assert sorted(bucket.look(kills=True)) == sorted([("created", "05x"), *(("vanished", key) for key in keys[2:7])])
    assert bucket.look() == []


def test_objects_older_than_the_source_are_skipped_with_begin_with_new(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(address, begin_with="new")
    bucket.put("old")
    monkeypatch.setattr(beginning, "TICK", -timedelta(hours=1))  # as if that were an hour ago
    assert bucket.look() == []

    bucket.put("new")
    bucket.put("old", "2")
    assert bucket.look() == [("created", "new"), ("changed", "old")]


def test_an_object_before_the_first_listing_of_a_store_whose_clock_is_behind_is_an_event(address: str) -> None:
    bucket = Bucket(address, begin_with="new")
    for key in ("new", "old"):
        bucket.put(key)
    reader: Any = bucket.connect()

    def is_behind(parsed: Any, **_: Any) -> None:
        for one in parsed["Contents"]:
            one["LastModified"] -= timedelta(minutes=10 if one["Key"] == "new" else 70)
        headers = parsed["ResponseMetadata"]["HTTPHeaders"]
        headers["date"] = format_datetime(parsedate_to_datetime(headers["date"]) - timedelta(minutes=10))

    reader.client.meta.events.register("after-call.s3.ListObjectsV2", is_behind)

    assert [one.payload.data["path"] for one in reader.read(0).messages] == [f"s3://{bucket.name}/new"]


def test_an_object_that_came_since_the_last_listing_is_an_event_after_an_edit_of_the_patterns(address: str) -> None:
    bucket = Bucket(address, begin_with="new", patterns="*.csv")
    bucket.look()
    bucket.put("orders.csv")
    bucket.position = {**bucket.position, "began_at": "2100-01-01T00:00+00:00"}

    assert bucket.look(patterns="*.csv, *.pdf") == [("created", "orders.csv")]


def test_another_prefix_forgets_nothing_that_it_has_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(address, begin_with="new", prefix="in/")
    for key in ("in/changed", "in/same", "in/sub/same", "out/old"):
        bucket.put(key)
    bucket.look()
    bucket.put("in/came")
    bucket.put("in/changed", "2")
    monkeypatch.setattr(beginning, "TICK", -timedelta(hours=1))  # as if that were an hour ago

    assert bucket.look(prefix="") == [("created", "in/came"), ("changed", "in/changed")]
    bucket.put("in/sub/same", "2")
    assert bucket.look(prefix="in/sub/") == [("changed", "in/sub/same")]
    assert bucket.look() == []
    assert [bytes(name) for name in WatchedFile.objects.values_list("name", flat=True)] == [b"in/sub/same"]


def test_a_place_that_an_earlier_version_stored_with_its_prefix_is_the_same(address: str) -> None:
    bucket = Bucket(address, prefix="in/")
    bucket.put("in/a")
    bucket.look()
    wants = {name: value for name, value in bucket.position["wants"].items() if name != "prefix"}
    bucket.position = {
        **bucket.position,
        "place": f"{bucket.position['place']}in/",
        "wants": wants,
        "selection": "of it",
    }
    bucket.put("in/b")

    assert bucket.look() == [("created", "in/b")]


def test_a_part_without_keys_is_not_the_end_and_a_store_without_order_is_an_error(address: str) -> None:
    bucket = Bucket(address)
    for key in ("a", "b"):
        bucket.put(key)
    bucket.look()
    reader: Any = bucket.connect()
    listed = reader.client.list_objects_v2(Bucket=bucket.name)["Contents"]
    pages = {
        "": {"IsTruncated": True, "NextContinuationToken": "1", "Contents": []},
        "1": {"IsTruncated": True, "NextContinuationToken": "2"},
        "2": {"IsTruncated": False, "Contents": listed},
    }
    reader.client = SimpleNamespace(list_objects_v2=lambda ContinuationToken="", **_: pages[ContinuationToken])
    assert reader.read(0).messages == []  # else they have vanished

    for wrong, error in (
        ({"IsTruncated": True, "Contents": listed[::-1]}, "in no order"),
        ({"IsTruncated": True, "Contents": [listed[0], listed[0]]}, "in no order"),
        ({"IsTruncated": True}, "lists none"),
    ):
        reader.client = SimpleNamespace(list_objects_v2=lambda wrong=wrong, **_: wrong)
        reader.scan_at = 0.0
        with pytest.raises(SourceError, match=error):
            reader.read(0)
    again = {"IsTruncated": True, "Contents": listed}  # of a server that knows no StartAfter
    reader.client = SimpleNamespace(list_objects_v2=lambda **_: again)
    reader.position = {**reader.position, "after": "b"}
    with pytest.raises(SourceError, match="before the requested one"):
        reader.read(0)


def test_another_bucket_is_a_new_beginning_and_one_that_is_away_is_an_error(address: str) -> None:
    bucket, other = Bucket(address), Bucket(address)
    bucket.put("a")
    other.put("b")
    bucket.look()

    bucket.client.delete_object(Bucket=bucket.name, Key="a")
    bucket.client.delete_bucket(Bucket=bucket.name)
    with pytest.raises(SourceError, match="NoSuchBucket") as refused:
        bucket.look()
    assert "name of the bucket" in refused.value.remedy
    assert WatchedFile.objects.count() == 1
    bucket.position = {**bucket.position, "place": "before"}
    bucket.name = other.name
    assert bucket.look(bucket=other.name) == [("created", "b")]
    assert WatchedFile.objects.count() == 1
