import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from agents.kernel.redaction import TOKEN_PREFIX
from runs.db.nudge import nudge_dispatcher
from triggers.sources.continuity import Gaps
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, Waits, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.switches.terms import Hours, duration, require_hours
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample, Scheme
from triggers.switches.switch import FAIL, GRACE, LOG, PERIOD, PING, START, SUCCESS

KEPT = 10_000  # bytes of a body
TOKEN = r"[-\w]{16,100}"  # noqa: S105  (a pattern)
SIGNAL = r"start|fail|log|25[0-5]|2[0-4]\d|[01]?\d?\d"
ADDRESS = re.compile(rf"/ping/(?P<slug>[-\w]+)/(?P<token>{TOKEN})(?:/(?P<signal>{SIGNAL}))?/?", re.ASCII)
TYPES = {"": SUCCESS, "start": START, "fail": FAIL, "log": LOG}


@dataclass(frozen=True, kw_only=True)
class PingSettings(Hours):
    """Settings of pings: how often they are expected."""

    every: str = setting(
        PERIOD, "Period", "The longest normal time between two pings, such as 1h or 1d.", check=duration()
    )
    grace: str = setting(
        GRACE,
        "Grace",
        "How much later the switch opens. Also the longest time from a /start to its end.",
        check=duration(timedelta(seconds=1)),
    )

    def __post_init__(self) -> None:
        require_hours(self, self.every)


@register
class Ping(Scheme[PingSettings]):
    """A dead man's switch: an address to ping. The token in the address is the proof."""

    name = PING
    label = "Dead man's switch"
    help_text = (
        "An address that a job pings after each success. Records absence.opened when pings stop or report a failure."
    )
    group = Group.WATCHES
    docs = "absence#dead-mans-switches"
    waits = Waits.JOB
    gaps = Gaps(are_seen=True, how="a ping that does not come is an absence.")
    settings_class = PingSettings
    secret_label = "Token"  # noqa: S105  (a label)
    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "POST", "PUT")
    per_minute = 600
    overloaded = 429
    accepted = Reply(body=b"OK")
    setup = (
        "Let the job POST to {url} when it has worked. GET and HEAD count as well, but not those of browsers that fetch ahead.",
        "Optional: request the same address with /start at its beginning, /fail if it failed, or /<exit code> at its end.",
        "Optional: let a trigger listen to absence.opened of this source. Wakeful notifies people without one.",
    )

    def saved(self, source_id: UUID) -> None:
        nudge_dispatcher()

    def address(self, slug: str, secret: str = "") -> str:
        return f"/ping/{slug}/{secret or 'TOKEN'}"

    def clean_secret(self, secret: str) -> str:
        if not re.fullmatch(TOKEN, secret, re.ASCII):
            raise InvalidSettings({"secret": "must be 16 to 100 letters, digits, dashes or underscores"})
        return secret

    def new_secret(self) -> str:
        return TOKEN_PREFIX + random.token_urlsafe(32)  # a shape that `redacted` knows

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: PingSettings) -> Proof:
        if not (found := _address_of(delivery)):
            raise Rejected("the address has no token")
        token = found["token"].encode()
        return Proof(secret=matching_secret(secrets, lambda secret: compare_digest(secret, token)))

    def describe(self, delivery: Delivery, proof: Proof, settings: PingSettings) -> Description:
        found = _address_of(delivery)
        signal = (found and found["signal"]) or ""
        data: dict[str, Any] = {"method": delivery.method, "body": _text_of(delivery.body)}
        if signal.isdigit():
            data["exit_code"] = int(signal)
            signal = "fail" if int(signal) else ""
        return Description(id=str(delivery.id), type=TYPES[signal], payload=Payload(data=data))

    def sample(self, settings: PingSettings) -> Sample:
        return Sample(body=b"A test ping from Wakeful.", headers={"Content-Type": "text/plain"})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: PingSettings) -> Mapping[str, str]:
        return {}

    def signed(self, sample: Sample, secret: bytes, at: datetime, settings: PingSettings) -> Sample:
        """The token is part of the address."""
        parts = urlsplit(sample.url)
        slug = parts.path.strip("/").rpartition("/")[2]
        return replace(sample, url=urlunsplit(parts._replace(path=self.address(slug, secret.decode()))))


def _address_of(delivery: Delivery) -> re.Match[str] | None:
    return ADDRESS.fullmatch(urlsplit(delivery.url).path)


def _text_of(body: bytes) -> str:
    return body[:KEPT].decode(errors="replace").replace("\0", "\ufffd")
