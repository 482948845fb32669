"""The person at the command line, for the audit log."""

import os
import pwd


def operator() -> str:
    """The name of the user of this process. LOGNAME and USER do not count: every process may set them."""
    uid = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"cli:{uid}"  # a container's user need not have a name
