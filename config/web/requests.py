"""A request of granian's as WSGI has it, and as the door of a source takes it."""

import io
import sys
from typing import Any

from granian.rsgi import Scope

from triggers.sources.http.headers import UNREADABLE

Environ = dict[str, Any]


def fields_of(scope: Scope) -> dict[str, str]:
    """The header fields by lower-case name, repeated ones joined."""
    fields: dict[str, str] = {}
    for name, value in scope.headers.items():
        if "_" in name:
            continue  # WSGI would merge it with the field with hyphens, which a proxy sets or a signature covers
        fields[name] = f"{fields[name]}{'; ' if name == 'cookie' else ','}{value}" if name in fields else value
    return fields


def unreadable_fields(scope: Scope) -> list[str]:
    """The fields whose values granian omits because they are not ASCII."""
    return [name for name in scope.headers.keys() if scope.headers.get(name) is None]  # noqa: SIM118


def peer_of(scope: Scope) -> str:
    """The address that the connection comes from."""
    return scope.client.rpartition(":")[0].strip("[]")


def environ_of(scope: Scope, body: bytes) -> Environ:
    """The request as a WSGI environment (PEP 3333)."""
    name, _, port = scope.server.rpartition(":")
    environ: Environ = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": scope.path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "SERVER_NAME": name.strip("[]"),
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "REMOTE_ADDR": peer_of(scope),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        UNREADABLE: unreadable_fields(scope),
    }
    for field, value in fields_of(scope).items():
        key = field.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    return environ
