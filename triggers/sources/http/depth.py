"""How deep in a causal chain an event was when an installation of Wakeful sent it out (`triggers.outbound`). An event that
comes back goes on counting, so that no event goes round for ever. A sender may say anything, and gains nothing by it."""

from typing import Any

from triggers.sources.http.headers import Headers, as_text

HEADER = "wakeful-depth"
EXTENSION = "wakefuldepth"  # of CloudEvents, also where a relay passes on the body alone
MOST = 1_000


def depth_of(headers: Headers, data: Any) -> int:
    """The depth that the request says, or the CloudEvent in its body; 0: none."""
    said = as_text(headers[HEADER]) if HEADER in headers else None
    if said is None and isinstance(data, dict) and "specversion" in data:
        said = data.get(EXTENSION)
    return read_depth(said)


def read_depth(said: Any) -> int:
    text = str(said)
    return min(int(text), MOST) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
