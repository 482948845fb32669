"""A stored secret is sent to the server that it was entered for. Who edits a source, and does not know its secret, sends it nowhere
else."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from runs.models import AuditEntry
from tests.support.console import page_of
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.sources.access_key import keep_ours_at_amazon
from triggers.sources.edit import change_source, create_source
from triggers.sources.kind import kinds
from triggers.sources.runner import Assignment, SourceError, runners
from triggers.sources.secrets import add_secret, newest_secret
from triggers.sources.settings import InvalidSettings

pytestmark = pytest.mark.django_db

SECRET = "id:house-secret-1"  # noqa: S105  (as an access key, and as a password)
REDIS = {"url": "redis://redis.example.org:6379/0", "stream": "orders"}
POSTGRES = "postgresql://wakeful@db.example.org/shop?sslmode=verify-full"
MAILBOX = {"host": "imap.example.org", "user": "ada@example.org"}
KAFKA = {"servers": "kafka.example.org:9093", "topics": "orders", "protocol": "SASL_SSL", "username": "ada"}
KAFKA |= {"mechanism": "SCRAM-SHA-256"}
NATS = {"servers": "tls://nats.example.org:4222", "stream": "orders"}
ITEMS = {"url": "https://api.example.org/items"}
QUEUE = {"queue_url": "https://sqs.eu-central-1.amazonaws.com/1/orders"}
ELSEWHERE = [
    ("redis_streams", REDIS, {"url": "redis://evil.example.org:6379/0"}),
    ("redis_streams", REDIS, {"url": "redis://redis.example.org:6380/0"}),
    ("redis_streams", {**REDIS, "url": "rediss://redis.example.org/0"}, {"url": "redis://redis.example.org/0"}),
    ("redis_streams", {**REDIS, "url": "rediss://redis.example.org/0"}, {"url": "rediss://redis.example.org/0?ssl_cert_reqs=none"}),
    ("amqp", {"url": "amqps://ada@rabbit.example.org/", "queue": "q"}, {"url": "amqps://ada@evil.example.org/"}),
    ("amqp", {"url": "amqps://ada@rabbit.example.org/", "queue": "q"}, {"url": "amqp://ada@rabbit.example.org/"}),
    ("amqp", {"url": "amqps://ada@rabbit.example.org/", "queue": "q"}, {"url": "amqps://bob@rabbit.example.org/"}),
    ("kafka", KAFKA, {"servers": "kafka.example.org:9093,evil.example.org:9093"}),
    ("kafka", KAFKA, {"protocol": "SASL_PLAINTEXT"}),
    ("kafka", KAFKA, {"mechanism": "PLAIN"}),
    ("nats", NATS, {"servers": "tls://evil.example.org:4222"}),
    ("sqs", QUEUE, {"queue_url": "https://sqs.example.org/1/orders"}),
    ("object_store", {"bucket": "in"}, {"server": "https://evil.example.org"}),
    ("feed", ITEMS, {"url": "https://evil.example.org/items"}),
    ("feed", ITEMS, {"url": "http://api.example.org/items"}),
    ("json_list", ITEMS, {"url": "https://api.example.org:8443/items"}),
    ("prometheus", {**ITEMS, "query": "up"}, {"url": "https://evil.example.org"}),
    ("imap", MAILBOX, {"host": "evil.example.org"}),
    ("imap", MAILBOX, {"port": 143}),
    ("imap", MAILBOX, {"tls": "none"}),
    ("imap", MAILBOX, {"user": "eve@example.org"}),
    ("postgresql", {"url": POSTGRES}, {"url": POSTGRES.replace("db.", "evil.")}),
    ("postgresql", {"url": POSTGRES}, {"url": POSTGRES.replace("verify-full", "disable")}),
    ("postgresql", {"url": POSTGRES}, {"secrets": "password"}),
]  # fmt: skip


def made(kind: str, settings: dict[str, Any]) -> Source:
    source = create_source("house", kind=kind, settings=settings, by="root")
    add_secret(source, SECRET, by="root")
    return source


@pytest.mark.parametrize(("kind", "settings", "changes"), ELSEWHERE)
def test_settings_that_send_a_secret_elsewhere_need_it_again(
    kind: str, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    source = made(kind, settings)

    with pytest.raises(Invalid, match="secret: enter it again, as"):
        change_source(source, {"settings": {**settings, **changes}}, by="eve")

    row = Source.objects.get(slug="house")
    assert row.settings == settings
    change_source(row, {"settings": {**settings, **changes}}, secret="another:secret-22", by="eve")
    assert (Source.objects.get(slug="house").settings, newest_secret(source)) == (
        {**settings, **changes},
        "another:secret-22",
    )
    assert "another" not in str(list(AuditEntry.objects.values_list("detail", flat=True)))


@pytest.mark.parametrize(
    ("kind", "settings", "changes"),
    [
        ("redis_streams", REDIS, {"url": "redis://redis.example.org:6379/2", "group": "night"}),
        ("json_list", ITEMS, {"url": "https://api.example.org/v2/items?open=1", "every": "5m"}),
        ("imap", MAILBOX, {"mailbox": "Orders", "port": 993}),
        ("kafka", KAFKA, {"topics": "orders,invoices"}),
        ("postgresql", {"url": POSTGRES}, {"exclude": "note"}),
    ],
)
def test_changes_of_other_settings_keep_the_secret(
    kind: str, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    source = made(kind, settings)
    change_source(source, {"settings": {**settings, **changes}}, by="eve")
    assert newest_secret(source) == SECRET


def test_a_source_without_a_secret_goes_anywhere() -> None:
    source = create_source("house", kind="redis_streams", settings=REDIS, by="root")
    change_source(source, {"settings": {**REDIS, "url": "redis://other.example.org/0"}}, by="eve")
    assert Source.objects.get(slug="house").settings["url"] == "redis://other.example.org/0"


def test_every_kind_that_sends_a_secret_declares_where() -> None:
    whole = {"sql_query", "drift"}  # their secret has the address
    silent = {name for name, kind in runners().items() if kind.needs_secret} - whole
    assert {name for name in silent if not any(field.secret_goes_to for field in kinds()[name].fields)} == set()


def test_the_form_asks_for_the_secret_where_it_is_missing(client: Client) -> None:
    user = User.objects.create_user("ada", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["change_source", "view_source"]))
    client.force_login(user)
    source = made("redis_streams", REDIS)
    path = page_of("triggers_source", source).replace("change", "edit")
    form = {
        f"redis_streams__{name}": value
        for name, value in kinds()["redis_streams"].clean_settings(REDIS).__dict__.items()
    }
    form |= {"enabled": "on", "redis_streams__url": "redis://evil.example.org:6379/0"}

    refused = client.post(path, form)

    assert list(refused.context["form"].errors) == ["secret"]
    assert "it would be sent elsewhere" in refused.content.decode()
    assert Source.objects.get(slug="house").settings == REDIS
    assert client.post(path, {**form, "secret": "of-evil"}).status_code == 302
    assert newest_secret(source) == "of-evil"


@pytest.mark.parametrize(
    "host",
    [
        "sqs.eu-central-1.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
        "s3-fips.dualstack.us-east-1.amazonaws.com",
        "sqs.cn-north-1.amazonaws.com.cn",
        "vpce-1-x.sqs.eu-west-1.vpce.amazonaws.com",
    ],
)
def test_the_credentials_of_the_process_are_for_amazon(host: str) -> None:
    keep_ours_at_amazon("", host)


@pytest.mark.parametrize(
    "host",
    [
        "sqs.example.org",
        "amazonaws.com.evil.org",
        "sqs-1.eu-west-1.elb.amazonaws.com",
        "ec2-1-2-3-4.compute-1.amazonaws.com",
        "127.0.0.1",
        "",
    ],
)
def test_the_credentials_of_the_process_are_for_no_other_host(host: str) -> None:
    with pytest.raises(SourceError, match="no access key"):
        keep_ours_at_amazon("", host)
    keep_ours_at_amazon("id:secret", host)


@pytest.mark.parametrize("kind", ["sqs", "object_store"])
def test_a_reader_without_a_key_of_its_own_signs_nothing_for_others(kind: str) -> None:
    places = {
        "sqs": {"queue_url": "http://127.0.0.1:1/1/orders"},
        "object_store": {"bucket": "in", "server": "http://127.0.0.1:1"},
    }
    source = create_source("in", kind=kind, settings=places[kind], by="root")
    settings = kinds()[kind].clean_settings(source.settings)
    with pytest.raises(SourceError, match="no access key"):
        runners()[kind].connect(Assignment(slug="in", settings=settings, source_id=source.pk))


@pytest.mark.parametrize("option", ["ssl_keyfile=/etc/passwd", "ssl_certfile=/x", "ssl_ca_path=/x", "path=/run/redis"])
def test_an_address_of_redis_opens_no_other_files(option: str) -> None:
    with pytest.raises(InvalidSettings, match="must not have"):
        kinds()["redis_streams"].clean_settings({**REDIS, "url": f"rediss://redis.example.org/0?{option}"})
