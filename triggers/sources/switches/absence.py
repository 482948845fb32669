from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from runs.db.nudge import nudge_dispatcher
from triggers.accept import Incoming
from triggers.matching.expressions.cel import ExpressionError, check_condition
from triggers.models.slug import slug_problems
from triggers.sources.continuity import Gaps
from triggers.sources.kind import Group, Kind, register
from triggers.sources.settings import InvalidSettings, setting, whole_number
from triggers.sources.switches.terms import Hours, duration, require_hours
from triggers.sources.webhooks.naming import LONGEST_NAME, is_name
from triggers.switches.switch import ABSENCE, MOST_KEYS, OPENED, WITHIN

MOST_TYPES = 50
LARGEST_KEYS = 100_000


def type_globs(value: str) -> str:
    words = value.split()
    if len(words) > MOST_TYPES:
        return f"must be at most {MOST_TYPES} types"
    return "" if all(is_name(word) for word in words) else f"each must have at most {LONGEST_NAME} printable characters"


def required_type_globs(value: str) -> str:
    return type_globs(value) if value.split() else "must name an event type, such as order.paid or order.*"


def slug(value: str) -> str:
    return "must be the name of a source" if value and any(slug_problems(value)) else ""


def expression(value: str) -> str:
    try:
        if value:
            check_condition(value)
    except ExpressionError as error:
        return str(error)
    return ""


@dataclass(frozen=True, kw_only=True)
class AbsenceSettings(Hours):
    """Settings of a switch: no event X within T, or within T of an event Y."""

    types: str = setting(
        "",
        "Awaited types",
        "The event that is to come: types or globs, separated by spaces.",
        check=required_type_globs,
    )
    source: str = setting("", "Its source", "The name of its source. Empty: any.", check=slug)
    filter: str = setting(
        "", "Its filter", "CEL, such as event.data.amount > 0. Empty: every such event.", check=expression
    )
    within: str = setting(WITHIN, "Within", "How long its absence is normal, such as 30m or 1d.", check=duration())
    grace: str = setting(
        "0s",
        "Grace",
        "How much later the switch opens. After an event that arrived late it counts from its arrival.",
        check=duration(timedelta()),
    )
    of_types: str = setting(
        "",
        "Of types",
        "The event that begins the time, such as order.placed. Empty: the awaited event itself, since it came last.",
        check=type_globs,
    )
    of_source: str = setting("", "Source of that event", "Empty: any.", check=slug)
    of_filter: str = setting("", "Filter of that event", "CEL. Empty: every such event.", check=expression)
    key: str = setting(
        "",
        "Key",
        "CEL, such as event.data.order: the switch waits for each value by itself. Empty: one time for all.",
        check=expression,
    )
    of_key: str = setting(
        "", "Key of that event", "CEL, if its key is at another place. Empty: as above.", check=expression
    )
    most_keys: int = setting(
        MOST_KEYS,
        "Most keys",
        "The maximum number of keys watched at a time. Events with further keys are not watched; the page of the switch shows this.",
        check=whole_number(1, LARGEST_KEYS),
    )

    def __post_init__(self) -> None:
        if self.of_types.split() or not (self.of_source or self.of_filter or self.of_key):
            require_hours(self, self.within)
            return
        given = [field.name for field in fields(self) if field.name.startswith("of_") and getattr(self, field.name)]
        raise InvalidSettings(dict.fromkeys(given, "needs the types of the event that begins the time"))


@register
class Absence(Kind[AbsenceSettings]):
    """Records an event when an awaited event is absent, and one when it returns."""

    name = ABSENCE
    label = "Absence of an event"
    help_text = "Records absence.opened when an awaited event does not come in time, and absence.closed when it does."
    group = Group.WATCHES
    docs = "absence#absence-of-an-event"
    settings_class = AbsenceSettings
    needs_secret = False
    gaps = Gaps(
        are_seen=True,
        how="its events are recorded together with the events that cause them. An awaited event that is lost is an absence.",
    )
    setup = (
        "Name the event that is to come, and how long its absence is normal.",
        "For “within a time of another event”, name that event too, and a key that both have, such as an order.",
        "Let a trigger listen to absence.opened of this source.",
    )

    def saved(self, source_id: UUID) -> None:
        nudge_dispatcher()

    def sample_event(self, source_id: UUID, slug: str) -> Incoming:
        now = datetime.now(UTC).isoformat()
        data = {
            "switch": slug,
            "key": "",
            "episode": 0,
            "reason": "absent",
            "since": now,
            "last_seen": None,
            "due": now,
            "late_by": 0.0,
        }
        return Incoming(
            source_id=source_id, ce_source=f"/sources/{slug}/", ce_id=f"test:{uuid4()}", type=OPENED, data=data
        )

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings({"secret": "is not used: nothing is received"})

    def new_secret(self) -> str:
        raise NotImplementedError("nothing is received")
