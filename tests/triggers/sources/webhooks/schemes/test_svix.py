import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.deliveries import NOW, take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ok!").decode()
BODY = b'{"type":"user.created","timestamp":"2026-11-20T11:59:30Z","data":{"id":"user_29w"}}'


def sdk(secret: str = SECRET) -> Any:
    """Svix' own; its import loads the models of their whole API, which processes that run other tests do without."""
    from svix.webhooks import Webhook

    return Webhook(secret)


def signed_headers(at: datetime = NOW, secret: str = SECRET) -> dict[str, str]:
    """Headers as Svix' SDK makes them."""
    return {
        "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "svix-timestamp": str(int(at.timestamp())),
        "svix-signature": sdk(secret).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, BODY.decode()),
    }


def test_a_delivery_signed_by_svix_sdk_is_accepted_and_described() -> None:
    event = take("svix", BODY, signed_headers(), SECRET).event

    assert (event.ce_id, event.type) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "user.created")
    assert event.data["data"] == {"id": "user_29w"}
    assert event.headers["svix-signature"] == "[redacted]"


def test_the_example_of_svix_documentation_is_signed_alike() -> None:
    """docs.svix.com, "Verifying Webhooks Manually"."""
    headers = {
        "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "svix-timestamp": "1614265330",
        "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= "
        "v2,MzJsNDk4MzI0K2VvdSMjMTEhQEBAQDEyMzMzMzEyMwo=",
    }
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'

    assert take("svix", body, headers, secret, at=datetime.fromtimestamp(1614265330, UTC)).secret


def test_svix_sdk_accepts_our_sample() -> None:
    scheme = schemes()["svix"]
    sample = scheme.sample(None)
    assert sample
    sent = scheme.signed(sample, SECRET.encode(), datetime.now(UTC), None)

    sdk().verify(sent.body, dict(sent.headers))


def test_the_headers_of_standard_webhooks_are_another_kind() -> None:
    headers = {name.replace("svix", "webhook"): value for name, value in signed_headers().items()}

    with pytest.raises(Rejected, match="svix-id is missing"):
        take("svix", BODY, headers, SECRET)
    assert take("standard_webhooks", BODY, headers, SECRET).event.type == "user.created"
