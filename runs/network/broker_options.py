"""The options of Celery's broker: Wakeful's own, with those of WAKEFUL_BROKER_OPTIONS before them.

An operator gives the names of kombu's transport, and `tls` with the names of Python's `ssl` for every broker. A connection with TLS
verifies the server unless `cert_reqs` is "none"; kombu by itself would verify no Redis.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

REDIS = ("redis", "sentinel")
WITH_TLS = ("rediss", "amqps")
TLS = {
    "ca_certs": "file of the certificates that may sign the server's",
    "certfile": "file of the client's certificate",
    "keyfile": "file of its key",
    "cert_reqs": "required or none",
    "check_hostname": "true or false",
}
FILES = ("ca_certs", "certfile", "keyfile")
REQUIREMENTS = {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE}
# kombu would take these, and Wakeful would not work as it does.
NOT_HERE = {
    "global_keyprefix": "Set WAKEFUL_BROKER_PREFIX instead.",
    "retry_on_timeout": "Leave it out: with it each ring is a round trip of its own.",
    "ack_emulation": "Leave it out: a run's row is the guarantee, and no message's acknowledgement.",
    "confirm_publish": "Leave it out: Wakeful always waits for the confirmation.",
}
# Seconds: RabbitMQ confirms a message once it is on disk. By default py-amqp would wait for ever.
CONFIRMED = 2.0
WAITS = {"socket_timeout": 10, "socket_connect_timeout": 4}  # seconds


def is_redis(url: str) -> bool:
    """Redis or Valkey, with or without TLS, behind Sentinel or by itself."""
    return url.startswith(REDIS)


def addresses(url: str) -> list[str]:
    """A URL of several servers names each with its scheme, separated by semicolons."""
    return [address.strip() for address in url.split(";") if address.strip()]


def transport_options(url: str, given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """CELERY_BROKER_TRANSPORT_OPTIONS."""
    rest = {name: value for name, value in given.items() if name != "tls"}
    if is_redis(url):
        # No retry_on_timeout: it silently turns kombu's batch publishing off.
        own = {
            "ack_emulation": False,
            "global_keyprefix": prefix,
            "socket_keepalive": True,
            "health_check_interval": 25,
        }
        options = {**own, **WAITS, **rest}
        return options | _of_sentinels(options, given) if url.startswith("sentinel") else options
    if url.startswith(("amqp", "pyamqp")):
        # A periodic task leaves the outbox when the broker has it, not when it is on the way to it.
        return {"confirm_publish": True, **rest}
    return rest


def _of_sentinels(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """redis-py gives its connections to the sentinels no time-out and no TLS, once they have options of their own."""
    waits = {name: options[name] for name in WAITS}
    encrypted = {"ssl": True, **_of_redis(_object(given, "tls"))} if "tls" in given else {}
    return {"sentinel_kwargs": {**waits, **encrypted, **_object(given, "sentinel_kwargs")}}


def tls(url: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """CELERY_BROKER_USE_SSL; None: no TLS, or the URL says all of it."""
    if "tls" not in given and (not url.startswith(WITH_TLS) or "ssl_" in urlsplit(addresses(url)[0]).query):
        return None
    named = _object(given, "tls")
    return _of_redis(named) if is_redis(url) else _of_amqp(named)


def _object(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A member that is an object; `faults` reports one that is none."""
    value = given.get(name)
    return value if isinstance(value, dict) else {}


def _of_redis(named: Mapping[str, Any]) -> dict[str, Any]:
    return {f"ssl_{name}": value for name, value in {**named, "cert_reqs": _requirement(named)}.items()}


def _of_amqp(named: Mapping[str, Any]) -> dict[str, Any]:
    """py-amqp looks at the name in a certificate if it is given one: None is that of the URL."""
    rest = {name: value for name, value in named.items() if name != "check_hostname"}
    return {**rest, "cert_reqs": _requirement(named), **({"server_hostname": None} if _checks_names(named) else {})}


def _checks_names(named: Mapping[str, Any]) -> bool:
    return bool(named.get("check_hostname", True)) and _requirement(named) != ssl.CERT_NONE


def _requirement(named: Mapping[str, Any]) -> ssl.VerifyMode:
    return REQUIREMENTS.get(str(named.get("cert_reqs", "required")), ssl.CERT_REQUIRED)


def impatient(options: Mapping[str, Any], *, answer: float, connect: float) -> dict[str, Any]:
    """The same options for a connection that must not wait long."""
    shorter = {"socket_timeout": answer, "socket_connect_timeout": connect}
    changed = dict(options)
    if "socket_timeout" in options:
        changed |= shorter
    if "sentinel_kwargs" in options:
        changed["sentinel_kwargs"] = {**options["sentinel_kwargs"], **shorter}
    if "confirm_publish" in options:
        confirmed = max(answer, CONFIRMED)
        changed |= {"read_timeout": confirmed, "write_timeout": confirmed}
    return changed


def faults(url: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the two settings, and what to do about it."""
    for name, fix in NOT_HERE.items():
        if name in given:
            yield f"WAKEFUL_BROKER_OPTIONS has {name}, which is not for it.", fix
    for name in WAITS:
        if not _is_time(given.get(name, 1)):
            yield (
                f"{name} in WAKEFUL_BROKER_OPTIONS is no number of seconds above 0.",
                f'Write it as {{"{name}": {WAITS[name]}}}.',
            )
    if "tls" in given:
        yield from _faults_of_tls(url, given["tls"])
    if url.startswith("amqps") and len(addresses(url)) > 1 and _checks_names(_object(given, "tls")):
        yield (
            "The broker's URL names several servers, and kombu would look for the name of the first one in the certificate of each.",
            'Set WAKEFUL_BROKER_OPTIONS to {"tls": {"check_hostname": false, "ca_certs": "…"}} with a CA of your own, or name one address.',
        )
    if not isinstance(given.get("sentinel_kwargs", {}), dict):
        yield (
            "sentinel_kwargs in WAKEFUL_BROKER_OPTIONS is no object.",
            'Write it as {"sentinel_kwargs": {"password": "…"}}.',
        )
    if url.startswith("sentinel"):
        yield from _faults_of_sentinel(url, given)
    elif "master_name" in given:
        yield (
            "WAKEFUL_BROKER_OPTIONS has master_name, but the broker's URL names no sentinels.",
            "Set CELERY_BROKER_URL to the sentinels, such as sentinel://a:26379;sentinel://b:26379, or leave master_name out.",
        )


def _faults_of_tls(url: str, named: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(named, dict):
        yield "tls in WAKEFUL_BROKER_OPTIONS is no object.", 'Write it as {"tls": {"ca_certs": "/path/ca.pem"}}.'
        return
    for name in named.keys() - TLS:
        known = ", ".join(f"{known} ({meaning})" for known, meaning in TLS.items())
        yield f"tls in WAKEFUL_BROKER_OPTIONS has {name}, which is not known.", f"It may have: {known}."
    if str(named.get("cert_reqs", "required")) not in REQUIREMENTS:
        yield "cert_reqs of tls in WAKEFUL_BROKER_OPTIONS is not known.", "Set it to required or none."
    if not isinstance(named.get("check_hostname", True), bool):
        yield "check_hostname of tls in WAKEFUL_BROKER_OPTIONS is neither true nor false.", "Write it without quotes."
    for name in FILES:
        # A client of the broker would report that a file is missing, and not which one.
        if name in named and not (isinstance(named[name], str) and os.path.isfile(named[name])):
            yield (
                f"{name} of tls in WAKEFUL_BROKER_OPTIONS is no path of a file that this process finds.",
                f"Set it to the path of the {TLS[name]}, on each host.",
            )
    if url.startswith(("redis://", "amqp://", "pyamqp://")):
        yield (
            "WAKEFUL_BROKER_OPTIONS has tls, but the broker's URL is one without TLS.",
            "Set CELERY_BROKER_URL (or REDIS_URL) to rediss://… or amqps://…, or leave tls out.",
        )


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _faults_of_sentinel(url: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not (given.get("master_name") and isinstance(given["master_name"], str)):
        yield (
            "CELERY_BROKER_URL (or REDIS_URL) names sentinels, but nothing names the master that they monitor.",
            'Set WAKEFUL_BROKER_OPTIONS to {"master_name": "mymaster"}, with the name in the sentinels\' configuration.',
        )
    parts = [urlsplit(address) for address in addresses(url)]
    # kombu takes user, password and database of the master from the sentinel that it is at, and goes from one to the next.
    if len({(part.username, part.password, part.path.strip("/") or "0") for part in parts}) > 1:
        yield (
            "The sentinels in CELERY_BROKER_URL (or REDIS_URL) differ in user, password or database, which are those of the master.",
            "Write them with each one: sentinel://:password@a:26379/0;sentinel://:password@b:26379/0.",
        )
    if any(part.scheme != "sentinel" for part in parts):
        yield (
            "Not every address in CELERY_BROKER_URL (or REDIS_URL) begins with sentinel://.",
            "Write the scheme with each one, and a semicolon between two.",
        )
