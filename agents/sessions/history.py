"""The history of a session. Writing is for the run that holds the session, in the transaction of a step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Q

from agents.guards.storable import storable
from agents.models import PromptAgentVersion, Session, SessionTurn
from agents.sessions.limits import SUMMARY_LENGTH
from agents.sessions.messages import as_text, loaded
from agents.sessions.size import surplus

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage


@dataclass(frozen=True, kw_only=True)
class History:
    """The earlier turns of a session that a run gets."""

    summary: str
    is_summary_tainted: bool
    messages: "Sequence[ModelMessage]"
    is_tainted: bool  # whether a run that reads it is tainted


@dataclass(frozen=True, kw_only=True)
class Surplus:
    """The turns up to number `through` are too many. `text` is what a model is to summarise: the summary so far and those
    turns; None where they are dropped. `revision` is the session's."""

    through: int
    text: str | None
    is_tainted: bool
    revision: int

    def dump(self) -> dict[str, Any]:
        return {"through": self.through, "is_tainted": self.is_tainted, "revision": self.revision}


def newest(session: str, agent: str) -> dict[str, Any]:
    """The number of its newest turn, and whether a run of this agent that reads it is tainted."""
    known = Session.objects.filter(name=session).first()
    if known is None:
        return {"through": 0, "is_tainted": False}
    # Of an agent that acts by a person's own connections: another person may have written the prompts of other agents, or its own before,
    # or edited the summary, from whose words a later one is made.
    acts_for = PromptAgentVersion.acts_for(agent)
    is_summary_tainted = known.is_summary_tainted or bool(acts_for and known.revision)
    is_given = Q(messages__isnull=False)
    taints = is_given & Q(is_tainted=True)
    if acts_for:
        since = PromptAgentVersion.own_since(agent, acts_for)
        is_of_others = ~Q(agent=agent) | (Q(at__lt=since) if since else Q())
        taints |= (is_given | Q(is_summarised=True)) & is_of_others
    is_tainted = known.turns.filter(taints).exists() or (bool(known.summary) and is_summary_tainted)
    return {"through": known.last_number, "is_tainted": is_tainted}


def read(session: str, through: int) -> History:
    """The summary, and the turns up to this number."""
    known = Session.objects.filter(name=session).first()
    if known is None:
        return History(summary="", is_summary_tainted=False, messages=[], is_tainted=False)
    given = known.turns.filter(messages__isnull=False, number__lte=through)
    turns = list(given.values_list("messages", "is_tainted"))
    return History(
        summary=known.summary,
        is_summary_tainted=known.is_summary_tainted,
        messages=[message for stored, _ in turns for message in loaded(stored or ())],
        is_tainted=(bool(known.summary) and known.is_summary_tainted) or any(is_tainted for _, is_tainted in turns),
    )


def surplus_of(session: str) -> Surplus | None:
    """The messages to remove before the next turn. Where a model summarises them, they are half of what may stay, so
    that it does not summarise at each turn.
    """
    known = Session.objects.filter(name=session).first()
    if known is None:
        return None
    turns = list(known.turns.filter(messages__isnull=False).values_list("number", "characters"))
    sizes = [characters for _, characters in turns]
    count = surplus(sizes, known.most_turns, known.most_characters)
    if not count:
        return None
    if known.overflow == Session.Overflow.DROP:
        return Surplus(through=turns[count - 1][0], text=None, is_tainted=False, revision=known.revision)
    count = surplus(sizes, known.most_turns // 2 or 1, known.most_characters // 2)
    going = known.turns.filter(messages__isnull=False, number__lte=turns[count - 1][0])
    before = [f"Summary so far: {known.summary}"] if known.summary else []
    text = "\n\n".join([*before, *(as_text(turn.messages or ()) for turn in going)])
    return Surplus(
        through=turns[count - 1][0],
        text=text[: known.most_characters],
        is_tainted=(bool(before) and known.is_summary_tainted) or any(turn.is_tainted for turn in going),
        revision=known.revision,
    )


def take_out(session: str, going: Surplus, summary: str | None) -> None:
    """Take the surplus out of what runs are given; with a summary, that is what is left of it. An edit or an erasure that came
    since then stands: the next turn looks again."""
    known = _locked(session)
    if known.revision != going.revision:
        return
    turns = known.turns.filter(messages__isnull=False, number__lte=going.through)
    turns.update(messages=None, characters=0, is_summarised=summary is not None)
    if summary is not None:
        known.summary = storable(summary, "the summary of a session")[:SUMMARY_LENGTH]
        known.is_summary_tainted = going.is_tainted
        known.save(update_fields=["summary", "is_summary_tainted"])


def append(session: str, messages: Sequence[dict[str, Any]], *, run_id: UUID, agent: str, is_tainted: bool) -> int:
    """Write a turn; return its number."""
    known = _locked(session)
    known.last_number += 1
    known.save(update_fields=["last_number"])
    stored = storable(list(messages), "the turn of a session")
    SessionTurn.objects.create(
        session=known,
        number=known.last_number,
        run_id=run_id,
        agent=agent,
        messages=stored,
        characters=len(json.dumps(stored, ensure_ascii=False)),
        is_tainted=is_tainted,
    )
    return known.last_number


def _locked(session: str) -> Session:
    Session.objects.get_or_create(name=session)
    return Session.objects.select_for_update(no_key=True).get(name=session)
