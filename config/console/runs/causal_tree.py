"""The causes and effects of a run or an event: drawn as a graph of the whole chain, and as two lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar
from uuid import UUID

from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import event_link, run_link
from config.console.runs.causal_graph import Graph, draw
from config.console.runs.causal_nodes import (
    BREADTH,
    COUNTED,
    EVENT,
    RUN,
    Named,
    Node,
    causes_of,
    effects_of,
    names_of,
)
from runs.models import Run
from triggers.models import Event


@dataclass(frozen=True, kw_only=True)
class Line:
    """A node as a list shows it."""

    level: int
    relation: str
    what: SafeString | str
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class CausalTree:
    """The causes of a run or an event, backwards in time, and its effects. `graph`: None if it has neither."""

    template: ClassVar[str] = "admin/console/causal_tree.html"
    chain: Sequence[str]
    graph: Graph | None
    up: Sequence[Line]
    down: Sequence[Line]


def causal_tree(run: Run) -> CausalTree:
    chain = [*run.chain, run.trigger or run.agent] if run.chain else []
    return _tree(RUN, run.pk, chain, Named(name=run.agent, agent=run.agent, state=run.status))


def causal_tree_of_event(event: Event) -> CausalTree:
    return _tree(EVENT, event.pk, [], Named(name=event.type, subject=event.subject))


def _tree(kind: str, id: UUID, chain: Sequence[str], named: Named) -> CausalTree:
    up, down = causes_of(kind, id), effects_of(kind, id)
    # From the beginning of the chain: also what else came of it.
    beside = effects_of(up[-1].kind, up[-1].id) if up else []
    names = {**names_of([*up, *down, *beside]), id: named}
    return CausalTree(
        chain=chain,
        graph=draw(kind, id, up, [*down, *beside], names) if up or down else None,
        up=list(_lines(id, up, names)),
        down=list(_lines(id, down, names)),
    )


def _lines(id: UUID, nodes: Sequence[Node], names: Mapping[UUID, Named]) -> Iterable[Line]:
    """Depth first, below their parents. A node with two parents is expanded only below the first."""
    hanging: dict[UUID | None, dict[UUID, Node]] = {}
    for node in nodes:
        hanging.setdefault(node.of, {}).setdefault(node.id, node)
    followed: set[UUID] = set()

    def below(id: UUID, level: int) -> Iterable[Line]:
        if id in followed:
            return
        followed.add(id)
        for relation, alike in groupby(hanging.get(id, {}).values(), key=lambda node: node.relation):
            others = 0
            for node in alike:
                named = names.get(node.id)
                state = named.state if named else ""
                yield Line(level=level, relation=relation, what=_linked(node, named), state=state)
                yield from below(node.id, level + 1)
                others = node.others
            if others:
                yield Line(level=level, relation=relation, what=_more(others))

    return below(id, 1)


def _linked(node: Node, named: Named | None) -> SafeString | str:
    if named is None:
        return f"{node.kind} {node.id} (deleted)"
    if node.kind == RUN:
        return run_link(node.id, named.name)
    return format_html('{} <span class="moment-ago">{}</span>', event_link(node.id, named.name), named.subject)


def _more(others: int) -> str:
    return f"… {others:,}{'' if others < COUNTED - BREADTH else ' or more'} more"
