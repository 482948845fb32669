import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, HashAlgorithm
from cryptography.x509.oid import NameOID

from triggers.sources.http.answers import Unavailable
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.http.timestamps import parse_timestamp
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import event_id, subject_at, value_at
from triggers.sources.webhooks.object_changes import ObjectChange, changes_of_s3
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, require_fresh
from triggers.sources.webhooks.published_keys import PublishedKeys, fetched
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample, Scheme

ARN = re.compile(r"arn:aws(?P<china>-cn)?[a-z-]{0,20}:sns:(?P<region>[a-z0-9-]{1,30}):[0-9]{12}:[A-Za-z0-9_-]{1,256}")
CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9A-Za-z_-]{1,100}\.pem")
CONFIRMATION = re.compile(r"/\?Action=ConfirmSubscription&TopicArn=[A-Za-z0-9:_-]{1,400}&Token=[0-9a-zA-Z]{1,1000}")
# The names that AWS gives to the certificates of its regions.
ISSUED_TO = re.compile(r"sns(-signing)?([.-][a-z0-9-]{1,30})?\.amazonaws\.com(\.cn)?")
LARGEST_MESSAGE = 2**21  # bytes: SNS allows 256 KiB, and JSON may write each byte as six
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMING = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
SIGNED = {"Notification": NOTIFICATION, "SubscriptionConfirmation": CONFIRMING, "UnsubscribeConfirmation": CONFIRMING}
HASHES: Mapping[str, HashAlgorithm] = {"1": SHA1(), "2": SHA256()}  # noqa: S303  (what SNS signs with by default)


def _topic_problem(value: str) -> str:
    return (
        "" if ARN.fullmatch(value) else "must be the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:uploads"
    )


@dataclass(frozen=True, kw_only=True)
class SnsSettings:
    """The one topic whose messages are accepted."""

    topic: str = setting(
        "", "Topic ARN", "Messages of other topics are refused: everyone with an AWS account can sign them."
    )

    def __post_init__(self) -> None:
        if problem := _topic_problem(self.topic):
            raise InvalidSettings({"topic": problem})

    def host(self) -> str:
        """The one host that certificates and confirmations of this topic come from."""
        arn = ARN.fullmatch(self.topic)
        assert arn  # noqa: S101  (checked by __post_init__)
        return f"sns.{arn['region']}.amazonaws.com{'.cn' if arn['china'] else ''}"


@register
class Sns(Scheme[SnsSettings]):
    """RSA signatures of AWS, versions 1 and 2, checked with a certificate that is fetched from SNS in the region of the topic."""

    name = "sns"
    fetches = True
    label = "Amazon SNS"
    help_text = (
        "For an HTTPS subscription to a topic of Amazon SNS, and through it for S3 and other services. Each change of an object in S3 is "
        "an event of its own (file.created, file.vanished), with s3://bucket/key as subject; other messages are sns.notification."
    )
    group = Group.CLOUD
    setup = (
        "In AWS, copy the ARN of the topic, and enter it in the settings of this source.",
        "At the topic, create a subscription with the protocol HTTPS and {url} as endpoint; leave raw message delivery off. This "
        "source confirms the subscription.",
        "Set the topic's attribute SignatureVersion to 2, which signs with SHA-256.",
        "For S3: at the bucket, open Properties → Event notifications, and choose the topic as destination; its access policy must "
        "allow s3.amazonaws.com to publish.",
    )
    docs_url = "https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html"
    settings_class = SnsSettings
    needs_secret = False
    # So long SNS tries to deliver a message at most.
    retried_for = timedelta(hours=1)

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings({"secret": "is not used: AWS signs with its own key; leave it empty"})

    def new_secret(self) -> str:
        return ""

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: SnsSettings) -> Proof:
        message = _message(delivery)
        if not hmac.compare_digest(message["TopicArn"].encode(), settings.topic.encode()):
            raise Rejected("the message is not of the topic in the settings")
        published_at = _published_at(message)
        require_fresh(published_at, delivery.received_at, self.retried_for)
        address = message["SigningCertURL"]
        path = address.removeprefix(f"https://{settings.host()}")
        if path == address or not CERTIFICATE.fullmatch(path):
            raise Rejected("SigningCertURL is not an address of SNS in the region of the topic")
        certificate = CERTIFICATES.get(address)
        _require_valid(certificate, delivery.received_at)
        _require_signature(message, certificate)
        return Proof(secret=None, signed_at=published_at)

    def greet(self, delivery: Delivery, proof: Proof, settings: SnsSettings) -> Reply | None:
        message = _message(delivery)
        if _is_test_of_s3(message):
            return Reply(body=b"ok")
        if message["Type"] != "SubscriptionConfirmation":
            return None
        address = message["SubscribeURL"]
        path = address.removeprefix(f"https://{settings.host()}")
        if path == address or not CONFIRMATION.fullmatch(path):
            raise Rejected("SubscribeURL is not an address of SNS in the region of the topic")
        get(address)
        return Reply(body=b"confirmed")

    def describe(self, delivery: Delivery, proof: Proof, settings: SnsSettings) -> Description | list[Description]:
        message = _message(delivery)
        inner = read_payload(message["Message"].encode())
        content = inner.data if isinstance(inner.data, (dict, list)) else message["Message"]
        payload = Payload(data={**message, "Message": content})
        if changes := changes_of_s3(content):
            ids = [message["MessageId"], *(f"{message['MessageId']} {number}" for number in range(1, len(changes)))]
            is_alone = len(changes) == 1
            return [_described(change, id, is_alone=is_alone) for change, id in zip(changes, ids, strict=True)]
        return Description(
            id=event_id(message["MessageId"]),
            type="sns.unsubscribed" if message["Type"] == "UnsubscribeConfirmation" else "sns.notification",
            payload=payload,
            subject=subject_at(message, "Subject"),
            time=proof.signed_at,
        )

    def sample(self, settings: SnsSettings) -> Sample | None:
        return None

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: SnsSettings) -> Mapping[str, str]:
        raise NotImplementedError("only AWS has the private key")


class Certificates(PublishedKeys[x509.Certificate]):
    whose = "SNS"

    def read(self, content: bytes) -> x509.Certificate:
        return x509.load_pem_x509_certificate(content)


def get(address: str) -> bytes:
    """The answer of SNS. Rejected: it knows no such address; Unavailable: it does not answer."""
    status, body = fetched(address, "SNS")
    if status in (400, 403, 404):
        raise Rejected(f"SNS answers {status} at the address in the message")
    if status != 200:
        raise Unavailable(why=f"SNS answers {status}")
    return body


CERTIFICATES = Certificates(lambda address: get(address))


def _message(delivery: Delivery) -> dict[str, Any]:
    """The fields of the message, with text in those that are signed. Raises Rejected."""
    if delivery.headers.get("x-amz-sns-rawdelivery") == b"true":
        raise Rejected("raw message delivery is on, which has no signature: turn it off at the subscription")
    if len(delivery.body) > LARGEST_MESSAGE:
        raise Rejected("the body is larger than a message of SNS")
    message = read_payload(delivery.body).data
    signed = SIGNED.get(value_at(message, "Type") or "", ())
    needed = {"Signature", "SignatureVersion", "SigningCertURL", *signed} - {"Subject"}
    if not signed or not all(isinstance(message.get(name), str) for name in needed):
        raise Rejected("the body is not a message of SNS")
    if not isinstance(message.get("Subject") or "", str):
        raise Rejected("the subject of the message is no text")
    return dict(message)


def _published_at(message: Mapping[str, str]) -> datetime:
    try:
        return parse_timestamp(message["Timestamp"])
    except ValueError:
        raise Rejected("the timestamp of the message is not RFC 3339") from None


def _require_valid(certificate: x509.Certificate, now: datetime) -> None:
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise Rejected("the certificate of SNS is not valid now")
    names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not any(ISSUED_TO.fullmatch(name) for name in names):
        raise Rejected("the certificate was not issued to SNS")


def _require_signature(message: Mapping[str, str], certificate: x509.Certificate) -> None:
    hash_, key = HASHES.get(message["SignatureVersion"]), certificate.public_key()
    if hash_ is None or not isinstance(key, RSAPublicKey):
        raise Rejected("the signature is of an unknown version")
    text = "".join(f"{name}\n{message[name]}\n" for name in SIGNED[message["Type"]] if message.get(name) is not None)
    try:
        key.verify(base64.b64decode(message["Signature"], validate=True), text.encode(), PKCS1v15(), hash_)
    except (InvalidSignature, binascii.Error, ValueError):
        raise Rejected("the signature does not match the message") from None


def _is_test_of_s3(message: Mapping[str, str]) -> bool:
    """Whether it is what S3 sends when notifications are set up: no object has changed."""
    content = read_payload(message["Message"].encode()).data
    return value_at(content, "Service") == "Amazon S3" and value_at(content, "Event") == "s3:TestEvent"


def _described(change: ObjectChange, id: str, *, is_alone: bool) -> Description:
    return Description(
        id=change.id or event_id(id),
        type=change.type,
        payload=change.payload,
        subject=change.subject,
        time=change.time,
        body=None if is_alone else change.body,
    )
