"""The names of sessions."""

import re
from typing import Any

from agents.exceptions import Permanent

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")


def checked_name(session: Any) -> str:
    """Permanent: that is no name of a session."""
    if not isinstance(session, str) or not NAME.fullmatch(session):
        raise Permanent(
            f"session {session!r}: use 1 to 100 letters, digits and . _ : @ -; begin with a letter or a digit"
        )
    return session
