import re
import ssl
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.env import Env
from runs.network.broker_options import faults, impatient, tls, transport_options

SENTINELS = "sentinel://:pw@a:26379/1;sentinel://:pw@b:26379/1"
MASTER = {"master_name": "mymaster"}


def test_options_of_the_operator_go_before_those_of_wakeful() -> None:
    options = transport_options("redis://a", {"socket_timeout": 3}, "staging:")

    assert (options["socket_timeout"], options["global_keyprefix"]) == (3, "staging:")


def test_connections_to_the_sentinels_do_not_wait_for_ever_and_are_encrypted_as_those_to_the_master() -> None:
    given = {**MASTER, "sentinel_kwargs": {"password": "of the sentinels"}, "tls": {"ca_certs": "/ca.pem"}}

    options = transport_options(SENTINELS, given, "")

    assert options["sentinel_kwargs"] == {
        "password": "of the sentinels",
        "socket_timeout": 10,
        "socket_connect_timeout": 4,
        "ssl": True,
        "ssl_ca_certs": "/ca.pem",
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
    }
    assert "tls" not in options


def test_a_ring_waits_only_for_a_moment_whichever_broker_it_goes_to() -> None:
    of_redis = impatient(transport_options("redis://a", {}, ""), answer=0.5, connect=1)
    of_sentinels = impatient(transport_options(SENTINELS, MASTER, ""), answer=0.5, connect=1)
    of_rabbitmq = impatient(transport_options("amqp://a", {}, ""), answer=0.5, connect=1)

    assert of_redis["socket_timeout"] == of_sentinels["sentinel_kwargs"]["socket_timeout"] == 0.5
    assert of_rabbitmq["read_timeout"] == of_rabbitmq["write_timeout"] == 2


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("redis://a", {}, None),
        ("amqp://a", {}, None),
        ("rediss://a", {}, {"ssl_cert_reqs": ssl.CERT_REQUIRED}),
        ("rediss://a?ssl_cert_reqs=none", {}, None),  # kombu reads it
        ("rediss://a", {"tls": {"cert_reqs": "none"}}, {"ssl_cert_reqs": ssl.CERT_NONE}),
        (
            "rediss://a",
            {"tls": {"certfile": "/c", "keyfile": "/k"}},
            {"ssl_certfile": "/c", "ssl_keyfile": "/k", "ssl_cert_reqs": ssl.CERT_REQUIRED},
        ),
        (SENTINELS, MASTER, None),
        (SENTINELS, {**MASTER, "tls": {}}, {"ssl_cert_reqs": ssl.CERT_REQUIRED}),
        ("amqps://a", {}, {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}),
        ("amqps://a", {"tls": {"check_hostname": False}}, {"cert_reqs": ssl.CERT_REQUIRED}),
        ("amqps://a", {"tls": {"cert_reqs": "none"}}, {"cert_reqs": ssl.CERT_NONE}),
    ],
)
def test_a_server_is_verified_unless_the_operator_says_otherwise(
    url: str, given: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert tls(url, given) == expected


@pytest.mark.parametrize(
    ("url", "given", "fault"),
    [
        (SENTINELS, {}, "nothing names the master"),
        (SENTINELS, {"master_name": 1}, "nothing names the master"),
        ("sentinel://a:26379;sentinel://b:26379/3", MASTER, "differ in user, password or database"),
        ("sentinel://a:26379;redis://b:26379", MASTER, "begins with sentinel://"),
        (SENTINELS, {**MASTER, "sentinel_kwargs": "password"}, "sentinel_kwargs .* is no object"),
        ("redis://a", MASTER, "names no sentinels"),
        ("redis://a", {"tls": {}}, "one without TLS"),
        ("rediss://a", {"tls": True}, "tls .* is no object"),
        ("rediss://a", {"tls": {"ssl_ca_certs": "/ca.pem"}}, "ssl_ca_certs, which is not known"),
        ("rediss://a", {"tls": {"cert_reqs": "optional"}}, "cert_reqs .* is not known"),
        ("rediss://a", {"tls": {"cert_reqs": ["none"]}}, "cert_reqs .* is not known"),
        ("rediss://a", {"tls": {"check_hostname": "false"}}, "check_hostname .* is neither true nor false"),
        (
            "rediss://a",
            {"tls": {"ca_certs": "/nowhere/ca.pem"}},
            "ca_certs .* is no path of a file",
        ),
        ("amqps://a", {"tls": {"keyfile": 5}}, "keyfile .* is no path of a file"),
        ("redis://a", {"socket_timeout": "5"}, "socket_timeout .* is no number of seconds"),
        (SENTINELS, {**MASTER, "socket_connect_timeout": None}, "socket_connect_timeout .* is no number of seconds"),
        ("redis://a", {"socket_timeout": 0}, "socket_timeout .* is no number of seconds"),
        ("amqps://a;amqps://b", {}, "the name of the first one"),
        ("redis://a", {"global_keyprefix": "x"}, "global_keyprefix"),
        ("redis://a", {"retry_on_timeout": True}, "retry_on_timeout"),
    ],
)
def test_options_that_do_not_fit_are_named_with_the_remedy(url: str, given: dict[str, Any], fault: str) -> None:
    transport_options(url, given, "")  # the settings are read before a check looks at them
    tls(url, given)

    [(text, remedy)] = faults(url, given)

    assert re.search(fault, text)
    assert remedy


@pytest.mark.parametrize("text", ["mymaster", '["mymaster"]', '{"master_name": "mymaster"'])
def test_options_that_are_no_json_object_are_refused_with_the_name_and_the_fix(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("WAKEFUL_BROKER_OPTIONS", text)

    with pytest.raises(ImproperlyConfigured, match=r"WAKEFUL_BROKER_OPTIONS must be a JSON object, such as .* Correct"):
        Env().members("WAKEFUL_BROKER_OPTIONS")
