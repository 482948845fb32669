from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """A number with a label; its level sets the colour of its edge."""

    label: str
    value: str
    note: str = ""
    level: str = ""
    url: str = ""
