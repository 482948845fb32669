"""The depth in a causal chain of an event that another installation of Wakeful sent (`triggers.outbound`). A returning
event continues the count, so that no event circulates for ever. A sender may claim any depth, and gains nothing by
it.
"""

from typing import Any

from triggers.sources.http.headers import Headers, as_text

HEADER = "wakeful-depth"
EXTENSION = "wakefuldepth"  # of CloudEvents, also where a relay passes on the body alone
MOST = 1_000


def depth_of(headers: Headers, data: Any) -> int:
    """The depth given in the request, or in the CloudEvent in its body; 0: none."""
    said = as_text(headers[HEADER]) if HEADER in headers else None
    if said is None and isinstance(data, dict) and "specversion" in data:
        said = data.get(EXTENSION)
    return read_depth(said)


def read_depth(said: Any) -> int:
    text = str(said)
    return min(int(text), MOST) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
