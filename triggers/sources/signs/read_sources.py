"""The number of enabled sources that `manage.py sources` must read."""

from dataclasses import dataclass

from runs.sign import Sign
from triggers.sources.runner import runners

SQL = "SELECT count(*) AS number FROM triggers_source WHERE enabled AND kind = ANY(%(runners)s::text[])"


@dataclass(frozen=True, kw_only=True)
class ReadSources:
    number: int


READ_SOURCES = Sign(
    name="read_sources",
    sql=SQL,
    row=ReadSources,
    kinds=("no-sources",),
    parameters=lambda: {"runners": list(runners())},
    limit=None,
)
