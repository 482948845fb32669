"""A PgBouncer of the tests' own, from the system's package."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from tests.support.postgres_programs import serving
from tests.support.stack import free_port


@contextmanager
def pgbouncer(folder: Path, database_url: str, mode: str) -> Iterator[str]:
    """The URL of the same database through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("needs pgbouncer (Debian: apt-get install pgbouncer)")
    server, port = urlsplit(database_url), free_port()
    (folder / "users").write_text(f'"{server.username}" "{unquote(server.password or "")}"\n')
    lines = [
        "[databases]",
        f"* = host={server.hostname} port={server.port}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = scram-sha-256",
        f"auth_file = {folder / 'users'}",
        f"pool_mode = {mode}",
        "default_pool_size = 60",
        "max_client_conn = 200",
    ]
    (folder / "pgbouncer.ini").write_text("\n".join([*lines, ""]))
    url = urlunsplit(server._replace(netloc=f"{server.username}:{server.password}@127.0.0.1:{port}"))
    with serving([program, folder / "pgbouncer.ini"], url, log=folder / "pgbouncer.log"):
        yield url
