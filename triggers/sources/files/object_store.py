import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from agents.files import FileMetadata
from triggers.sources.access_key import LABEL, clean_access_key, keep_ours_at_amazon, parts_of
from triggers.sources.continuity import Gaps
from triggers.sources.file_types import CHANGED, CREATED, VANISHED
from triggers.sources.files.beginning import Beginning
from triggers.sources.files.ledger import PAGE, Changes, Known, Ledger, Path
from triggers.sources.files.report import event_of
from triggers.sources.files.selection import Selection, patterns_in
from triggers.sources.kind import Group, register
from triggers.sources.polling.poller import PollSettings
from triggers.sources.runner import BATCH, Assignment, Batch, Broker, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings, server_of, setting

MOST_MESSAGES = BATCH  # of a part
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5, 25  # seconds
MOST_SKEW = timedelta(minutes=15)  # S3 refuses requests whose clock is further from its own
LISTING_SECONDS = 30.0  # for parts without a key
UNUSABLE = "It must list keys in the order of their bytes, as S3 does (ListObjectsV2 with StartAfter)."
REMEDIES = {
    "NoSuchBucket": "Correct the name of the bucket, its region or the server.",
    "AccessDenied": "Let the access key use s3:ListBucket on the bucket.",
    "InvalidAccessKeyId": "Enter the access key again.",
    "SignatureDoesNotMatch": "Enter the access key again.",
    "PermanentRedirect": "Enter the region of the bucket.",
}


def bucket(value: str) -> str:
    return (
        "" if value.isascii() and value.isprintable() and not set(value) & set(" /") else "must be the name of a bucket"
    )


def server(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        is_address = False
    return "" if not value or is_address else "must be an address such as https://minio.example.com:9000"


@dataclass(frozen=True, kw_only=True)
class ObjectStoreSettings(PollSettings):
    """A bucket, and which of its objects."""

    bucket: str = setting("", "Bucket", check=bucket)
    prefix: str = setting("", "Prefix", "The beginning of the keys, such as incoming/. Only these are listed.")
    patterns: str = setting("*", "Objects", "Patterns of keys, separated by commas, such as *.csv.")
    server: str = setting(
        "",
        "Server",
        "Such as https://minio.example.com:9000. Empty: Amazon S3.",
        check=server,
        secret_goes_to=server_of,
    )
    region: str = setting("", "Region", "Such as eu-central-1. Empty: that of the sources process's environment.")

    def __post_init__(self) -> None:
        if not self.bucket:
            raise InvalidSettings({"bucket": "must be the name of a bucket"})
        if not patterns_in(self.patterns):
            raise InvalidSettings({"patterns": "must be one or more patterns, such as *.csv"})

    @property
    def selection(self) -> Selection:
        return Selection(self.patterns, ignored="", prefix=self.prefix)

    @property
    def place(self) -> str:
        return f"{self.server or 's3:/'}/{self.bucket}/"


@register
class ObjectStore(Broker[ObjectStoreSettings]):
    name = "object_store"
    label = "Object store (S3)"
    help_text = (
        "Objects that a listing finds new, changed or removed, in a bucket of Amazon S3 or of a server that speaks its protocol. Between "
        "two listings it cannot see an object that comes and goes, or is changed and changed back; several changes are one event."
    )
    group = Group.FILES
    docs = "files#object-stores"
    settings_class = ObjectStoreSettings
    in_sight = ("bucket", "prefix", "server", "region")
    secret_label = LABEL
    gaps = Gaps(
        are_seen=False,
        how="an object that is made and deleted again between two listings leaves no trace.",
    )
    extra = "s3"
    setup = (
        "Let an IAM user or role use s3:ListBucket on the bucket, and s3:GetObject if agents open its objects.",
        "Enter its access key as ID:SECRET, or none if the sources process gets credentials from its environment or its role.",
        "For each change of an object, within seconds, let the bucket notify Amazon SNS or SQS as well, and add that source.",
    )
    docs_url = "https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html"

    def clean_secret(self, secret: str) -> str:
        return clean_access_key(secret)

    def connect(self, assignment: Assignment[ObjectStoreSettings]) -> Reader:
        return ObjectReader(assignment, boto3=self.library("boto3"), botocore=self.library("botocore"))


class ObjectReader(Reader):
    """Lists the keys in order, beside the ledger in the same order; both in parts."""

    def __init__(self, assignment: Assignment[ObjectStoreSettings], *, boto3: Any, botocore: Any) -> None:
        self.settings = assignment.settings
        self.selection = assignment.settings.selection
        self.ledger = Ledger(assignment.source_id)
        place, stored = self.settings.place, assignment.position or {}
        if stored.get("place", "").startswith(place):  # an earlier version stored the prefix with it
            assignment = replace(assignment, position={**stored, "place": place})
        self.beginning = Beginning(assignment, place, self.selection, begin_with=self.settings.begin_with)
        self.position, self.is_of_other = self.beginning.position, self.beginning.is_of_other
        self.scan_at = 0.0
        self.botocore = botocore
        with self._errors():
            self.client = client_of(self.settings, assignment.secret, boto3=boto3, botocore=botocore)

    def read(self, wait: float) -> Batch:
        if self.is_of_other:
            return self._forget_other()
        if (left := self.scan_at - time.monotonic()) > 0:
            return Batch(next_in=timedelta(seconds=left))
        after = self.position.get("after", "")
        listed, is_last = self._list(after)
        known = self.ledger.after(Path(b"", after.encode()))
        # Behind the end of one side's part, it is not known what that side has.
        ends = [*([] if is_last else [listed[-1].path]), *([known[-1].path] if len(known) == PAGE else [])]
        batch, end = self._compare(listed, known, min(ends, default=None))
        if end:
            self.position = {**self.position, "after": end.name.decode()}
        else:
            self.position = {**self.beginning.complete(self.position), "after": ""}
            self.scan_at = time.monotonic() + self.settings.pause.total_seconds()
        return replace(batch, position=self.position)

    def close(self) -> None:
        self.client.close()
        connection.close()

    def _list(self, after: str) -> tuple[list[Known], bool]:
        """The next objects, and whether they are the last ones."""
        place = {"StartAfter": after} if after else {}
        until = time.monotonic() + LISTING_SECONDS
        while True:
            with self._errors():
                answer = self.client.list_objects_v2(
                    Bucket=self.settings.bucket, Prefix=self.settings.prefix, MaxKeys=PAGE, **place
                )
            if self.beginning.began_at is None:
                self.position = self.beginning.begin(self.position, _time_of(answer))
            found, has_more = [_object(one) for one in answer.get("Contents", [])], bool(answer.get("IsTruncated"))
            if found or not has_more:
                break
            # Such as a thousand objects that were deleted: those behind them are still there.
            place = {"ContinuationToken": answer.get("NextContinuationToken", "")}
            if not place["ContinuationToken"] or time.monotonic() > until:
                raise SourceError("The object store reports more keys, but lists none.", remedy=UNUSABLE)
        if (after or has_more) and not _is_in_order(found, after):
            raise SourceError(
                "The object store lists its keys in no order, or keys before the requested one.", remedy=UNUSABLE
            )
        return found, not has_more

    def _compare(self, listed: Sequence[Known], known: Sequence[Known], end: Path | None) -> tuple[Batch, Path | None]:
        """The differences in the order of the keys, and the key up to which they were compared; None: to the end."""
        now, was = ({one.path: one for one in side} for side in (listed, known))
        messages: list[Received] = []
        changes = Changes()
        last = None
        for path in sorted(now.keys() | was.keys()):
            if end and path > end:
                break
            if len(messages) == MOST_MESSAGES:
                end = last
                break
            messages += self._difference(path, now.get(path), was.get(path), changes)
            last = path
        keep = (lambda: self.ledger.write(changes)) if len(changes) else None
        return Batch(messages=messages, keep=keep), end

    def _difference(self, path: Path, now: Known | None, was: Known | None, changes: Changes) -> Iterator[Received]:
        place = f"s3://{self.settings.bucket}".encode()
        is_wanted = self._wants(path.name)
        if now and is_wanted:
            if was and (was.fingerprint, was.metadata.size) == (now.fingerprint, now.metadata.size):
                return
            changes.put[path] = now
            if was:
                yield event_of(CHANGED, place, now, previous=was)
            elif not self._is_passed_over(now):
                yield event_of(CREATED, place, now)
        elif was:
            if is_wanted or self.beginning.may_forget(path.name):
                changes.gone.add(path)
            if is_wanted:
                yield event_of(VANISHED, place, was)

    def _wants(self, key: bytes) -> bool:
        return not key.endswith(b"/") and self.selection.wants(key)  # consoles make folders of empty objects

    def _is_passed_over(self, found: Known) -> bool:
        """Whether the object existed before the source. Stores give times in whole seconds: an object of the same
        second is new.
        """
        if self.position["is_complete"]:
            return False
        return self.beginning.passes_over(
            found.path.name, lambda time: found.metadata.mtime_ns >= int(time.timestamp()) * 1e9
        )

    def _forget_other(self) -> Batch:
        """The ledger is that of the bucket that the source had before."""
        changes = Changes(gone={one.path for one in self.ledger.after(Path(b"", b""))})
        self.is_of_other = len(changes) > 0
        return Batch(keep=lambda: self.ledger.write(changes)) if self.is_of_other else Batch()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the client, in words."""
        try:
            yield
        except self.botocore.exceptions.ClientError as error:
            said = error.response.get("Error", {})
            code = str(said.get("Code", ""))
            raise SourceError(
                f"The object store answers {code or 'an error'}: {said.get('Message', '')}",
                remedy=REMEDIES.get(code, ""),
            ) from None
        except self.botocore.exceptions.BotoCoreError as error:
            raise SourceError(f"The object store cannot be reached: {error}") from None


def client_of(settings: ObjectStoreSettings, secret: str, *, boto3: Any, botocore: Any) -> Any:
    """A client of the store. SourceError: without an access key, it would sign for a server outside of AWS."""
    if settings.server:
        keep_ours_at_amazon(secret, urlsplit(settings.server).hostname or "")
    key_id, key = parts_of(secret)
    return boto3.session.Session().client(
        "s3",
        region_name=settings.region or None,
        endpoint_url=settings.server or None,
        aws_access_key_id=key_id or None,
        aws_secret_access_key=key or None,
        # The caller itself tries again.
        config=botocore.config.Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=ANSWER_TIMEOUT,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": "path"} if settings.server else None,
        ),
    )


def _time_of(answer: Mapping[str, Any]) -> datetime:
    """The current time by the clock of the store."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(said) if said else datetime.now(UTC) - MOST_SKEW


def _is_in_order(found: Sequence[Known], after: str) -> bool:
    """Else parts of the listing cannot be compared with the ledger, and the same ones would come again for ever."""
    return all(one < other for one, other in pairwise([after.encode(), *(one.path.name for one in found)]))


def _object(listed: dict[str, Any]) -> Known:
    modified: datetime = listed["LastModified"]
    metadata = FileMetadata(listed["Size"], int(modified.timestamp() * 1e9), 0, 0)
    etag = str(listed.get("ETag", "")).strip('"')
    return Known(path=Path(b"", listed["Key"].encode()), metadata=metadata, fingerprint=f"etag:{etag}")
