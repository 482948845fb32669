from typing import Annotated

from pydantic import Field

from agents.tools.toolbox import refusals_told, tool
from agents.work_files import names_in


# Names of files are written by others, too.
@tool(effect="read")
def list_files(
    path: Annotated[str, Field(max_length=2000, description="a folder; empty: the first root")] = "",
) -> list[str]:
    """The names in a folder below the roots, at most 1,000; those of folders end with a slash."""
    with refusals_told():
        return names_in(path)
