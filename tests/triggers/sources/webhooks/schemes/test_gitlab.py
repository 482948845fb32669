import base64
import json
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.deliveries import NOW, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt
from triggers.sources.webhooks.scheme import schemes

SIGNING_TOKEN = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ok!").decode()
TOKEN = "a-secret-token"
OPENED = {
    "object_kind": "merge_request",
    "event_type": "merge_request",
    "project": {"path_with_namespace": "gitlabhq/gitlab-test"},
    "object_attributes": {"iid": 16, "action": "open", "state": "opened", "updated_at": "2026-11-20T12:00:00Z"},
}
ID = "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"
HEADERS = {"X-Gitlab-Event": "Merge Request Hook", "Idempotency-Key": ID}


def by_token(data: Any, token: str = TOKEN, **headers: str) -> Receipt:
    return take("gitlab", json.dumps(data).encode(), {**HEADERS, "X-Gitlab-Token": token, **headers}, TOKEN)


def by_signature(headers: dict[str, str], *known: str) -> Receipt:
    return take("gitlab", json.dumps(OPENED).encode(), headers, *known, settings={"proof": "signing token"})


def signed_headers() -> dict[str, str]:
    """Headers as the SDK of Standard Webhooks makes them, whose format GitLab uses."""
    signature = Webhook(SIGNING_TOKEN).sign(msg_id=ID, timestamp=NOW, data=json.dumps(OPENED))
    return HEADERS | {"webhook-id": ID, "webhook-timestamp": str(int(NOW.timestamp())), "webhook-signature": signature}


def test_a_delivery_signed_by_the_sdk_of_standard_webhooks_is_accepted_and_described() -> None:
    event = by_signature(signed_headers(), SIGNING_TOKEN).event

    assert (event.ce_id, event.type, event.subject) == (ID, "merge_request.open", "gitlabhq/gitlab-test!16")
    assert (event.time, event.data) == (NOW, OPENED)
    assert event.headers["webhook-signature"] == "[redacted]"


def test_a_delivery_with_the_secret_token_is_accepted_and_described() -> None:
    event = by_token(OPENED).event

    assert (event.ce_id, event.type) == (ID, "merge_request.open")
    assert event.headers["x-gitlab-token"] == "[redacted]"


def test_where_a_signature_is_required_the_token_alone_is_refused() -> None:
    headers = HEADERS | {"webhook-id": ID, "X-Gitlab-Token": SIGNING_TOKEN}

    with pytest.raises(Rejected):
        by_signature(headers, SIGNING_TOKEN)


@pytest.mark.parametrize("token", ["", "a-secret-toke", "a-secret-token2", "A-SECRET-TOKEN"])
def test_another_token_is_refused(token: str) -> None:
    with pytest.raises(Rejected):
        by_token(OPENED, token)


@pytest.mark.parametrize(
    ("data", "type_", "subject"),
    [
        ({"object_kind": "push", "project": {"path_with_namespace": "mike/diaspora"}}, "push", "mike/diaspora"),
        ({"object_kind": "issue", "object_attributes": {"iid": 23, "action": "close"}}, "issue.close", "#23"),
        ({"object_kind": "note", "object_attributes": {"id": 1, "action": "create"}}, "note.create", ""),
        ({"object_kind": "pipeline", "object_attributes": {"iid": 3, "status": "failed"}}, "pipeline.failed", "#3"),
        ({"object_kind": "build", "build_status": "created"}, "build.created", ""),
        ({"object_kind": "deployment", "status": "success"}, "deployment.success", ""),
        ({"event_name": "project_create", "path_with_namespace": "john/store"}, "project_create", "john/store"),
        ([], "webhook.received", ""),
    ],
)
def test_events_are_named_by_kind_and_action(data: Any, type_: str, subject: str) -> None:
    event = by_token(data).event

    assert (event.type, event.subject) == (type_, subject)


def test_without_an_idempotency_key_equal_bodies_are_one_event() -> None:
    ids = [by_token(data, **{"Idempotency-Key": ""}).event.ce_id for data in (OPENED, OPENED, {})]

    assert ids[0] == ids[1] != ids[2]


def test_a_new_secret_fits_both_settings() -> None:
    scheme = schemes()["gitlab"]
    secret = scheme.new_secret()

    assert scheme.clean_secret(f" {secret}\n") == secret
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32


@pytest.mark.parametrize("secret", ["", " ", "with space", "ü", "whsec_short"])
def test_a_token_that_cannot_work_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSettings):
        schemes()["gitlab"].clean_secret(secret)
