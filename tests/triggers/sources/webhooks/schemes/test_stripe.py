import json
from datetime import UTC, datetime, timedelta

import pytest
import stripe
from stripe import WebhookSignature

from tests.support.deliveries import NOW, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SECRET = "whsec_test_of_the_endpoint"
PAID = {
    "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
    "object": "event",
    "api_version": "2026-08-27.basil",
    "created": 1686089970,
    "data": {"object": {"id": "in_1NG8Du2eZvKYlo2C", "object": "invoice", "amount_paid": 2000, "customer_name": "Zoë"}},
    "livemode": False,
    "type": "invoice.paid",
}
BODY = json.dumps(PAID, indent=2, ensure_ascii=False).encode()


def signed_headers(body: bytes = BODY, secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    """The header as Stripe's SDK makes it."""
    header = WebhookSignature.generate_signature_header(body.decode(), secret, int(at.timestamp()))
    return {"Stripe-Signature": header}


def test_an_event_signed_by_stripes_sdk_is_accepted_and_described() -> None:
    event = take("stripe", BODY, signed_headers(), SECRET).event

    assert (event.ce_id, event.type) == ("evt_1NG8Du2eZvKYlo2CUI79vXWy", "invoice.paid")
    assert (event.subject, event.time) == ("in_1NG8Du2eZvKYlo2C", datetime(2023, 6, 6, 22, 19, 30, tzinfo=UTC))
    assert event.data == PAID
    assert event.headers["stripe-signature"] == "[redacted]"


def test_a_thin_event_is_described() -> None:
    thin = {
        "id": "evt_test_65R9Ijk8dKEYZcXeRWn16R9A7j1FSQ3w3TGDPLLGSM4CW0",
        "object": "v2.core.event",
        "type": "v1.billing.meter.error_report_triggered",
        "created": "2024-09-17T06:20:52.246Z",
        "related_object": {"id": "mtr_test_61R9IeP0SgKbYROOx41PEAQhH0qO23oW", "type": "billing.meter"},
    }
    body = json.dumps(thin).encode()

    event = take("stripe", body, signed_headers(body), SECRET).event

    assert (event.type, event.subject) == (thin["type"], "mtr_test_61R9IeP0SgKbYROOx41PEAQhH0qO23oW")
    assert event.time and event.time.year == 2024


def test_stripes_sdk_accepts_our_sample() -> None:
    scheme = schemes()["stripe"]
    now = datetime.now(UTC)
    sample = scheme.signed(scheme.sample(None), SECRET.encode(), now, None)  # type: ignore[arg-type]

    found = stripe.Webhook.construct_event(sample.body, sample.headers["Stripe-Signature"], SECRET)

    assert found.type == "invoice.paid"


def test_while_a_secret_is_replaced_either_of_two_signatures_is_enough() -> None:
    new = signed_headers()["Stripe-Signature"]
    old = signed_headers(secret="whsec_old")["Stripe-Signature"].partition(",")[2]

    for known in (SECRET, "whsec_old"):
        assert take("stripe", BODY, {"Stripe-Signature": f"{new},{old},v0=abc"}, known).secret


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=",
        "v1=abc",
        "t=1,t=2,v1=abc",
        "t=1e9,v1=abc",
        "t=１,v1=abc",
        "=",
        ",,,",
        "t=-1,v1=",
        "v0=abc,t=1763640000",
    ],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    with pytest.raises(Rejected):
        take("stripe", BODY, {"Stripe-Signature": header}, SECRET)


def test_a_signature_of_the_test_scheme_proves_nothing() -> None:
    with pytest.raises(Rejected, match="no live secret"):
        take("stripe", BODY, {"Stripe-Signature": signed_headers()["Stripe-Signature"].replace("v1=", "v0=")}, SECRET)


def test_a_flood_of_signatures_is_refused() -> None:
    header = signed_headers()["Stripe-Signature"] + ",v1=00" * 16

    with pytest.raises(Rejected, match="more than 16"):
        take("stripe", BODY, {"Stripe-Signature": header}, SECRET)


def test_a_future_time_is_refused_though_stripes_sdk_would_take_it() -> None:
    header = signed_headers(at=NOW + timedelta(minutes=6))

    with pytest.raises(Rejected, match="off$"):
        take("stripe", BODY, header, SECRET)


def test_an_api_key_is_no_signing_secret() -> None:
    with pytest.raises(InvalidSettings, match="whsec_"):
        schemes()["stripe"].clean_secret("sk_live_123")
