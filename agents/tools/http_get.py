from typing import Annotated, Any

from pydantic import Field

from agents.tools.http import allowed_by_settings, call
from agents.tools.toolbox import tool


@tool(effect="read", hosts=lambda: allowed_by_settings().allow)
async def http_get(url: Annotated[str, Field(max_length=2000)]) -> dict[str, Any]:
    """Read an HTTP address. Only some hosts are allowed; the answer to a refused call names them."""
    return await call(allowed_by_settings(), url)
