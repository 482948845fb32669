"""The person at the command line, for the audit log."""

import getpass
import os


def operator() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"  # a container's user need not have a name
