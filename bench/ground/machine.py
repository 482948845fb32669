"""Where and with what it was measured."""

import os
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil

from bench.ground.processes import Ground

PACKAGES = ("django", "djangorestframework", "granian", "celery", "kombu", "redis", "psycopg", "procrastinate", "dbos")
SETTINGS = ("fsync", "synchronous_commit", "wal_level", "shared_buffers")
SYNCS = 200


def describe(ground: Ground) -> Iterator[str]:
    memory = psutil.virtual_memory().total / 2**30
    yield f"Machine   {cpu_model()} × {os.cpu_count()}, {memory:.0f} GB, {platform.system()} {platform.release()}"
    yield f"          load average {os.getloadavg()[0]:.2f} at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"          8 kB written and synced to disk: {sync_time(ground) * 1e6:.0f} µs"
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield f"Versions  Python {platform.python_version()}, {packages}"
    [postgres] = ground.stack.query("SELECT current_setting('server_version') AS version")
    yield f"          PostgreSQL {postgres['version']}, {broker_version(ground)}"
    yield f"          {settings_of(ground)}"
    yield "          Valkey: append-only file, synced every second; the peer: Celery's defaults, results ignored"


def settings_of(ground: Ground) -> str:
    rows = ground.stack.query(
        "SELECT name || ' ' || current_setting(name) AS said FROM unnest(%s::text[]) name", [*SETTINGS]
    )
    return f"PostgreSQL: {', '.join(row['said'] for row in rows)}"


def cpu_model() -> str:
    """The name of the CPU, where the system shows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def broker_version(ground: Ground) -> str:
    with ground.peer_store as store:
        info = store.info("server")
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"


def sync_time(ground: Ground) -> float:
    """Median seconds of a small write that must be on disk: what every commit pays."""
    path = ground.stack.folder / "sync"
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 8192)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    path.unlink()
    return median(times)
