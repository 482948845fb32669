import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.deliveries import NOW, delivery, secrets
from tests.support.hooks import make_source, post
from tests.support.issuer import TokenIssuer
from triggers.models import Event
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks import identity_token
from triggers.sources.webhooks.identity_token import KeySets
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Acting, Greeting, Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import schemes

SECRET = "a-secret-of-the-source"
ADDRESS = "https://wakeful.example.com/hooks/blobs/"
WITH_SECRET = f"{ADDRESS}?access_token={SECRET}"
TOPIC = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/shop"
BLOB = "https://shop.blob.core.windows.net/reports/in/my%20report.pdf"
TENANT, APPLICATION = "72f988bf-86f1-41af-91ab-2d7cd011db47", "0d2b4a5e-1b7a-4c6d-8e0f-3a5b7c9d1e2f"
EVENT_GRID = "4962773b-9cdb-44cf-a8bf-237846a00ab7"
STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"


def blob(type_: str = "Microsoft.Storage.BlobCreated", id: str = "e-1", **data: Any) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "subject": "/blobServices/default/containers/reports/blobs/in/my report.pdf",
        "eventType": type_,
        "id": id,
        "data": {
            "api": "PutBlob",
            "eTag": "0x8D4BCC2E4835CD0",
            "contentLength": 1024,
            "url": BLOB,
            "sequencer": "0000000000000281",
            **data,
        },
        "dataVersion": "",
        "metadataVersion": "1",
        "eventTime": "2026-11-20T11:59:57.5Z",
    }


def cloud(type_: str = "Microsoft.Storage.BlobCreated", id: str = "e-1") -> dict[str, Any]:
    given = blob(type_, id)
    return {
        "specversion": "1.0",
        "source": TOPIC,
        "id": id,
        "type": type_,
        "time": given["eventTime"],
        "subject": given["subject"],
        "data": given["data"],
    }


def received(
    body: Any, url: str = WITH_SECRET, media_type: str = "application/json", token: str = "", **settings: str
) -> Receipt | Greeting | Acting:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": media_type, **({"Authorization": f"Bearer {token}"} if token else {})}
    given = replace(delivery(content, headers), url=url)
    return receive(*cleaned("event_grid", settings), secrets(SECRET), given)


def taken(body: Any, **options: Any) -> Receipt:
    receipt = received(body, **options)
    assert isinstance(receipt, Receipt)
    return receipt


# --- Events ---


@pytest.mark.parametrize(
    ("body", "media_type"), [([blob()], "application/json"), (cloud(), STRUCTURED), ([cloud()], BATCH)]
)
def test_a_blob_is_an_event_as_of_a_listing_in_both_schemas(body: Any, media_type: str) -> None:
    event = taken(body, media_type=media_type).event

    assert (event.ce_source, event.ce_id) == (TOPIC, "e-1")
    assert (event.type, event.subject) == ("file.created", BLOB)
    assert {name: event.data[name] for name in ("path", "size", "fingerprint", "modified_at", "notification")} == {
        "path": BLOB,
        "size": 1024,
        "fingerprint": "etag:0x8D4BCC2E4835CD0",
        "modified_at": "2026-11-20T11:59:57.500000+00:00",
        "notification": "Microsoft.Storage.BlobCreated",
    }
    assert event.data["record"]["data"]["sequencer"] == "0000000000000281"


def test_a_renamed_blob_has_the_path_before() -> None:
    event = taken([blob("Microsoft.Storage.BlobRenamed", url=None, sourceUrl=BLOB, destinationUrl=f"{BLOB}.old")]).event

    assert (event.type, event.data["path"], event.data["previous"]) == (
        "file.renamed",
        f"{BLOB}.old",
        {"path": BLOB},
    )


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("Microsoft.Storage.BlobDeleted", "file.vanished"),
        ("Microsoft.Storage.BlobTierChanged", "Microsoft.Storage.BlobTierChanged"),
        ("Contoso.Orders.Paid", "Contoso.Orders.Paid"),
        ("Microsoft.EventGrid.SubscriptionDeletedEvent", "Microsoft.EventGrid.SubscriptionDeletedEvent"),
        ("x" * 300, "event_grid.event"),
    ],
)
def test_other_events_keep_their_type(type_: str, expected: str) -> None:
    assert taken([blob(type_)]).event.type == expected


@pytest.mark.parametrize("media_type", ["application/json", BATCH])
def test_each_event_of_a_delivery_is_one_with_its_own_part_as_body(media_type: str) -> None:
    make = cloud if media_type == BATCH else blob
    given = [make(), make("Microsoft.Storage.BlobDeleted", "e-2"), make("Contoso.Orders.Paid", "e-3")]

    events = taken(given, media_type=media_type).events

    assert [(event.type, event.ce_id) for event in events] == [
        ("file.created", "e-1"),
        ("file.vanished", "e-2"),
        ("Contoso.Orders.Paid", "e-3"),
    ]
    assert [json.loads(event.body or b"") for event in events] == given


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        ({}, "application/json"),
        ([], "application/json"),
        ([3], "application/json"),
        ([blob(), {"id": "x"}], "application/json"),
        ([blob()] * 1001, "application/json"),
        ([], BATCH),
        ({"specversion": "1.0"}, STRUCTURED),
    ],
)
def test_what_is_no_event_of_event_grid_is_kept_raw(body: Any, media_type: str) -> None:
    event = taken(body, media_type=media_type).event

    assert event.type == "webhook.received" and event.data_error.startswith("kept raw: ")


# --- Handshakes ---


def test_an_id_and_a_type_that_are_numbers_are_taken_as_texts() -> None:
    event = taken([{**blob(), "id": 5, "eventType": 7}]).event

    assert (event.ce_id, event.type) == ("5", "7")


def test_the_validation_of_a_subscription_is_answered_with_its_code() -> None:
    code = {"validationCode": "512d38b6", "validationUrl": "https://rp-eastus.eventgrid.azure.net/validate?id=512d38b6"}
    validation = {**blob("Microsoft.EventGrid.SubscriptionValidationEvent"), "data": code}

    greeting = received([validation])

    assert isinstance(greeting, Greeting)
    assert (greeting.reply.status, json.loads(greeting.reply.body)) == (200, {"validationResponse": "512d38b6"})
    with pytest.raises(Rejected):
        received([validation], url=ADDRESS)
    with pytest.raises(Rejected, match="no code"):
        received([{**validation, "data": {}}])


def test_the_handshake_of_cloudevents_is_answered() -> None:
    asked = replace(delivery(b"", {"WebHook-Request-Origin": "eventgrid.azure.net"}), method="OPTIONS", url=WITH_SECRET)
    scheme, settings = cleaned("event_grid", {})

    reply = scheme.handshake(asked, secrets(SECRET), settings)

    assert reply and reply.headers["WebHook-Allowed-Origin"] == "eventgrid.azure.net"


# --- Proof ---


def test_the_secret_is_in_the_address_or_in_a_header() -> None:
    assert taken([blob()]) and taken([blob()], url=ADDRESS, token=SECRET)
    for options in ({"url": ADDRESS}, {"url": f"{ADDRESS}?access_token=other"}, {"url": ADDRESS, "token": "other"}):
        with pytest.raises(Rejected):
            taken([blob()], **options)


@pytest.fixture
def entra(monkeypatch: pytest.MonkeyPatch) -> TokenIssuer:
    issuer = TokenIssuer()
    monkeypatch.setattr(identity_token, "KEY_SETS", KeySets(issuer.get))
    return issuer


def claims(**changes: Any) -> dict[str, Any]:
    issuer = f"https://sts.windows.net/{TENANT}/"
    return {"iss": issuer, "aud": APPLICATION, "tid": TENANT, "appid": EVENT_GRID, **changes}


def with_token(token: str, url: str = WITH_SECRET) -> Receipt:
    return taken([blob()], url=url, token=token, tenant=TENANT, application=APPLICATION)


def test_with_a_tenant_a_token_of_entra_id_is_needed_besides_the_secret(entra: TokenIssuer) -> None:
    second = {"iss": f"https://login.microsoftonline.com/{TENANT}/v2.0", "aud": f"api://{APPLICATION}"}

    assert with_token(entra.token(claims(), x5t="first"))
    assert with_token(entra.token(claims(**second, appid=None, azp=EVENT_GRID)))
    assert entra.fetched == [f"https://login.microsoftonline.com/{TENANT}/discovery/v2.0/keys"]
    for token, url in ((entra.token(claims()), ADDRESS), ("", WITH_SECRET), (SECRET, WITH_SECRET), (SECRET, ADDRESS)):
        with pytest.raises(Rejected):
            with_token(token, url)


@pytest.mark.parametrize(
    "changes",
    [
        {"appid": "00000000-0000-0000-0000-000000000001"},
        {"appid": None},
        {"tid": "00000000-0000-0000-0000-000000000001"},
        {"aud": "00000003-0000-0000-c000-000000000000"},
        {"iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000001/"},
        {"exp": int(NOW.timestamp()) - 400},
    ],
)
def test_a_token_of_another_application_or_tenant_is_refused(changes: dict[str, Any], entra: TokenIssuer) -> None:
    with pytest.raises(Rejected):
        with_token(entra.token(claims(**changes)))


@pytest.mark.parametrize(
    "settings", [{"tenant": TENANT}, {"application": APPLICATION}, {"tenant": "common", "application": APPLICATION}]
)
def test_tenant_and_application_are_entered_together_and_are_ids(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings):
        schemes()["event_grid"].clean_settings(settings)


# --- Through the door ---


@pytest.mark.django_db
@pytest.mark.urls("tests.triggers.sources.urls")
def test_the_door_answers_a_batch_with_a_list_and_records_each_event_once() -> None:
    make_source("blobs", "event_grid", SECRET)

    def sent(*events: dict[str, Any]) -> Any:
        return post(json.dumps(events).encode(), {"Authorization": f"Bearer {SECRET}"}, "blobs")

    first, again = sent(blob(id="1"), blob(id="2")), sent(blob(id="2"), blob(id="3"))

    assert (first.status_code, again.status_code) == (202, 202)
    assert [one["duplicate"] for one in first.json()] == [False, False]
    assert [one["duplicate"] for one in again.json()] == [True, False]
    assert again.json()[0]["event"] == first.json()[1]["event"]
    assert sent(blob(id="3")).json()["duplicate"] is True
    assert sent(blob("wakeful.source.gap", "4"), blob(id="5")).status_code == 400
    assert Event.objects.count() == 3
