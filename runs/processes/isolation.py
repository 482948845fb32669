"""A process of its own for work on the texts of strangers, which cannot be interrupted and holds the GIL. It imports neither Django nor
settings, has no secrets, and opens nothing. The kernel ends it at its limits of memory and processor time."""

import contextlib
import os
import resource
import sys
from importlib import import_module
from pathlib import Path

MEMORY = 2**30  # bytes of address space
BASE = Path(__file__).resolve().parents[__name__.count(".")]  # the folder that this module is imported from
ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT")
START = f"""
import sys
sys.path.insert(0, sys.argv[1])
from {__name__} import begin
begin(*sys.argv[2:])
"""


def command_of(module: str, *arguments: int, nice: int = 0, seconds: int = 0) -> list[str]:
    """Calls `main` of the module with the arguments. `seconds` of processor time; 0: no limit."""
    words = map(str, (BASE, module, nice, seconds, *arguments))
    return [sys.executable, "-P", "-c", START, *words]


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def begin(module: str, nice: str, seconds: str, *arguments: str) -> None:
    """In the new process."""
    os.nice(int(nice))
    if limit := int(seconds):
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    with contextlib.suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import_module(module).main(*map(int, arguments))
