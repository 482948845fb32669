"""Guard modules and classes of libraries, also those that are imported or defined later: a body may import a library itself."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Guard = Callable[[ModuleType], None]

_guards: dict[str, Guard] = {}  # by the names of modules


def guard_modules(guards: Mapping[str, Guard]) -> None:
    """Now if they are imported, else when they are. A guard is called more than once, and with a module that is being imported."""
    _guards.update(guards)
    known = [name for name in guards if name in sys.modules]
    for name in known:
        guards[name](sys.modules[name])
    if len(known) < len(guards) and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def guard_methods(base: Any, names: Iterable[str], guarded: Callable[[str, Any], Any]) -> None:
    """Of the subclasses that there are, and those that are defined later: what each has of its own. `guarded` is given the name of the
    method and the method."""
    if hasattr(base, "is_guarded"):
        return
    names, own = tuple(names), vars(base).get("__init_subclass__")

    def guard(cls: Any) -> None:
        for name in names:
            method = vars(cls).get(name)
            if method is not None and not hasattr(method, "is_guarded"):
                replacement = guarded(name, method)
                replacement.is_guarded = True
                setattr(cls, name, replacement)

    def init_subclass(cls: Any, /, **named: Any) -> None:
        if own:
            own.__func__(cls, **named)
        else:
            super(base, cls).__init_subclass__(**named)
        guard(cls)

    base.__init_subclass__ = classmethod(init_subclass)
    base.is_guarded = True
    classes = [base]
    for cls in classes:
        guard(cls)
        classes.extend(cls.__subclasses__())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _guards else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _guards[module.__name__](module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
