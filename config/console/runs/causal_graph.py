"""The chain of events and runs around one of them as a drawing: causes at the left, effects at the right.

It is bounded: the causes and what failed come first, with all that leads there, then what is nearest. What is left out is counted where it
would hang. Children that succeeded and have no effects of their own are one box."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from config.console.parts.html import shown
from config.console.parts.links import listing, page
from config.console.runs.causal_nodes import BREADTH, COUNTED, RUN, SPAWNED, Named, Node
from runs.states import RunStatus

BOXES = 60
ALIKE = 3  # children from which on they are one box
COLUMN, ROW = 212, 54  # units of the drawing
WIDTH, HEIGHT = 172, 42
LETTERS = 24  # of a line in a box


@dataclass(frozen=True, kw_only=True)
class Box:
    """A run, an event, children that are alike, or a count of what is left out. `name` and `about` are its two lines."""

    x: int
    y: int
    kind: str
    state: str
    name: str
    about: str
    title: str
    url: str
    is_here: bool


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A drawing with the paths of its edges; `count`: the runs and events that are drawn."""

    boxes: Sequence[Box]
    edges: Sequence[str]
    width: int
    height: int
    count: int


@dataclass(frozen=True, kw_only=True)
class _Item:
    """What a box stands for."""

    kind: str
    name: str
    about: str
    url: str
    state: str = ""


def draw(kind: str, id: UUID, up: Sequence[Node], down: Sequence[Node], names: Mapping[UUID, Named]) -> Graph:
    """`up`: its causes, nearest first; `down`: its effects and those of its first cause, in the order in which they are kept."""
    here = Node(level=0, kind=kind, id=id, relation="", of=None, others=0)
    nodes = {node.id: node for node in [*reversed(down), *reversed(up), here]}
    effects = _effects(up, down)
    alike = _alike(id, nodes, effects, names)
    merged = {member for members in alike.values() for member in members[1:]}
    kept = _kept(id, up, [node for node in down if node.id not in merged], names)
    items: dict[object, _Item] = {}
    following: dict[object, list[object]] = {}
    for one in kept:
        members = alike.get(one, [one])
        items[one] = _item(nodes[one], names.get(one), members)
        following[one] = [effect for effect in effects.get(one, ()) if effect in kept]
        if hidden := _hidden(one, kept, merged, effects, down):
            items[one, "more"] = _more(nodes[one], hidden, effects.get(one, {}).values())
            following[one].append((one, "more"))
    drawn = sum(len(alike.get(one, [one])) for one in kept)
    return _placed(items, following, here=id, count=drawn)


def _effects(up: Sequence[Node], down: Sequence[Node]) -> dict[UUID, dict[UUID, Node]]:
    """By cause: its effects in their order."""
    effects: dict[UUID, dict[UUID, Node]] = {}
    for node in up:
        if node.of:
            effects.setdefault(node.id, {}).setdefault(node.of, node)
    for node in down:
        if node.of:
            effects.setdefault(node.of, {})[node.id] = node
    return effects


def _alike(
    here: UUID, nodes: Mapping[UUID, Node], effects: Mapping[UUID, Mapping[UUID, Node]], names: Mapping[UUID, Named]
) -> dict[UUID, list[UUID]]:
    """Children of one run and agent that succeeded and have no effects, by the first of them."""
    groups: dict[tuple[UUID, str], list[UUID]] = {}
    for cause, following in effects.items():
        for id, node in following.items():
            named = names.get(id)
            is_leaf = id in nodes and nodes[id].kind == RUN and id not in effects and id != here
            if named and is_leaf and node.relation == SPAWNED and named.state == RunStatus.SUCCEEDED:
                groups.setdefault((cause, named.agent), []).append(id)
    return {members[0]: members for members in groups.values() if len(members) >= ALIKE}


def _kept(here: UUID, up: Sequence[Node], down: Sequence[Node], names: Mapping[UUID, Named]) -> dict[UUID, None]:
    """The first BOXES, in order: a dict is used as an ordered set."""
    causes = {node.id: node.of for node in reversed(down) if node.of}
    failed = [node.id for node in down if (named := names.get(node.id)) and named.state == RunStatus.FAILED]
    order = [here, *(node.id for node in up)]
    for id in failed:
        order += _path(id, causes)
    order += [node.id for node in down]
    return dict.fromkeys(list(dict.fromkeys(order))[:BOXES])


def _path(id: UUID, causes: Mapping[UUID, UUID]) -> list[UUID]:
    """From the first cause to this one."""
    path = [id]
    while (cause := causes.get(path[-1])) and cause not in path:
        path.append(cause)
    return path[::-1]


def _hidden(
    id: UUID,
    kept: Mapping[UUID, None],
    merged: set[UUID],
    effects: Mapping[UUID, Mapping[UUID, Node]],
    down: Sequence[Node],
) -> int:
    """Direct effects that are not drawn."""
    left_out = sum(effect not in kept and effect not in merged for effect in effects.get(id, ()))
    uncounted = {node.relation: node.others for node in down if node.of == id}
    return left_out + sum(uncounted.values())


def _item(node: Node, named: Named | None, members: Sequence[UUID]) -> _Item:
    if named is None:
        return _Item(kind=node.kind, name=node.kind, about="deleted", url="")
    if len(members) > 1:
        name = f"{named.agent} × {len(members)}"
        url = listing("runs_run", parent=node.of)
        return _Item(kind=node.kind, name=name, about=named.state, url=url, state=named.state)
    url = page("runs_run" if node.kind == RUN else "triggers_event", node.id)
    about = named.state if node.kind == RUN else named.subject or "event"
    return _Item(kind=node.kind, name=named.name, about=about, url=url, state=named.state)


def _more(node: Node, hidden: int, effects: Iterable[Node]) -> _Item:
    has_children = any(effect.relation == SPAWNED for effect in effects)
    its_page = page("runs_run" if node.kind == RUN else "triggers_event", node.id)
    url = listing("runs_run", parent=node.id) if has_children else f"{its_page}#causes"
    more = "" if hidden < COUNTED - BREADTH else " or more"
    return _Item(kind="more", name=f"… {hidden:,}{more} more", about="not drawn", url=url)


def _placed(
    items: Mapping[object, _Item], following: Mapping[object, Sequence[object]], *, here: UUID, count: int
) -> Graph:
    caused = Counter(effect for effects in following.values() for effect in effects)
    places: dict[object, tuple[int, float]] = {}
    rows = iter(range(len(items)))

    def place(one: object, column: int) -> float:
        places[one] = (column, 0.0)
        below = [place(effect, column + 1) for effect in following.get(one, ()) if effect not in places]
        row = (below[0] + below[-1]) / 2 if below else float(next(rows))
        places[one] = (column, row)
        return row

    # A circle has no beginning: what is left then begins where it is.
    for one in [*(one for one in items if not caused[one]), *items]:
        if one not in places:
            place(one, 0)
    boxes = [_box(items[one], *places[one], is_here=one == here) for one in items]
    return Graph(
        boxes=boxes,
        edges=list(_edges(following, places)),
        width=COLUMN * (1 + max(column for column, _ in places.values())) - COLUMN + WIDTH + 4,
        height=int(ROW * max(row for _, row in places.values())) + HEIGHT + 4,
        count=count,
    )


def _box(item: _Item, column: int, row: float, *, is_here: bool) -> Box:
    name, about = str(shown(item.name)), str(shown(item.about))
    return Box(
        x=COLUMN * column + 2,
        y=int(ROW * row) + 2,
        kind=item.kind,
        state=item.state,
        name=_short(name),
        about=_short(about),
        title=f"{item.kind} {name}: {about}" if item.kind != "more" else name,
        url="" if is_here else item.url,
        is_here=is_here,
    )


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def _edges(following: Mapping[object, Sequence[object]], places: Mapping[object, tuple[int, float]]) -> Iterator[str]:
    for one, effects in following.items():
        for effect in effects:
            (column, row), (to_column, to_row) = places[one], places[effect]
            x, y = COLUMN * column + 2 + WIDTH, int(ROW * row) + 2 + HEIGHT // 2
            to_x, to_y = COLUMN * to_column + 2, int(ROW * to_row) + 2 + HEIGHT // 2
            middle = (x + to_x) // 2
            yield f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
