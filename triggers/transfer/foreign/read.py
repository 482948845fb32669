"""Read the file of another program."""

from datetime import datetime
from typing import Any

from runs.api.strict_json import Unreadable, parse_json, require_storable
from triggers.exceptions import Invalid
from triggers.transfer.foreign.beat import Zones, read_beat
from triggers.transfer.foreign.brought import Brought
from triggers.transfer.foreign.crontab import read_crontab
from triggers.transfer.foreign.healthchecks import read_checks

# An import is one transaction, which holds its locks to the end: what is larger is imported in parts.
MOST_BYTES = 10 * 2**20
MOST_ENTRIES = 10_000


def read(
    program: str,
    body: bytes,
    *,
    agent: str,
    is_on: bool = False,
    zone: str = "",
    last_run_zone: str = "",
    crontab: str = "",
    system: bool = False,
    since: datetime | None = None,
) -> Brought:
    """What its entries become; Unreadable or Invalid if it is no such file. `zone`: of the machine of a crontab, or of the
    times of a project that have no offset."""
    if len(body) > MOST_BYTES:
        raise Unreadable(f"more than {MOST_BYTES >> 20} MB")
    if program == "crontab":
        brought = read_crontab(
            _text(body), crontab=crontab, agent=agent, zone=zone or "UTC", system=system, since=since
        )
    elif program == "beat":
        zones = Zones(of_times=zone, of_last_run=last_run_zone or zone) if zone else None
        brought = read_beat(_json(body), agent=agent, is_on=is_on, zones=zones, since=since)
    else:
        brought = read_checks(_json(body), agent=agent)
    if len(brought.lines) > MOST_ENTRIES:
        raise Invalid([f"{len(brought.lines):,} entries, where one import takes {MOST_ENTRIES:,}: split the file"])
    return brought


def _json(body: bytes) -> Any:
    content = parse_json(body)
    require_storable(content)
    return content


def _text(body: bytes) -> str:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    require_storable(text)
    return text
