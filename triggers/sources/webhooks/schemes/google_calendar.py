import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.naming import event_id, is_name
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.bearer import SentToken
from triggers.sources.webhooks.schemes.shared_secret import NoSettings

TOKEN = "X-Goog-Channel-Token"
LONGEST_TOKEN = 256  # characters, at Google
NUMBER = re.compile(rb"[0-9]{1,20}")
STATE = re.compile(rb"[a-z_]{1,50}")
CALENDAR = re.compile(r"/calendars/([^/?]+)/")
# The body is empty: everything is in headers.
FIELDS = {
    "channel": "X-Goog-Channel-ID",
    "number": "X-Goog-Message-Number",
    "state": "X-Goog-Resource-State",
    "resource": "X-Goog-Resource-ID",
    "uri": "X-Goog-Resource-URI",
}


@register
class GoogleCalendar(SentToken[NoSettings]):
    """Google signs nothing: it sends the token of the channel. Channels end, and Google renews none."""

    name = "google_calendar"
    label = "Google Calendar"
    help_text = (
        "For push notifications of Google Calendar. An event shows that a calendar changed (calendar.exists), not how: the agent "
        "has to list the changes. calendar.sync is the first event of a channel. Channels end after some days; a problem shows "
        "when one has to be renewed."
    )
    group = Group.MESSAGES
    setup = (
        "In the Google Cloud console, enable the Google Calendar API, and authorise a client for the calendar.",
        "Call events.watch for the calendar, with type web_hook, a new UUID as id, {url} as address, and the secret of this source "
        "as token.",
        "Set params.ttl to the longest life that the channel may have, in seconds. Google's answer has the time when the channel ends.",
        "Before that time, call events.watch again, with another id and the same address and token.",
    )
    docs_url = "https://developers.google.com/workspace/calendar/api/guides/push"
    secret_label = "Channel token"
    settings_class = NoSettings
    sent_in = TOKEN
    subscription_ends = True

    def clean_secret(self, secret: str) -> str:
        token = super().clean_secret(secret)
        if len(token) > LONGEST_TOKEN:
            raise InvalidSettings({"secret": f"must have at most {LONGEST_TOKEN} characters: Google takes no more"})
        return token

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        proof = super().prove(delivery, secrets, settings)
        if not delivery.headers.get(FIELDS["channel"]):
            raise Rejected(f"{FIELDS['channel']} is missing")
        if not NUMBER.fullmatch(delivery.headers.get(FIELDS["number"], b"")):
            raise Rejected(f"{FIELDS['number']} is missing or not a number")
        if not STATE.fullmatch(delivery.headers.get(FIELDS["state"], b"")):
            raise Rejected(f"{FIELDS['state']} is missing or not a state")
        return proof

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        data = {name: as_text(delivery.headers.get(header, b"")) for name, header in FIELDS.items()}
        ends = _instant(as_text(delivery.headers.get("X-Goog-Channel-Expiration", b"")))
        return Description(
            id=event_id(f"{data['channel']}:{data['number']}"),
            type=f"calendar.{data['state']}",
            payload=Payload(data={**data, "expires": ends.isoformat() if ends else None}),
            subject=_calendar(data["uri"]),
        )

    def sample(self, settings: NoSettings) -> Sample:
        headers = {
            "X-Goog-Channel-ID": str(uuid4()),
            "X-Goog-Message-Number": "2",
            "X-Goog-Resource-State": "exists",
            "X-Goog-Resource-ID": "ret08u3rv24htgh289g",
            "X-Goog-Resource-URI": "https://www.googleapis.com/calendar/v3/calendars/test%40example.com/events?alt=json",
        }
        return Sample(body=b"", headers=headers)


def _calendar(uri: str) -> str:
    """The id of the calendar, if the channel watches one."""
    found = CALENDAR.search(uri)
    name = unquote(found[1]) if found else ""
    return name if is_name(name) else ""


def _instant(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
