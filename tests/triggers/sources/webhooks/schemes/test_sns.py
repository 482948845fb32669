import base64
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID
from django.utils import timezone

from runs.db.sql import execute
from tests.support.deliveries import FIXTURES, NOW, delivery, take
from tests.support.hooks import make_source, post
from triggers.models import Event
from triggers.sources.http.answers import Unavailable
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks import published_keys
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Greeting, Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.schemes import sns
from triggers.sources.webhooks.schemes.sns import Certificates

TOPIC = "arn:aws:sns:eu-west-1:123456789012:uploads"
HOST = "https://sns.eu-west-1.amazonaws.com"
CERTIFICATE = f"{HOST}/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem"
CONFIRM = f"{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f37fb687f5d51e6e2425"
KEY = rsa.generate_private_key(65537, 2048)
PUBLISHED = "2026-11-20T11:59:58.317Z"
WHEN_REAL = datetime(2022, 7, 28, 21, 25, tzinfo=UTC)


def issued(to: str = "sns.amazonaws.com", days: int = 30) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, to)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=30))
        .not_valid_after(NOW - timedelta(days=30) + timedelta(days=30 + days))
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


ISSUED = issued()


def message(type_: str = "Notification", version: str = "2", **fields: str | None) -> bytes:
    """A message as SNS signs it; a field that is None is left out."""
    given: dict[str, str | None] = {
        "Type": type_,
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Message": "Hello",
        "Timestamp": PUBLISHED,
        "SignatureVersion": version,
        "SigningCertURL": CERTIFICATE,
        **fields,
    }
    data = {name: value for name, value in given.items() if value is not None}
    names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    text = "".join(f"{name}\n{data[name]}\n" for name in names if name in data)
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()
    signature = KEY.sign(text.encode(), padding.PKCS1v15(), algorithm)
    return json.dumps({"Signature": base64.b64encode(signature).decode(), **data}).encode()


def changed(body: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(body), **fields}).encode()


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were fetched; at each of them is our certificate."""
    addresses: list[str] = []

    def fetch(address: str) -> bytes:
        addresses.append(address)
        return ISSUED

    monkeypatch.setattr(sns, "get", fetch)
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(fetch))
    return addresses


def receipt_of(body: bytes, **settings: str) -> Receipt:
    return take("sns", body, {}, settings={"topic": TOPIC, **settings})


def greeted(body: bytes) -> Greeting:
    greeting = receive(*cleaned("sns", {"topic": TOPIC}), [], delivery(body, {}))
    assert isinstance(greeting, Greeting)
    return greeting


# --- Signatures ---


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_messages_of_the_official_ruby_sdk_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real messages with the real certificate, from the tests of MessageVerifier in aws/aws-sdk-ruby."""
    body = (FIXTURES / "sns" / f"version-{version}.json").read_bytes()
    monkeypatch.setattr(
        sns, "CERTIFICATES", Certificates(lambda _: (FIXTURES / "sns" / "certificate.pem").read_bytes())
    )
    settings = {"topic": json.loads(body)["TopicArn"]}

    event = take("sns", body, {}, settings=settings, at=WHEN_REAL).event

    assert (event.type, event.data["Message"]) == ("sns.notification", "Hello world")
    with pytest.raises(Rejected, match="does not match"):
        take("sns", body.replace(b"Hello world", b"Hello, world"), {}, settings=settings, at=WHEN_REAL)
    with pytest.raises(Rejected, match="not valid now"):
        at = WHEN_REAL + timedelta(days=30)
        late = body.replace(b"2022-07-28", at.date().isoformat().encode())
        take("sns", late, {}, settings=settings, at=at)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", [None, "New object", "Grüße"])
def test_a_signed_message_is_an_event_with_the_time_it_was_published(version: str, subject: str | None) -> None:
    event = receipt_of(message(version=version, Subject=subject, Message="Hello\n wörld")).event

    assert (event.ce_id, event.type) == ("22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "sns.notification")
    assert (event.subject, event.data["Message"]) == (subject or "", "Hello\n wörld")
    assert event.time == datetime(2026, 11, 20, 11, 59, 58, 317000, tzinfo=UTC)


@pytest.mark.parametrize(
    "body",
    [
        message()[:-1],
        message().decode().encode("utf-16"),
        b"",
        b"[]",
        b'"Notification"',
        message(MessageId=None),
        changed(message(), Message="Bye"),
        changed(message(), Message=["Hello"]),
        changed(message(), Subject="added"),
        changed(message(), Subject=3),
        changed(message(), MessageId="another"),
        changed(message(), Timestamp="2026-11-20T11:59:59.317Z"),
        changed(message(), Type="SubscriptionConfirmation", SubscribeURL=CONFIRM, Token="t"),
        changed(message(), Type="Other"),
        changed(message(), Signature="%%%"),
        changed(message(), Signature=""),
        changed(message(), SignatureVersion="1"),
        changed(message(), SignatureVersion="3"),
        message() + b" " * 2**21,
    ],
)
def test_a_message_that_is_not_signed_as_it_stands_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected):
        receipt_of(body)


@pytest.mark.parametrize("published", ["2026-11-20T10:54:59Z", "2026-11-20T12:05:01Z", "yesterday", "1795176000"])
def test_a_message_that_is_too_old_or_of_the_future_is_refused(published: str, fetched: list[str]) -> None:
    with pytest.raises(Rejected, match="timestamp"):
        receipt_of(message(Timestamp=published))
    assert not fetched


def test_a_retry_within_the_hour_is_the_same_event() -> None:
    body = message()
    later = take("sns", body, {}, settings={"topic": TOPIC}, at=NOW + timedelta(hours=1)).event

    assert receipt_of(body).event.ce_id == later.ce_id


def test_another_topic_is_refused_although_aws_signed_its_messages(fetched: list[str]) -> None:
    with pytest.raises(Rejected, match="not of the topic"):
        receipt_of(message(TopicArn="arn:aws:sns:eu-west-1:999999999999:uploads"))
    assert not fetched


def test_raw_delivery_is_refused_with_its_remedy() -> None:
    with pytest.raises(Rejected, match="turn it off"):
        take("sns", b"Hello", {"x-amz-sns-rawdelivery": "true"}, settings={"topic": TOPIC})


@pytest.mark.parametrize(
    "topic", ["", "uploads", "arn:aws:sqs:eu-west-1:123456789012:uploads", f"{TOPIC}:subscription", f"{TOPIC}\n"]
)
def test_a_source_needs_the_arn_of_its_topic(topic: str) -> None:
    with pytest.raises(InvalidSettings, match="ARN of a topic"):
        schemes()["sns"].clean_settings({"topic": topic})


# --- Addresses in the message ---

ELSEWHERE = [
    "http://sns.eu-west-1.amazonaws.com/{path}",
    "https://sns.us-east-1.amazonaws.com/{path}",
    "https://sns.eu-west-1.amazonaws.com.evil.example/{path}",
    "https://evil.example/{path}",
    "https://sns.eu-west-1.amazonaws.com@evil.example/{path}",
    "https://sns.eu-west-1.amazonaws.com:8443/{path}",
    "https://user@sns.eu-west-1.amazonaws.com/{path}",
    "https://SNS.eu-west-1.amazonaws.com/{path}",
    "https://s3.eu-west-1.amazonaws.com/bucket/{path}",
    "https://sns.eu-west-1.amazonaws.com//{path}",
    "https://sns.eu-west-1.amazonaws.com/../{path}",
    "https://169.254.169.254/{path}",
    "file:///{path}",
    "{path}",
    "",
]
PEM = "SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem"


@pytest.mark.parametrize(
    "address",
    [*(one.format(path=PEM) for one in ELSEWHERE), f"{HOST}/other.pem", f"{CERTIFICATE}?x=1", f"{CERTIFICATE}#x", f"{CERTIFICATE}\n",
     f"{HOST}/SimpleNotificationService-/../x.pem", f"{HOST}/SimpleNotificationService-7ff.key"],
)  # fmt: skip
def test_no_certificate_is_fetched_from_elsewhere(address: str, fetched: list[str]) -> None:
    with pytest.raises(Rejected, match="SigningCertURL"):
        receipt_of(message(SigningCertURL=address))
    assert not fetched


@pytest.mark.parametrize(
    ("topic", "host"),
    [
        ("arn:aws:sns:us-east-2:123456789012:a", "sns.us-east-2.amazonaws.com"),
        ("arn:aws-us-gov:sns:us-gov-west-1:123456789012:a", "sns.us-gov-west-1.amazonaws.com"),
        ("arn:aws-cn:sns:cn-north-1:123456789012:a", "sns.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_certificates_come_from_the_region_of_the_topic(topic: str, host: str, fetched: list[str]) -> None:
    address = f"https://{host}/{PEM}"

    assert receipt_of(message(TopicArn=topic, SigningCertURL=address), topic=topic)
    assert fetched == [address]


@pytest.mark.parametrize(
    "certificate",
    [
        issued("evil.example"),
        issued("sns.amazonaws.com.evil.example"),
        issued(days=-1),
        b"<Error>NoSuchKey</Error>",
        b"",
    ],
)
def test_another_certificate_proves_nothing(certificate: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(lambda _: certificate))

    with pytest.raises(Rejected):
        receipt_of(message())


@pytest.mark.parametrize(
    "name",
    [
        "sns.amazonaws.com",
        "sns-signing.af-south-1.amazonaws.com",
        "sns-us-gov-west-1.amazonaws.com",
        "sns-cn-north-1.amazonaws.com.cn",
    ],
)
def test_the_names_of_all_regions_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(lambda _: issued(name)))

    assert receipt_of(message())


def test_an_internal_address_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of AWS that leads to this machine, as a resolver under attack may say."""
    monkeypatch.undo()
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: inside)

    with pytest.raises(Unavailable, match="not a public one"):
        sns.get(CERTIFICATE)


# --- Certificates are kept ---


def test_a_certificate_is_fetched_once(fetched: list[str]) -> None:
    for _ in range(3):
        receipt_of(message())

    assert fetched == [CERTIFICATE]


def test_few_certificates_are_kept_and_few_are_fetched_within_a_minute(fetched: list[str]) -> None:
    certificates = Certificates(lambda address: ISSUED)
    for number in range(certificates.MOST_FETCHED):
        certificates.get(f"{HOST}/SimpleNotificationService-{number}.pem")

    with pytest.raises(Unavailable, match="within a minute"):
        certificates.get(CERTIFICATE)
    assert certificates.get(f"{HOST}/SimpleNotificationService-0.pem")


def test_the_oldest_certificate_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Certificates, "MOST_KEPT", 2)
    addresses: list[str] = []
    certificates = Certificates(lambda address: addresses.append(address) or ISSUED)  # type: ignore[func-returns-value]

    for name in "abcca":
        certificates.get(name)

    assert addresses == ["a", "b", "c", "a"]


def test_a_certificate_is_fetched_again_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []
    certificates = Certificates(lambda address: addresses.append(address) or ISSUED)  # type: ignore[func-returns-value]
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for now in (1.0, 86_400.0, 86_402.0):  # noqa: B007  (the clock reads it)
        certificates.get("a")

    assert addresses == ["a", "a"]


def away(_: str) -> bytes:
    raise Unavailable


def test_while_sns_is_away_its_messages_are_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(away))

    with pytest.raises(Unavailable):
        receipt_of(message())


def test_deliveries_do_not_wait_for_a_certificate_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would take a place of the web process from all other requests."""
    asked, answered = threading.Event(), threading.Event()

    def frozen(address: str) -> bytes:
        asked.set()
        answered.wait()
        return ISSUED

    monkeypatch.setattr(published_keys, "SECONDS", 3600.0)
    monkeypatch.setattr(published_keys, "PATIENCE", 0.1)
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(frozen))
    with ThreadPoolExecutor(1) as other:
        first = other.submit(receipt_of, message())
        asked.wait()
        try:
            for _ in range(5):
                with pytest.raises(Unavailable):
                    receipt_of(message())
        finally:
            answered.set()
        assert first.result().event.type == "sns.notification"
    assert receipt_of(message()).event.type == "sns.notification"


# --- Subscriptions ---


def confirmation(**fields: str) -> bytes:
    return message(
        "SubscriptionConfirmation", **{"SubscribeURL": CONFIRM, "Token": "2336412f37fb687f5d51e6e2425", **fields}
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_subscription_is_confirmed_and_is_no_event(version: str, fetched: list[str]) -> None:
    greeting = greeted(confirmation(version=version))

    assert greeting.reply.status == 200
    assert fetched == [CERTIFICATE, CONFIRM]


@pytest.mark.parametrize("fields", [{"Token": "another"}, {"SubscribeURL": f"{CONFIRM}0"}, {"TopicArn": f"{TOPIC}-2"}])
def test_a_confirmation_that_was_changed_is_not_followed(fields: dict[str, str], fetched: list[str]) -> None:
    with pytest.raises(Rejected):
        greeted(changed(confirmation(), **fields))
    assert CONFIRM not in fetched and f"{CONFIRM}0" not in fetched


@pytest.mark.parametrize(
    "address",
    [*(one.format(path="?Action=ConfirmSubscription&TopicArn=a&Token=b") for one in ELSEWHERE), f"{CONFIRM}&x=http://evil.example",
     f"{HOST}/?Action=Unsubscribe&TopicArn=a&Token=b", f"{CONFIRM}#x", f"{CONFIRM}\n"],
)  # fmt: skip
def test_a_signed_confirmation_with_another_address_is_rejected(address: str, fetched: list[str]) -> None:
    with pytest.raises(Rejected, match="SubscribeURL"):
        greeted(confirmation(SubscribeURL=address))
    assert fetched == [CERTIFICATE]


def test_the_end_of_a_subscription_is_an_event() -> None:
    body = message("UnsubscribeConfirmation", SubscribeURL=CONFIRM, Token="2336412f37fb687f5d51e6e2425")

    assert receipt_of(body).event.type == "sns.unsubscribed"


# --- Through the door ---


def sent(body: bytes) -> tuple[int, bytes]:
    answer = post(
        body, {"Content-Type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": "Notification"}, "topic"
    )
    return answer.status_code, answer.content


@pytest.mark.django_db
@pytest.mark.urls("tests.triggers.sources.urls")
def test_the_door_confirms_a_subscription_records_messages_and_lets_sns_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_source("topic", "sns", secret=None, settings={"topic": TOPIC})
    now = timezone.now()
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(lambda _: issued(days=(now - NOW).days + 30)))
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")

    assert sent(confirmation(Timestamp=at)) == (200, b"confirmed")
    assert [sent(message(Timestamp=at))[0] for _ in range(2)] == [202, 200]
    assert sent(message(Timestamp=at, MessageId="other", TopicArn=f"{TOPIC}-2"))[0] == 401
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(away))
    assert sent(message(Timestamp=at, MessageId="later"))[0] == 503
    assert Event.objects.count() == 1


# --- S3 ---


def record(name: str = "ObjectCreated:Put", **changes: Any) -> dict[str, Any]:
    object_ = {
        "key": "in/my+report+%C3%BC.pdf",
        "size": 1024,
        "eTag": "d41d8",
        "sequencer": "0A1B2C3D4E5F678901",
        **changes,
    }
    return {
        "eventVersion": "2.5",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": "2026-11-20T11:59:57.000Z",
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": "reports"}, "object": object_},
    }


def put(name: str = "ObjectCreated:Put", **changes: Any) -> str:
    return json.dumps({"Records": [record(name, **changes)]})


def test_an_object_in_s3_is_an_event_as_of_a_listing() -> None:
    event = receipt_of(message(Subject="Amazon S3 Notification", Message=put(versionId="v1"))).event

    assert (event.type, event.subject) == ("file.created", "s3://reports/in/my report ü.pdf")
    assert {name: event.data[name] for name in ("path", "size", "fingerprint", "version", "modified_at")} == {
        "path": "s3://reports/in/my report ü.pdf",
        "size": 1024,
        "fingerprint": "etag:d41d8",
        "version": "v1",
        "modified_at": "2026-11-20T11:59:57+00:00",
    }
    assert event.data["record"]["s3"]["object"]["key"] == "in/my+report+%C3%BC.pdf"
    assert event.time == datetime(2026, 11, 20, 11, 59, 57, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "version", "type_"),
    [
        ("ObjectCreated:CompleteMultipartUpload", None, "file.created"),
        ("ObjectRemoved:Delete", None, "file.vanished"),
        ("ObjectRemoved:DeleteMarkerCreated", "v2", "file.vanished"),
        ("ObjectRemoved:Delete", "v1", "s3.ObjectRemoved:Delete"),
        ("LifecycleExpiration:Delete", None, "file.vanished"),
        ("ObjectTagging:Put", None, "s3.ObjectTagging:Put"),
        ("x" * 300, None, "s3.event"),
    ],
)
def test_a_change_that_a_listing_cannot_show_keeps_the_name_of_s3(name: str, version: str | None, type_: str) -> None:
    given = {"versionId": version} if version else {}

    event = receipt_of(message(Message=put(name, **given))).event

    assert (event.type, event.data["notification"]) == (type_, name)


def test_two_messages_about_one_change_of_an_object_are_one_event() -> None:
    events = [
        receipt_of(message(Message=put(**changes), MessageId=f"m-{number}")).event
        for number, changes in enumerate([{}, {}, {"sequencer": "0A1B2C3D4E5F678902"}, {"key": "other"}])
    ]

    assert events[0].ce_id == events[1].ce_id
    assert len({event.ce_id for event in events}) == 3


def test_each_record_of_a_message_is_an_event_with_its_own_part_as_body() -> None:
    records = [record(), record(key="b", sequencer="02"), record("ObjectRemoved:Delete", key="c", sequencer=None)]

    events = receipt_of(message(Message=json.dumps({"Records": records}))).events

    assert [(event.type, event.subject) for event in events] == [
        ("file.created", "s3://reports/in/my report ü.pdf"),
        ("file.created", "s3://reports/b"),
        ("file.vanished", "s3://reports/c"),
    ]
    assert [json.loads(event.body or b"") for event in events] == records
    assert len({event.ce_id for event in events}) == 3


@pytest.mark.parametrize("key", ["a", ""])
def test_records_that_do_not_name_their_change_are_as_many_events_each_time_the_message_comes(key: str) -> None:
    records = [record(f"ObjectRestore:{step}", key=key, sequencer=None) for step in ("Post", "Completed")]
    body = message(Message=json.dumps({"Records": records}))

    [first, again] = [[event.ce_id for event in receipt_of(body).events] for _ in range(2)]

    assert len(set(first)) == 2 and first == again


def test_a_message_with_more_records_than_a_delivery_may_have_is_one_event() -> None:
    bare = {"eventSource": "aws:s3"}

    assert len(receipt_of(message(Message=json.dumps({"Records": [bare] * 1_000}))).events) == 1_000
    event = receipt_of(message(Message=json.dumps({"Records": [bare] * 1_001}))).event

    assert (event.type, len(event.data["Message"]["Records"])) == ("sns.notification", 1_001)


def test_a_key_that_postgresql_cannot_store_is_kept_as_text() -> None:
    event = receipt_of(message(Message=put(key="a%00b"))).event

    assert (event.data["path"], event.subject) == ("s3://reports/a\ufffdb", "s3://reports/a\ufffdb")


def test_the_test_message_of_s3_is_no_event() -> None:
    assert (
        greeted(message(Message='{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"reports"}')).reply.status
        == 200
    )


FULL = """
CREATE FUNCTION pg_temp.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'disk full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON triggers_event FOR EACH ROW WHEN (NEW.subject = 's3://reports/full')
  EXECUTE FUNCTION pg_temp.full()
"""


@pytest.mark.django_db
@pytest.mark.urls("tests.triggers.sources.urls")
def test_the_records_of_a_message_are_accepted_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    make_source("topic", "sns", secret=None, settings={"topic": TOPIC})
    now = timezone.now()
    monkeypatch.setattr(sns, "CERTIFICATES", Certificates(lambda _: issued(days=(now - NOW).days + 30)))
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    both = message(Timestamp=at, Message=json.dumps({"Records": [record(), record(key="b", sequencer="02")]}))
    refused = json.dumps({"Records": [record(key="d", sequencer="04"), record(key="full", sequencer="05")]})
    execute(FULL)

    assert sent(message(Timestamp=at, Message=refused))[0] == 503
    assert Event.objects.count() == 0

    first, again = sent(both), sent(both)
    assert (first[0], again[0]) == (202, 200)
    assert [one["duplicate"] for one in json.loads(again[1])] == [True, True]
    assert {one["event"] for one in json.loads(first[1])} == {
        str(id) for id in Event.objects.values_list("id", flat=True)
    }


@pytest.mark.parametrize(
    ("content", "type_"),
    [
        ('{"Records":[]}', "sns.notification"),
        ('{"Records":[3]}', "sns.notification"),
        ('{"Records":[{"eventSource":"aws:s3"}]}', "s3.event"),
        ('{"AlarmName":"cpu"}', "sns.notification"),
        ("{", "sns.notification"),
        ("17", "sns.notification"),
        ("", "sns.notification"),
    ],
)
def test_messages_of_any_content_are_events(content: str, type_: str) -> None:
    event = receipt_of(message(Message=content)).event

    assert (event.type, event.ce_id) == (type_, "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324")
