import json
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import read_payload
from triggers.sources.http.timestamps import time_in
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import UNNAMED_TYPE, event_id, event_type, header_text, subject_at
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SignedBody


@register
class Shopify(SignedBody[NoSettings]):
    """Shopify signs the body only, not the headers with the id and the topic."""

    name = "shopify"
    label = "Shopify"
    help_text = "For webhooks of a Shopify store or app. Events are named after their topic: orders/create."
    group = Group.COMMERCE
    setup = (
        "For one store: in its admin, open Settings → Notifications → Webhooks and create a webhook in the format JSON.",
        "For an app: add the topics that agents need to the subscriptions in shopify.app.toml.",
        "Enter {url} as the address.",
        "Enter here the secret that Shopify shows below the list of webhooks, or the client secret of the app.",
    )
    docs_url = "https://shopify.dev/docs/apps/build/webhooks/subscribe/https"
    is_secret_given = True
    settings_class = NoSettings
    signature_header = "x-shopify-hmac-sha256"
    is_base64 = True
    # The id of the delivery, equal in every retry. X-Shopify-Event-Id is that of all deliveries that one action causes.
    required_headers = ("x-shopify-webhook-id", "x-shopify-topic")

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        return Description(
            id=event_id(as_text(delivery.headers["x-shopify-webhook-id"])),
            type=event_type(header_text(delivery, "x-shopify-topic")) or UNNAMED_TYPE,
            subject=subject_at(payload.data, "admin_graphql_api_id", "id"),
            time=time_in(header_text(delivery, "x-shopify-triggered-at")),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        order = {"id": 820982911946154508, "name": "#9999", "currency": "EUR", "total_price": "42.00", "test": True}
        headers = {
            "Content-Type": "application/json",
            "X-Shopify-Topic": "orders/create",
            "X-Shopify-Webhook-Id": str(uuid4()),
            "X-Shopify-Shop-Domain": "example.myshopify.com",
        }
        return Sample(body=json.dumps(order).encode(), headers=headers)
