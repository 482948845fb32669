"""Index entries that a leg makes, read from the write-ahead log."""

import re
import subprocess
from pathlib import Path

from config.stack.embedded.binaries import find_postgres
from config.stack.embedded.postgres import Postgres
from runs.db.sql import fetch

FLUSH = "SELECT pg_logical_emit_message(false, 'flush', '', true)"
OURS = "SELECT pg_relation_filenode(oid) FROM pg_class WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace"
# A page that has no room for the entry is split by the record that adds it.
ADDS = re.compile(
    r"desc: (?:INSERT_LEAF|INSERT_POST|SPLIT_[LR] level: 0|INSERT|UPDATE_META_PAGE)\b.*?blkref #0: rel \d+/\d+/(\d+) "
)


def index_entries(server: Postgres, wal: tuple[str, str]) -> int:
    """Entries of our indexes between these two places of the log. All keys of an array count as one."""
    fetch(FLUSH)
    ours = {str(file) for (file,) in fetch(OURS)}
    since, until = wal
    if since == until:
        return 0
    waldump, log = find_postgres(18).bin / "pg_waldump", server.data / "pg_wal"
    places: list[str | Path] = ["-p", log, "-s", since, "-e", until]
    read = subprocess.run([waldump, "--rmgr=Btree", "--rmgr=Gin", *places], capture_output=True, text=True, check=False)
    assert not read.returncode, read.stderr
    return sum(match[1] in ours for match in ADDS.finditer(read.stdout))
