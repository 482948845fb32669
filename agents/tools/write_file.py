from typing import Annotated

from pydantic import Field

from agents.tools.toolbox import refusals_told, tool
from agents.work_files import MOST_BYTES, write_work_file


# Dangerous: people and programs act on what stands in files.
@tool(effect="idempotent", dangerous=True, trusted=True)
def write_file(
    path: Annotated[str, Field(max_length=2000, description="absolute, or below the first root")],
    text: Annotated[str, Field(max_length=MOST_BYTES, description="the whole file")],
    replaces: Annotated[
        str,
        Field(
            max_length=100,
            description="the digest of the file that it replaces, as read_file gave it; empty: a new one",
        ),
    ] = "",
) -> str:
    """Write a text file below the roots, as a whole. It is refused if the file has been changed since you read it."""
    with refusals_told():
        return f"Written; its digest is {write_work_file(path, text, replaces=replaces)}."
