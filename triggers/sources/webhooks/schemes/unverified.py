from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import Naming, describe_by, sample_by
from triggers.sources.webhooks.proof import MOST_UNPROVED, Proof, SigningSecret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme


@dataclass(frozen=True, kw_only=True)
class UnverifiedSettings(Naming):
    """The explicit choice of no verification."""

    unverified: bool = setting(
        False,
        "Accept unverified deliveries",
        "Anyone who knows or guesses the address can wake your agents with anything.",
    )

    def __post_init__(self) -> None:
        if not self.unverified:
            raise InvalidSettings({"unverified": "must be true, to confirm that deliveries are not verified"})


@register
class Unverified(Scheme[UnverifiedSettings]):
    """No verification at all."""

    name = "none"
    label = "None (unverified)"
    help_text = (
        "Accepts deliveries from anyone. For tests, and for networks where something else authenticates the sender."
    )
    group = Group.ANY_SENDER
    setup = ("At the sender, enter {url} as the address of the webhook.",)
    settings_class = UnverifiedSettings
    needs_secret = False
    is_verified = False
    per_minute = 600
    largest = MOST_UNPROVED

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings(
            {"secret": "is not used by this scheme: leave it empty, or choose a scheme that verifies"}
        )

    def new_secret(self) -> str:
        return ""

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: UnverifiedSettings) -> Proof:
        return Proof(secret=None)

    def describe(self, delivery: Delivery, proof: Proof, settings: UnverifiedSettings) -> Description:
        return describe_by(settings, delivery, proof, read_payload(delivery.body))

    def sample(self, settings: UnverifiedSettings) -> Sample:
        return sample_by(settings)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: UnverifiedSettings) -> Mapping[str, str]:
        return {}
