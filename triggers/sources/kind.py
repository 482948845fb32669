"""Kinds of sources: their description for forms, docs and processes. Each is one file in a family, a
package of `triggers.sources`, found by name: a scheme of webhooks, a broker, a poller, a switch."""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from triggers.accept import Incoming
from triggers.sources.continuity import Gaps
from triggers.sources.replies import Answer, Unanswerable
from triggers.sources.settings import Field, InvalidSettings, clean, fields_of

if TYPE_CHECKING:
    from triggers.models import Event

S = TypeVar("S")
K = TypeVar("K", bound="type[Kind[Any]]")
_kinds: dict[str, "Kind[Any]"] = {}

FAMILIES = (
    "brokers",
    "calendars",
    "databases",
    "files",
    "metrics",
    "polling",
    "switches",
    "webhooks.schemes",
)  # the packages of triggers.sources that hold kinds


class Group(StrEnum):
    """A heading under which the form of a new source lists kinds."""

    ANY_SENDER = "Any sender"
    CODE = "Code and issues"
    MONITORING = "Monitoring"
    COMMERCE = "Payments and shops"
    MESSAGES = "Messages and mail"
    CLOUD = "Cloud"
    BROKERS = "Brokers"
    POLLING = "Polling"
    DATABASES = "Databases"
    WATCHES = "Watches"
    METRICS = "Metrics"
    FILES = "Files and objects"


class Waits(StrEnum):
    """Where new events of a source wait while too many events wait for dispatch."""

    SENDER = "sender"  # the sender gets 503 and sends again
    READER = "reader"  # at the broker: the reader reads nothing
    JOB = "job"  # the sender gets 503, and may not retry: events of other senders must not make its ping look absent


@dataclass(frozen=True, kw_only=True)
class Case:
    """One use of a kind. A form offers its `fields`, and `more` below them; other settings are their defaults, or `fixed`. It `needs`
    some of them, besides those that the kind requires."""

    name: str
    label: str
    fields: tuple[str, ...]
    needs: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)

    def only(self, settings: Mapping[str, Any], known: Sequence[Field]) -> dict[str, Any]:
        """The settings without those of other cases."""
        kept = (*self.fields, *self.more)
        return {
            one.name: settings[one.name] if one.name in kept else self.fixed.get(one.name, one.default) for one in known
        }


class Kind(ABC, Generic[S]):
    """One kind of source: its settings, its secret, and the steps at the provider. `Source.kind` is its name.

    A client library that is an extra is imported in the method that needs it: every kind is loaded in every process.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    help_text: ClassVar[str]
    group: ClassVar[Group]
    settings_class: type[S]
    setup: ClassVar[tuple[str, ...]]  # steps at the provider, in order; {url} is the address of the source
    gaps: ClassVar[Gaps]  # whether it detects messages that were lost before they were recorded
    docs_url: ClassVar[str] = ""  # the provider's own page
    docs: ClassVar[str]  # the page of docs/ that describes it, such as `files#object-stores`
    needs_secret: ClassVar[bool] = True
    is_trusted: ClassVar[bool] = False  # strangers do not write its data; the default of its sources
    is_verified: ClassVar[bool] = True  # by a secret, or by a key that only the sender has
    permission: ClassVar[str] = ""  # the permission needed to create and edit one, besides that for sources
    secret_label: ClassVar[str] = "Signing secret"  # the name that the provider uses for it
    waits: ClassVar[Waits | None] = None  # None: its events cannot be kept out
    cases: ClassVar[tuple[Case, ...]] = ()  # a form asks for one of them first; none: it shows all settings
    case_label: ClassVar[str] = "What wakes"  # the choice of a case
    in_sight: ClassVar[
        tuple[str, ...]
    ] = ()  # settings that a form without cases shows; it folds the others. None: it shows all
    more_in_words: ClassVar[str] = "how often to look, and what counts"  # what the folded settings of cases are for
    is_secret_given: ClassVar[bool] = False  # the provider makes its secret, so that none can be generated here

    @property
    def fields(self) -> tuple[Field, ...]:
        """The settings as form fields."""
        return fields_of(self.settings_class)

    @cached_property
    def required(self) -> frozenset[str]:
        """Settings that cannot stay at their defaults."""
        refused = {field.name for field in self.fields if field.check(field.default)}
        try:
            self.settings_class()
        except InvalidSettings as error:
            refused |= set(error.errors)
        return frozenset(refused)

    def case_of(self, settings: Mapping[str, Any]) -> Case | None:
        """The case of these settings; None: the kind has none."""
        return None

    def clean_settings(self, settings: Mapping[str, object]) -> S:
        """The validated, typed settings. InvalidSettings names each wrong field and its fix."""
        return clean(self.settings_class, settings)

    def check(self, settings: Mapping[str, object]) -> None:
        """Validate settings that are about to be saved, also against the installation. Raises InvalidSettings."""
        self.clean_settings(settings)

    def secret_goes_to(self, settings: Mapping[str, object]) -> Mapping[str, Hashable]:
        """Where the secret goes with these settings; empty: nowhere. Raises InvalidSettings."""
        cleaned = self.clean_settings(settings)
        sending = [(field.name, field.secret_goes_to) for field in self.fields if field.secret_goes_to]
        return {name: where(getattr(cleaned, name)) for name, where in sending}

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        """The name of the connection that a source with these settings uses; empty: none."""
        return ""

    def saved(self, source_id: UUID) -> None:  # noqa: B027  (most kinds keep nothing but the row)
        """Called after the commit that has created, changed, enabled or disabled a source of this kind."""

    def sample_event(self, source_id: UUID, slug: str) -> Incoming | None:
        """An event as a source of this kind records it, for a test. None: its events come from elsewhere."""
        return None

    def answer_to(self, event: "Event", settings: S) -> Answer:
        """Where this event is answered. Raises Unanswerable."""
        raise Unanswerable(
            f"events of kind {self.label} have no place to answer. Reach people by run.notify(…), or a system by run.emit(…) and a "
            "subscription"
        )

    def asks_at(self, event: "Event", settings: S) -> Answer:
        """Where requests for a decision by runs of this event are posted. Raises Unanswerable."""
        raise Unanswerable(f"requests for a decision are not posted where events of kind {self.label} come from")

    @abstractmethod
    def clean_secret(self, secret: str) -> str:
        """The secret to store. Raises InvalidSettings."""

    @abstractmethod
    def new_secret(self) -> str:
        """A new secret in the provider's format; offered to operators unless `is_secret_given`."""


def register(kind: K) -> K:
    """Register a kind under its name."""
    _kinds[kind.name] = kind()
    return kind


@cache
def kinds() -> Mapping[str, Kind[Any]]:
    """Every kind by name."""
    for name in FAMILIES:
        family = import_module(f"triggers.sources.{name}")
        for module in pkgutil.iter_modules(family.__path__, f"{family.__name__}."):
            import_module(module.name)
    return dict(sorted(_kinds.items()))
