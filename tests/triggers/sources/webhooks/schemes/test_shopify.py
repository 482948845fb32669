from datetime import UTC, datetime

import pytest

from tests.support.deliveries import take
from triggers.sources.webhooks.proof import Rejected

SECRET = "hush"
BODY = (
    '{"id":820982911946154508,"admin_graphql_api_id":"gid://shopify/Order/820982911946154508","name":"#9999","currency":"USD",'
    '"total_price":"398.00","note":"café"}'
).encode()
# Accepted by shopify.webhooks.validate of Shopify's @shopify/shopify-api 13.1.0 with this secret and body.
SIGNATURE = "QZuhde9FoJQbANZv+/s7l6ZveCZXRC5aWxZwYaKMu/k="
HEADERS = {
    "X-Shopify-Topic": "orders/create",
    "X-Shopify-Hmac-SHA256": SIGNATURE,
    "X-Shopify-Shop-Domain": "johns-apparel.myshopify.com",
    "X-Shopify-API-Version": "2025-10",
    "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
    "X-Shopify-Triggered-At": "2023-03-29T18:00:27.877041743Z",
    "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
}


def test_a_delivery_that_shopifys_sdk_accepts_is_accepted_and_described() -> None:
    event = take("shopify", BODY, HEADERS, SECRET).event

    assert (event.ce_id, event.type) == ("b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", "orders/create")
    assert event.subject == "gid://shopify/Order/820982911946154508"
    assert event.time == datetime(2023, 3, 29, 18, 0, 27, 877041, tzinfo=UTC)
    assert event.data["note"] == "café"
    assert event.headers["x-shopify-hmac-sha256"] == "[redacted]"


@pytest.mark.parametrize("name", ["X-Shopify-Topic", "X-Shopify-Webhook-Id", "X-Shopify-Hmac-SHA256"])
def test_a_missing_header_is_refused(name: str) -> None:
    with pytest.raises(Rejected, match="missing"):
        take("shopify", BODY, {key: value for key, value in HEADERS.items() if key != name}, SECRET)
