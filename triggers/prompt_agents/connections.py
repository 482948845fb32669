"""The connections that the tools of a prompt agent act by. A connection of a person is chosen by that person alone: in each version that
they save, and in no other. `acts_for` of the version keeps whose it was, and a run gets the connection of no one else."""

from collections.abc import Iterator
from dataclasses import replace

from agents.prompt_agents.definition import Definition
from agents.tools import toolbox
from runs.models import Connection


def connections_for(by: str) -> list[str]:
    """The names of the connections that this person may choose."""
    rows = Connection.objects.order_by("name").values_list("name", "owner")
    return [name for name, owner in rows if not owner or by == f"admin:{owner}"]


def with_owner(definition: Definition, by: str) -> Definition:
    """The definition, with the user whose connections it names: who saves it, if any. A connection that has become another person's
    since `connection_faults` stays theirs."""
    owners = Connection.objects.filter(name__in=definition.connections.values()).exclude(owner="")
    user = by.removeprefix("admin:")
    return replace(definition, acts_for=user if user != by and owners.filter(owner=user).exists() else "")


def connection_faults(definition: Definition, by: str) -> Iterator[str]:
    """Each names the fix. `by`: who saves the definition."""
    needed = toolbox.connections_of(definition.tools)
    for called, tools in needed.items():
        if called not in definition.connections:
            yield f'connections: choose one for {" and ".join(tools)}, such as {{"{called}": "<its name>"}}'
    if unused := sorted(definition.connections.keys() - needed.keys()):
        yield f"connections: no tool of it acts by a connection {', '.join(map(repr, unused))}; leave it out"
    owners = dict(Connection.objects.filter(name__in=definition.connections.values()).values_list("name", "owner"))
    for name in dict.fromkeys(definition.connections.values()):
        if name not in owners:
            yield f"connections: there is no connection {name!r}; create it in the admin, under Connections"
        elif owners[name] and by != f"admin:{owners[name]}":
            yield f"connections: {name} belongs to {owners[name]}, who alone may have an agent act by it"
