"""Read the file of another program."""

from datetime import datetime

from runs.api.strict_json import Unreadable, parse_json, require_storable
from triggers.transfer.foreign.beat import read_beat
from triggers.transfer.foreign.brought import Brought
from triggers.transfer.foreign.crontab import read_crontab
from triggers.transfer.foreign.healthchecks import read_checks


def read(
    program: str,
    body: bytes,
    *,
    agent: str,
    is_on: bool = False,
    zone: str = "UTC",
    system: bool = False,
    since: datetime | None = None,
) -> Brought:
    """What its entries become; Unreadable or Invalid if it is no such file."""
    if program == "crontab":
        return read_crontab(_text(body), agent=agent, zone=zone, system=system, since=since)
    content = parse_json(body)
    require_storable(content)
    return read_beat(content, agent=agent, is_on=is_on) if program == "beat" else read_checks(content, agent=agent)


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    require_storable(text)
    return text
