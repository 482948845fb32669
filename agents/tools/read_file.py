from typing import Annotated, Any

from pydantic import Field

from agents.tools.toolbox import refusals_told, tool
from agents.work_files import read_work_file

MOST = 60_000  # characters of an answer


@tool(effect="read")
def read_file(
    path: Annotated[str, Field(max_length=2000, description="absolute, or below the first root")],
    begin: Annotated[int, Field(ge=0, description="the character to begin with")] = 0,
) -> dict[str, Any]:
    """Read a text file below the roots. A long one is given in parts: `next` is where the next part begins. `digest` names its content to
    write_file."""
    with refusals_told():
        found = read_work_file(path)
        if found is None:
            raise ValueError(f"there is no file {path}")
    part = found.text[begin : begin + MOST]
    end = begin + len(part)
    return {
        "path": found.path, "digest": found.digest, "text": part, "next": end if end < len(found.text) else None,
    }  # fmt: skip
