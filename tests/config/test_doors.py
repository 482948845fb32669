"""A service needs the same permission at every door, and the page of accounts lists its doors."""

import ast
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from django.contrib import admin
from django.core.management import get_commands, load_command_class
from django.utils.text import capfirst

from config.api import router
from config.console.notifications.decide import NEEDED
from config.console.parts.panel import Panel

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
HEADER = "| permission | console | API | `manage.py` |\n|---|---|---|---|\n"
ROOMS = ("agents.", "runs.", "triggers.")
# The form of a new object calls these as well, after the service that makes it.
COMPLETING = {
    "triggers.schedules.edit.edit_schedule",
    "triggers.sources.secrets.add_secret",
    "triggers.sources.secrets.rotate",
}
# What is kept in a file is a checklist or the instructions of a prompt agent: each needs the permission of its own edit.
OF_TWO_NOUNS = {f"triggers.page_files.edit.{name}" for name in ("link_file", "take_file", "unlink_file", "write_file")}
LAYER = re.compile(r"config\.console|(runs|triggers)\.(api|management)\b")
PERMISSION = re.compile(r"(agents|runs|triggers)\.[a-z]+_[a-z]+")


@dataclass
class Doors:
    console: set[str] = field(default_factory=set)
    api: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)
    permissions: set[str] = field(default_factory=set)

    def row(self) -> str:
        doors = (", ".join(sorted(door)) for door in (self.console, self.api, self.commands))
        return f"| `{', '.join(sorted(self.permissions))}` | {' | '.join(doors)} |"

    def add(self, other: "Doors") -> None:
        self.console |= other.console
        self.api |= other.api
        self.commands |= other.commands
        self.permissions |= other.permissions

    @property
    def are_several(self) -> bool:
        return sum(map(bool, (self.console, self.api, self.commands))) > 1


def test_a_service_needs_one_permission_at_all_its_doors() -> None:
    unlike = {name for name, doors in doors_by_service().items() if len(doors.permissions) > 1}

    assert unlike == OF_TWO_NOUNS


def test_the_doors_of_a_service_are_found() -> None:
    requeue = doors_by_service()["runs.actions.requeue.requeue"]

    assert requeue == Doors({"Run: Requeue"}, {"`POST runs/…/requeue/`"}, {"`requeue`"}, {"runs.requeue_run"})


def test_the_inbox_needs_the_permissions_of_the_other_doors() -> None:
    services = {
        "runs.actions.approve.decide": ("approve", "deny", "answer"),
        "runs.actions.resolve.resolve": ("did_not_happen", "fail"),
        "runs.actions.incidents.requeue_incident": ("requeue",),
        "runs.actions.incidents.close_incident": ("close",),
        "runs.actions.incidents.acknowledge_incident": ("acknowledge",),
        "runs.actions.incidents.mute_incident": ("mute",),
    }

    needed = {one: doors_by_service()[name].permissions for name, of in services.items() for one in of}

    assert needed == {decision: {permission} for decision, permission in NEEDED.items()}


def test_the_page_lists_the_services_with_more_than_one_door() -> None:
    listed = PAGE.read_text().partition(HEADER)[2].partition("\n\n")[0]

    assert listed.splitlines() == rows_of_the_page()


def rows_of_the_page() -> list[str]:
    """A row for each request to the API, with the doors of all services that it calls."""
    merged: dict[str, Doors] = defaultdict(Doors)
    for service, doors in doors_by_service().items():
        for request in doors.api or {service}:
            merged[request].add(doors)
    return sorted({doors.row() for doors in merged.values() if doors.are_several})


@cache
def doors_by_service() -> dict[str, Doors]:
    """The services that the console or the API calls in a person's name."""
    found: dict[str, Doors] = defaultdict(Doors)
    for label, permissions, method, panel in pages():
        for service in services_of(method, panel) - (COMPLETING if label.endswith(": New") else set()):
            found[service].console.add(label)
            found[service].permissions |= permissions
    for label, permission, method, resource in actions():
        for service in services_of(method, resource):
            found[service].api.add(label)
            found[service].permissions.add(permission)
    for name, app in get_commands().items():
        if app in ("config", "runs", "triggers"):
            command = type(load_command_class(app, name))
            for service in services_of(command, command) & set(found):
                found[service].commands.add(f"`{name}`")
    return dict(found)


def pages() -> Iterator[tuple[str, set[str], Any, type]]:
    """The console's buttons and other pages that change something."""
    for model, registered in admin.site._registry.items():
        panel: Any = registered
        noun, owner = capfirst(str(model._meta.verbose_name)), type(panel)
        for name in panel._extract_action_names(panel.actions_detail):
            method = getattr(owner, name)
            yield f"{noun}: {method.short_description}", set(method.allowed_permissions), method, owner
        if isinstance(panel, Panel):
            yield f"{noun}: New", asked_by(panel.has_add_permission), owner.new, owner
            for name in panel.own_pages:
                method = getattr(owner, f"{name}_view")
                yield f"{noun}: {capfirst(name)}", set(named_in(method, owner)), method, owner


def asked_by(has_permission: Callable[[Any], bool]) -> set[str]:
    """The permissions that a check asks for."""
    user = Mock()
    user.has_perm.return_value = False
    has_permission(Mock(user=user))
    return {call.args[0] for call in user.has_perm.call_args_list}


def named_in(method: Any, owner: type) -> Iterator[str]:
    for function in reached(method, owner):
        for node in ast.walk(tree_of(function)):
            if isinstance(node, ast.Constant) and PERMISSION.fullmatch(str(node.value)):
                yield str(node.value)


def actions() -> Iterator[tuple[str, str, Any, type]]:
    for prefix, registered, _ in router.registry:
        resource: Any = registered
        for route in router.get_routes(resource):
            for method, name in router.get_method_map(resource, route.mapping).items():
                path = route.url.format(prefix=prefix, lookup="…", trailing_slash="/").strip("^$")
                if method != "get":
                    label = f"`{method.upper()} {path}`"
                    yield label, resource.required_permissions[name], getattr(resource, name), resource


def services_of(method: Any, owner: type) -> set[str]:
    return {
        f"{service.__module__}.{service.__name__}"
        for function in reached(method, owner)
        for service in called(function, owner, by_somebody=True)
        if service.__module__.startswith(ROOMS) and not service.__name__.startswith("_")
    }


def reached(method: Any, owner: type) -> list[Any]:
    """The method, and the functions and methods of the same layer that it calls."""
    found = [inspect.unwrap(method)]
    for function in found:
        layer = [one for one in called(function, owner) if LAYER.match(one.__module__)]
        found += [one for one in dict.fromkeys(layer) if one not in found]
    return found


def called(function: Any, owner: type, *, by_somebody: bool = False) -> Iterator[Any]:
    """The functions that this one calls, also through `partial` and methods of its class; or only those that get a `by`."""
    module = inspect.getmodule(function)
    for call in [node for node in ast.walk(tree_of(function)) if isinstance(node, ast.Call)]:
        if by_somebody and not any(keyword.arg == "by" for keyword in call.keywords) and not is_answer(call):
            continue
        for part in (call.func, *call.args[:1]):
            one = getattr(module, part.id, None) if isinstance(part, ast.Name) else None
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
                one = getattr(owner, part.attr, None)
            if inspect.isfunction(one):
                yield inspect.unwrap(one)


def is_answer(call: ast.Call) -> bool:
    """Whether a resource of the API hands a service to its method `_answer`, which calls it."""
    return ast.unparse(call.func) == "self._answer"


@cache
def tree_of(function: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))
