"""Which prompt agents there are. Every process looks from time to time (`refresh`), so a new or edited one needs no restart.

A run begins with the newest version that its process knows, and ends with that version: `begun` finds it again.
"""

import time
from collections.abc import Mapping, Sequence

import structlog

from agents import registry
from agents.agent import Agent
from agents.exceptions import Permanent
from agents.prompt_agents.body import agent_of
from agents.prompt_agents.definition import PREFIX, Definition

log = structlog.get_logger(__name__)

CHANNEL = "wakeful_agents"  # of the NOTIFY of an edit
# SQL: a text that changes with the prompt agents and their newest versions; null: there are none.
NEWEST = """(SELECT md5(string_agg(made.name || ' ' || version.fingerprint, ' ' ORDER BY made.name))
  FROM agents_promptagent made JOIN agents_promptagentversion version ON version.agent_id = made.id AND version.number = made.newest
  WHERE made.deleted_at IS NULL)"""
LOOKS_APART = 1.0  # seconds
KEPT = 500  # versions that this process has at hand

Key = tuple[str, str]  # name and version
# Replaced, never changed: the threads of a process share it, and a lock might be held at the moment of a fork.
_kept: Mapping[Key, Agent] = {}
_looked_at = float("-inf")
_unreadable: set[Key] = set()  # those that the log names already


def refresh(*, at_once: bool = False) -> None:
    """Let the registry know the prompt agents of the database, unless this process has looked within the last second."""
    global _looked_at
    if not at_once and time.monotonic() - _looked_at < LOOKS_APART:
        return
    newest = _newest()
    known = {**_kept, **_read([key for key in newest if key not in _kept])}
    made = {key: known[key] for key in newest if key in known}
    _keep(made)
    registry.know_prompt_agents({name: agent for (name, _), agent in made.items()})
    _looked_at = time.monotonic()


def begun(name: str, version: str) -> Agent:
    """The agent for a run that began with this version. A prompt agent's run keeps its version; others have the code of this
    process. KeyError: it has none. Permanent: the version is gone."""
    if not version.startswith(PREFIX):
        return registry.get(name)
    key = (name, version)
    if (known := _kept.get(key)) is not None:
        return known
    if not (found := _read([key])):
        raise Permanent(
            f"the version {version} of prompt agent {name!r}, with which this run began, does not exist or cannot be read"
        )
    _keep(found)
    return found[key]


def _newest() -> list[Key]:
    from django.db.models import F

    from agents.models import PromptAgentVersion

    rows = PromptAgentVersion.objects.filter(agent__deleted_at=None, number=F("agent__newest"))
    return list(rows.order_by().values_list("agent__name", "fingerprint"))


def _read(keys: Sequence[Key]) -> dict[Key, Agent]:
    from agents.models import PromptAgentVersion

    if not keys:
        return {}
    wanted, found = set(keys), dict[Key, Agent]()
    rows = PromptAgentVersion.objects.filter(
        agent__name__in={name for name, _ in keys}, fingerprint__in={version for _, version in keys}
    ).values_list("agent__name", "fingerprint", "definition")
    for name, version, definition in rows:
        if (name, version) not in wanted:
            continue
        try:
            found[name, version] = agent_of(name, Definition.load(definition), version)
        except Exception:
            # SQL or another version wrote it. It must not keep this process from the other agents.
            if (name, version) not in _unreadable:
                log.exception("prompt_agent.unreadable", agent=name, version=version)
            _unreadable.add((name, version))
    return found


def _keep(agents: Mapping[Key, Agent]) -> None:
    global _kept
    others = [(key, agent) for key, agent in _kept.items() if key not in agents]
    _kept = dict([*others, *agents.items()][-KEPT:])
