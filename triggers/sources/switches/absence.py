from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from agents.on import UNUSED
from runs.db.nudge import nudge_dispatcher
from triggers.accept import Incoming
from triggers.matching.expressions.cel import ExpressionError, check_condition
from triggers.matching.index import KEY_BYTES
from triggers.models.slug import slug_problems
from triggers.sources.continuity import Gaps
from triggers.sources.kind import Case, Group, Kind, register
from triggers.sources.settings import InvalidSettings, setting, whole_number
from triggers.sources.switches.terms import Hours, duration, require_deadlines, require_hours
from triggers.sources.webhooks.naming import LONGEST_NAME, is_name
from triggers.switches.switch import ABSENCE, MOST_KEYS, OPENED, WITHIN, keys_of

MOST_TYPES = 50
LARGEST_KEYS = 100_000
MOST_LISTED = 1_000
KEYS_WANTED = "needs the keys that are expected, such as main, release; or let another event (Of types) name them"


HOURS = ("active_hours", "active_zone")
MORE_OF = ("of_source", "of_filter", "of_key")
SILENCE = Case(
    name="silence",
    label="For too long, such as no order.paid for an hour",
    fields=("types", "within", *HOURS, "key"),
    more=("source", "filter", "grace", "most_keys"),
)
AFTER = Case(
    name="after",
    label="After another event, such as no order.paid within 30 minutes of order.placed",
    fields=("types", "of_types", "within", *HOURS, "key"),
    needs=("of_types",),
    more=("source", "filter", *MORE_OF, "grace", "most_keys"),
)
DUE = Case(
    name="due",
    label="After another event, by a time of day, such as no order.paid by the next 17:00 after order.placed",
    fields=("types", "of_types", "by", "days", "active_zone", "key"),
    needs=("of_types", "by"),
    more=("source", "filter", *MORE_OF, "grace", "most_keys"),
    fixed={"within": UNUSED},
)
DEADLINE = Case(
    name="deadline",
    label="By a time of day, such as no ci.passed since noon at 15:00",
    fields=("types", "by", "since", "days", "active_zone", "key", "keys"),
    needs=("by",),
    more=("source", "filter", "grace"),
    fixed={"within": UNUSED},
)


def type_globs(value: str) -> str:
    words = value.split()
    if len(words) > MOST_TYPES:
        return f"must be at most {MOST_TYPES} types"
    return "" if all(is_name(word) for word in words) else f"each must have at most {LONGEST_NAME} printable characters"


def required_type_globs(value: str) -> str:
    return type_globs(value) if value.split() else "must name an event type, such as order.paid or order.*"


def listed_keys(value: str) -> str:
    keys = keys_of(value)
    if value.strip() and not keys:
        return "must be keys, such as main, release"
    if len(keys) > MOST_LISTED:
        return f"must be at most {MOST_LISTED:,} keys"
    return "" if all(len(key.encode()) <= KEY_BYTES for key in keys) else f"each must have at most {KEY_BYTES:,} bytes"


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
    """Settings of a switch: no event X within T, or within T of an event Y, or by a time of day."""

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
    by: str = setting("", "By", "The time of day by which it is to come, such as 15:00 or 3 pm.")
    since: str = setting(
        "",
        "Since",
        "The time of day since which it counts, such as noon; of the day before, unless it is earlier in the day. Empty: midnight.",
    )
    days: str = setting("", "Days", "The days on which it is to come by then, such as mon-fri. Empty: every day.")
    keys: str = setting(
        "",
        "Keys",
        "The event is to come by then for each of these keys. Separate them by commas: main, release.",
        check=listed_keys,
    )
    grace: str = setting(
        "0s",
        "Grace",
        "How much later the switch opens. After an event that arrived late it counts from its arrival.",
        check=duration(timedelta()),
    )
    of_types: str = setting(
        "",
        "Of types",
        "The event that begins the time, such as order.placed. Empty: the awaited event itself, since it came last, or each day.",
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
        if not self.of_types.split():
            self._refuse("of_source", "of_filter", "of_key", why="needs the types of the event that begins the time")
        if not self.by:
            self._refuse("since", "days", "keys", why="needs the time of day by which the event is to come")
            require_hours(self, self.within)
            return
        self._refuse("active_hours", why="does not go with a time of day to come by; use days")
        if self.of_types.split():
            self._refuse(
                "since", "keys", why="does not go with the event that begins the time, which says what is expected"
            )
        elif bool(self.key) != bool(self.keys.strip()):
            where = "keys" if self.key else "key"
            raise InvalidSettings({where: KEYS_WANTED if self.key else "needs the key, such as event.data.branch"})
        require_deadlines(asdict(self))

    def _refuse(self, *names: str, why: str) -> None:
        if given := [name for name in names if getattr(self, name)]:
            raise InvalidSettings(dict.fromkeys(given, why))


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
    cases = (SILENCE, AFTER, DUE, DEADLINE)
    case_label = "What is missing"
    more_in_words = "narrow the events, or allow a grace"
    gaps = Gaps(
        are_seen=True,
        how="its events are recorded together with the events that cause them. An awaited event that is lost is an absence.",
    )
    setup = (
        "Name the event that is to come, and how long its absence is normal, or the time of day by which it is to come.",
        "For “after another event”, name that event too, and a key that both have, such as an order.",
        "Let a trigger listen to absence.opened of this source.",
    )

    def case_of(self, settings: Mapping[str, Any]) -> Case:
        follows = bool(settings.get("of_types", "").split())
        if settings.get("by"):
            return DUE if follows else DEADLINE
        return AFTER if follows else SILENCE

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
