"""Open the object that an event names, for an agent: with the access key of the source that lists its bucket, which the agent does
not get, and only while it is the object of the event."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO, cast

from cryptography.fernet import InvalidToken

from agents.exceptions import NetworkRefused
from agents.files import FileChanged, FileRefused, FileUnavailable
from agents.kernel.object_stores import ObjectVersion
from triggers.models import Source
from triggers.sources.files.object_store import ObjectStore, ObjectStoreSettings, client_of
from triggers.sources.runner import SourceError
from triggers.sources.secrets import newest_secret
from triggers.sources.settings import InvalidSettings

CHUNK = 2**18  # bytes that are read ahead
GONE = (
    "NoSuchKey",
    "NoSuchVersion",
    "NoSuchBucket",
    "404",
    "405",
    "MethodNotAllowed",
)  # 405: the version is a delete marker
ANOTHER = ("PreconditionFailed", "412")
REFUSED = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidArgument",
    "InvalidObjectState",
    "403",
)


class ObjectStream(RawIOBase):
    """The content of an object, as it arrives; it cannot go back. `size`: as the store has announced it."""

    def __init__(self, body: Any, name: str, size: int) -> None:
        self._body = body
        self._name = name
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Each read waits for at most the time-out of the client; what is cut short is an error of the client.
        with _errors(self._name):
            part = self._body.read(len(buffer))
        self._left -= len(part)
        if self._left < 0:  # in chunks, the length in the headers bounds nothing
            raise FileRefused(f"{self._name} has more bytes than its store has announced.")
        buffer[: len(part)] = part
        return len(part)


@contextmanager
def open_object(wanted: ObjectVersion, *, most: int) -> Iterator[BinaryIO]:
    """See `agents.kernel.object_stores.Opening`."""
    name = f"s3://{wanted.bucket}/{wanted.key}"
    client = _client(wanted, name)
    try:
        asked = {"IfMatch": f'"{wanted.etag}"', **({"VersionId": wanted.version} if wanted.version else {})}
        with _errors(name):
            found = client.get_object(Bucket=wanted.bucket, Key=wanted.key, **asked)
        body = found["Body"]
        try:
            if str(found.get("ETag", "")).strip('"') != wanted.etag:  # a store that does not know If-Match
                raise FileChanged(f"{name} has changed since its event.")
            size = found.get("ContentLength")
            if size is None:
                raise FileRefused(
                    f"{name} is not opened: its store gives no size, so nothing shows where it is cut short."
                )
            if size > most:
                raise FileRefused(f"{name} has {size:,} bytes; open_file reads at most {most:,}.")
            with BufferedReader(ObjectStream(body, name, size), CHUNK) as file:
                yield cast(BinaryIO, file)
        finally:
            body.close()  # also what was not read: the connection is not used again
    finally:
        client.close()


def _client(wanted: ObjectVersion, name: str) -> Any:
    source, settings = _store_of(wanted, name)
    kind = ObjectStore()
    try:
        boto3, botocore = kind.library("boto3"), kind.library("botocore")
        with _errors(name):
            client = client_of(settings, newest_secret(source), boto3=boto3, botocore=botocore)
    except InvalidToken:
        raise FileRefused(f"No key of WAKEFUL_ENCRYPTION_KEYS decrypts the access key of {source.slug}.") from None
    except SourceError as error:
        raise FileRefused(f"{name} cannot be opened: {error} {error.remedy}".strip()) from None
    return client


def _store_of(wanted: ObjectVersion, name: str) -> tuple[Source, ObjectStoreSettings]:
    """The source that lists the object: that of the event, or another one of the bucket."""
    if {".", ".."} & set(wanted.key.split("/")):  # a server that resolves them would leave the prefix of the source
        raise FileRefused(f"{name} is not opened: its key has a part that is . or ..")
    listing = Source.objects.filter(kind=ObjectStore.name, enabled=True, settings__bucket=wanted.bucket)
    for source in sorted(listing, key=lambda one: (one.slug != wanted.source, one.slug)):
        with suppress(InvalidSettings):
            settings = ObjectStore().clean_settings(source.settings)
            if settings.selection.wants(wanted.key.encode(errors="replace")):
                return source, settings
    raise FileRefused(
        f"{name} is not among the objects of an enabled source of kind {ObjectStore.label}: its access key is what opens them."
    )


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Errors of the client, as those of `open_file`."""
    errors = ObjectStore().library("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in GONE:
            raise FileChanged(f"{name} is not there any more.") from None
        if code in ANOTHER:
            raise FileChanged(f"{name} has changed since its event.") from None
        if code in REFUSED:
            raise FileRefused(
                f"{name} cannot be opened: the store answers {code}. Let the access key use s3:GetObject, and of a bucket with "
                "versions s3:GetObjectVersion."
            ) from None
        raise FileUnavailable(f"{name} cannot be opened now: the store answers {code or 'an error'}.") from None
    except errors.BotoCoreError as error:
        if isinstance(refused := error.kwargs.get("error"), NetworkRefused):
            raise refused from None
        raise FileUnavailable(f"{name} cannot be read now: {type(error).__name__}.") from None
