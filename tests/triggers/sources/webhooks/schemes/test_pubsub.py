import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from joserfc import jwt
from joserfc.jwk import OctKey

from tests.support.deliveries import NOW, delivery
from tests.support.hooks import make_source, post
from tests.support.issuer import TokenIssuer, key_of
from triggers.models import Event
from triggers.sources.http.answers import Unavailable
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks import identity_token
from triggers.sources.webhooks.identity_token import KeySets
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import schemes

ACCOUNT = "push@shop-1.iam.gserviceaccount.com"
ADDRESS = "https://wakeful.example.com/hooks/uploads/"
SUBSCRIPTION = "projects/shop-1/subscriptions/uploads"


@pytest.fixture(autouse=True)
def google(monkeypatch: pytest.MonkeyPatch) -> TokenIssuer:
    issuer = TokenIssuer()
    monkeypatch.setattr(identity_token, "KEY_SETS", KeySets(issuer.get))
    return issuer


def claims(**changes: Any) -> dict[str, Any]:
    return {
        "iss": "https://accounts.google.com",
        "aud": ADDRESS,
        "sub": "113",
        "azp": "113",
        "email": ACCOUNT,
        "email_verified": True,
        **changes,
    }


def pushed(data: bytes | None = b'{"count": 3}', **changes: Any) -> bytes:
    message = {
        "messageId": "2070443601311540",
        "message_id": "2070443601311540",
        "publishTime": "2026-11-20T11:59:58.317Z",
        "attributes": {"origin": "till"},
        **({} if data is None else {"data": base64.b64encode(data).decode()}),
        **changes,
    }
    return json.dumps({"message": message, "subscription": SUBSCRIPTION}).encode()


def taken(body: bytes, token: str | None, at: datetime = NOW, **settings: str) -> Receipt:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    given = replace(delivery(body, headers, at), url=f"{ADDRESS}?from=google")
    receipt = receive(*cleaned("pubsub", {"account": ACCOUNT, **settings}), [], given)
    assert isinstance(receipt, Receipt)
    return receipt


# --- Tokens ---


def test_a_message_with_a_token_of_the_account_is_an_event(google: TokenIssuer) -> None:
    event = taken(pushed(orderingKey="till-7"), google.token(claims())).event

    assert (event.ce_id, event.type, event.subject) == ("2070443601311540", "pubsub.message", "till-7")
    assert event.ce_source == f"//pubsub.googleapis.com/{SUBSCRIPTION}"
    assert event.time == datetime(2026, 11, 20, 11, 59, 58, 317000, tzinfo=UTC)
    assert event.data == {
        "data": {"count": 3},
        "attributes": {"origin": "till"},
        "message_id": "2070443601311540",
        "ordering_key": "till-7",
        "subscription": SUBSCRIPTION,
    }
    assert event.headers["authorization"] == "[redacted]"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://accounts.google.com.evil.example"},
        {"iss": None},
        {"aud": "https://wakeful.example.com/hooks/other/"},
        {"aud": None},
        {"aud": []},
        {"email": "push@evil.iam.gserviceaccount.com"},
        {"email": None},
        {"email_verified": False},
        {"email_verified": None},
        {"exp": int((NOW - timedelta(minutes=6)).timestamp())},
        {"exp": None},
        {"exp": "tomorrow"},
        {"iat": int((NOW + timedelta(minutes=6)).timestamp())},
        {"nbf": int((NOW + timedelta(minutes=6)).timestamp())},
    ],
)
def test_a_token_of_another_or_for_another_is_refused(changes: dict[str, Any], google: TokenIssuer) -> None:
    with pytest.raises(Rejected):
        taken(pushed(), google.token(claims(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": int((NOW - timedelta(minutes=4)).timestamp())},
        {"iat": int((NOW + timedelta(minutes=4)).timestamp())},
        {"aud": ["https://other.example.com/", ADDRESS]},
        {"iss": "accounts.google.com"},
    ],
)
def test_clocks_may_differ_and_an_audience_may_be_a_list(changes: dict[str, Any], google: TokenIssuer) -> None:
    assert taken(pushed(), google.token(claims(**changes)))


def test_the_audience_of_the_settings_replaces_the_address(google: TokenIssuer) -> None:
    assert taken(pushed(), google.token(claims(aud="wakeful")), audience="wakeful")
    with pytest.raises(Rejected):
        taken(pushed(), google.token(claims()), audience="wakeful")


@pytest.mark.parametrize("token", [None, "", "x", "a.b.c", "\xff", "eyJhbGciOiJSUzI1NiJ9..", "." * 20_000, "é.é.é"])
def test_what_is_no_token_is_refused(token: str | None, google: TokenIssuer) -> None:
    with pytest.raises(Rejected):
        taken(pushed(), token)


def test_a_token_that_another_key_signs_is_refused(google: TokenIssuer) -> None:
    forger = key_of("another")
    public = google.keys[0].as_pem(private=False)
    issued = {**claims(), "iat": int(NOW.timestamp()), "exp": int(NOW.timestamp()) + 60}
    unsigned = ".".join([*google.token(claims()).split(".")[:2], ""])
    for token in (
        jwt.encode({"alg": "RS256", "kid": "first"}, issued, forger),
        jwt.encode({"alg": "HS256", "kid": "first"}, issued, OctKey.import_key(base64.b64encode(public))),
        unsigned,
    ):
        with pytest.raises(Rejected):
            taken(pushed(), token)


def test_the_keys_are_fetched_once_and_again_for_a_new_one(
    google: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for _ in range(3):
        taken(pushed(), google.token(claims()))
    assert google.fetched == ["https://www.googleapis.com/oauth2/v3/certs"]

    google.turn("second")
    with pytest.raises(Rejected):
        taken(pushed(), google.token(claims()))  # not within a minute, whatever is sent
    assert len(google.fetched) == 1

    now += 61
    assert taken(pushed(), google.token(claims()))
    assert len(google.fetched) == 2


def test_a_key_that_was_withdrawn_proves_nothing_after_an_hour(
    google: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    token = google.token(claims())
    taken(pushed(), token)
    google.turn("second")
    now += 3601

    with pytest.raises(Rejected):
        taken(pushed(), token)


def test_while_google_is_away_its_messages_are_to_be_sent_again(google: TokenIssuer) -> None:
    google.is_away = True

    with pytest.raises(Unavailable):
        taken(pushed(), google.token(claims()))


@pytest.mark.parametrize("keys", [b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": [3]}', b'{"keys": [{"kty": "RSA"}]}'])
def test_invalid_keys_prove_nothing(keys: bytes, google: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_token, "KEY_SETS", KeySets(lambda _: keys))

    with pytest.raises(Rejected):
        taken(pushed(), google.token(claims()))


@pytest.mark.parametrize("account", ["", "me@example.com", f"{ACCOUNT} ", "push@iam"])
def test_a_source_needs_a_service_account(account: str) -> None:
    with pytest.raises(InvalidSettings, match="service account"):
        schemes()["pubsub"].clean_settings({"account": account})


# --- Messages ---


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"[1]", {"data": [1]}),
        ("grüß".encode(), {"data": "grüß"}),
        (b"", {"data": None}),
        (None, {"data": None}),
        (b"\xff\x00", {"data": None, "data_base64": "/wA="}),
    ],
)
def test_the_data_of_a_message_is_json_text_or_bytes(
    data: bytes | None, content: dict[str, Any], google: TokenIssuer
) -> None:
    event = taken(pushed(data), google.token(claims())).event

    assert {name: value for name, value in event.data.items() if name.startswith("data")} == content


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"message": 3}', b'{"message": {"data": "e30="}}', pushed(attributes=[1])]
)
def test_a_body_that_is_no_message_is_refused(body: bytes, google: TokenIssuer) -> None:
    with pytest.raises(Rejected):
        taken(body, google.token(claims()))


def test_a_message_that_postgresql_cannot_store_is_kept_raw(google: TokenIssuer) -> None:
    event = taken(pushed(attributes={"name": "\0"}), google.token(claims())).event

    assert (event.type, event.data) == ("pubsub.message", None)
    assert event.data_error.startswith("kept raw: ")


def test_an_attribute_names_the_type(google: TokenIssuer) -> None:
    assert taken(pushed(), google.token(claims()), type_attribute="origin").event.type == "till"
    assert taken(pushed(), google.token(claims()), type_attribute="none").event.type == "pubsub.message"


# --- Cloud Storage ---

OBJECT = {
    "kind": "storage#object",
    "bucket": "reports",
    "name": "in/my report.pdf",
    "generation": "1789000000000001",
    "metageneration": "1",
    "size": "1024",
    "etag": "CLuTmKeZ=",
    "updated": "2026-11-20T11:59:57.000Z",
}


def stored(kind: str = "OBJECT_FINALIZE", is_json: bool = True, **attributes: str) -> bytes:
    given = {
        "notificationConfig": "projects/_/buckets/reports/notificationConfigs/3",
        "eventType": kind,
        "payloadFormat": "JSON_API_V1" if is_json else "NONE",
        "bucketId": "reports",
        "objectId": "in/my report.pdf",
        "objectGeneration": "1789000000000001",
        "eventTime": "2026-11-20T11:59:57.500Z",
        **attributes,
    }
    return pushed(json.dumps(OBJECT).encode() if is_json else None, attributes=given)


def test_an_object_in_cloud_storage_is_an_event_as_of_a_listing(google: TokenIssuer) -> None:
    event = taken(stored(), google.token(claims())).event

    assert (event.type, event.subject) == ("file.created", "gs://reports/in/my report.pdf")
    assert {name: event.data[name] for name in ("path", "size", "fingerprint", "version", "modified_at")} == {
        "path": "gs://reports/in/my report.pdf",
        "size": 1024,
        "fingerprint": "etag:CLuTmKeZ=",
        "version": "1789000000000001",
        "modified_at": "2026-11-20T11:59:57+00:00",
    }
    assert event.time == datetime(2026, 11, 20, 11, 59, 57, 500000, tzinfo=UTC)
    assert taken(stored(is_json=False), google.token(claims())).event.subject == "gs://reports/in/my report.pdf"


@pytest.mark.parametrize(
    ("kind", "attributes", "type_"),
    [
        ("OBJECT_FINALIZE", {"overwroteGeneration": "1788000000000001"}, "file.changed"),
        ("OBJECT_DELETE", {}, "file.vanished"),
        ("OBJECT_ARCHIVE", {}, "file.vanished"),
        ("OBJECT_DELETE", {"overwrittenByGeneration": "1790000000000001"}, "gcs.OBJECT_DELETE"),
        ("OBJECT_METADATA_UPDATE", {}, "gcs.OBJECT_METADATA_UPDATE"),
    ],
)
def test_what_replaces_an_object_is_a_change_and_no_removal(
    kind: str, attributes: dict[str, Any], type_: str, google: TokenIssuer
) -> None:
    assert taken(stored(kind, **attributes), google.token(claims())).event.type == type_


def test_the_generation_is_part_of_the_id_of_an_event(google: TokenIssuer) -> None:
    bodies = [stored(), stored(is_json=False), stored(objectGeneration="2"), stored("OBJECT_DELETE")]
    ids = [taken(body, google.token(claims())).event.ce_id for body in bodies]

    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


# --- Through the door ---


@pytest.mark.django_db
@pytest.mark.urls("tests.triggers.sources.urls")
def test_the_door_records_a_message_once_and_lets_google_try_again(google: TokenIssuer) -> None:
    make_source("uploads", "pubsub", secret=None, settings={"account": ACCOUNT, "audience": "wakeful"})
    now = timezone.now()

    def sent(body: bytes, **changes: Any) -> int:
        token = google.token(claims(aud="wakeful", **changes), at=now)
        return int(post(body, {"Authorization": f"Bearer {token}"}, "uploads").status_code)

    assert [sent(stored()), sent(stored())] == [202, 200]
    assert sent(stored(objectGeneration="5"), email="other@shop-1.iam.gserviceaccount.com") == 401
    google.is_away = True
    google.turn("second")
    identity_token.KEY_SETS = KeySets(google.get)
    assert sent(stored(objectGeneration="6")) == 503
    assert Event.objects.count() == 1
