"""Events that overtake the changes of watched tables, so that a webhook does not wait behind the 100,000 events of an UPDATE.

After a batch that is mostly changes, the next one has the first events of all other sources, in the order of `seq`, up
to the first one that must not overtake: one that matches a trigger or a switch which may match changes as well, or one
whose type is that of a change, which a run may wait for. So every trigger, switch and run still gets its events in the
order of `seq`.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from triggers.dispatch.rules import Rules
from triggers.matching.index import GLOB, Rule
from triggers.matching.match import wanted_by
from triggers.matching.pending import Identity, Item, read_items_but_changes

CHANGE = "db."  # the beginning of the types of all changes


class Overtaking:
    """Decides when it is the turn of events that may overtake."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.is_due = False

    def after(self, items: list[Item]) -> list[Item]:
        """The same items, which are the next batch."""
        self.is_due = 2 * sum(item.is_change for item in items) > len(items)
        return items

    def next(self, limit: int, but: Iterable[Identity]) -> list[Item]:
        if not self.is_due:
            return []
        self.is_due = False
        self.rules.current()
        return list(takewhile(self.may_overtake, read_items_but_changes(limit, but)))

    def may_overtake(self, item: Item) -> bool:
        return not item.type.startswith(CHANGE) and not any(
            may_match_changes(rule, item) for rule in self._matching(item)
        )

    def _matching(self, item: Item) -> Sequence[Rule]:
        """The triggers that may match the event, and all rules of the switches that may see it."""
        switches = [self.rules.switches.by_rule[rule.id] for rule in wanted_by(item, self.rules.switches.index)]
        return [*wanted_by(item, self.rules.index), *(rule for switch in switches for rule in switch.rules)]


def may_match_changes(rule: Rule, item: Item) -> bool:
    """Whether a rule that matches this item, which is no change, may match changes too. A rule limited to the item's
    source cannot.
    """
    if rule.source:
        return rule.source != item.source
    return any(overlaps(glob) for glob in rule.types)


def overlaps(glob: str) -> bool:
    literal = glob[: next((place for place, letter in enumerate(glob) if letter in GLOB), len(glob))]
    return literal.startswith(CHANGE) or CHANGE.startswith(literal)
