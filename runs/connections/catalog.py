"""The known providers: each is one file in `providers`, found by its name."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from runs.connections import providers as folder
from runs.connections.provider import Provider


@cache
def providers() -> Mapping[str, Provider]:
    """Every provider by name."""
    found = []
    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        found.append(import_module(module.name).PROVIDER)
    return {one.name: one for one in sorted(found, key=lambda one: one.label)}
