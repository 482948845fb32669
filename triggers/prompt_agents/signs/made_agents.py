"""Prompt agents whose name the code has taken, or whose tools or connections are gone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents import registry
from agents.tools import toolbox
from runs.sign import BAD, NAMED, Problem, Sign

SQL = """
SELECT agent.name, agent.deleted_at IS NOT NULL AS is_deleted,
  CASE jsonb_typeof(version.definition->'tools') WHEN 'array' THEN version.definition->'tools' ELSE '[]' END AS tools,
  ARRAY(
    SELECT DISTINCT named.value
    FROM jsonb_each_text(CASE jsonb_typeof(version.definition->'connections')
      WHEN 'object' THEN version.definition->'connections' ELSE '{}' END) named
    WHERE NOT EXISTS (SELECT FROM runs_connection connection
      WHERE connection.name = named.value AND connection.owner IN ('', version.definition->>'acts_for'))
    ORDER BY named.value
  ) AS lost
FROM agents_promptagent agent JOIN agents_promptagentversion version
  ON version.agent_id = agent.id AND version.number = agent.newest
ORDER BY agent.name
"""


@dataclass(frozen=True, kw_only=True)
class MadeAgent:
    """A prompt agent, with the tools that its newest version names, and those of its connections that it has lost."""

    name: str
    is_deleted: bool
    tools: list[str]
    lost: list[str]


def problems(rows: Sequence[MadeAgent]) -> Iterator[Problem]:
    in_code = {agent.name for agent in registry.agents_in_code()}
    tools = toolbox.names()
    for one in rows:
        if one.is_deleted:
            continue
        if one.name in in_code:
            yield Problem(
                name=f"prompt-agent-name:{one.name}",
                severity=BAD,
                text=f"The code has an agent {one.name!r}, so the prompt agent of this name starts no more runs: its triggers wake "
                "the agent in code.",
                remedy="Rename the agent in code, or delete the prompt agent, which disables its triggers, and run "
                "`manage.py sync_agents`.",
            )
        if gone := [tool for tool in one.tools if tool not in tools]:
            yield Problem(
                name=f"prompt-agent-tools:{one.name}",
                severity=BAD,
                text=f"Prompt agent {one.name!r} names tools that are not registered: {', '.join(gone[:NAMED])}. Its runs fail.",
                remedy="Remove them from its tools, or install the app that registers them (WAKEFUL_APPS).",
            )
        if one.lost:
            yield Problem(
                name=f"prompt-agent-connections:{one.name}",
                severity=BAD,
                text=f"Prompt agent {one.name!r} acts by connections that are gone, or belong to another person now: "
                f"{', '.join(one.lost[:NAMED])}. Its tools fail.",
                remedy="Edit it, and choose other connections, or create them again.",
            )


MADE_AGENTS = Sign(
    name="prompt_agents",
    sql=SQL,
    row=MadeAgent,
    problems=problems,
    kinds=("prompt-agent-name", "prompt-agent-tools", "prompt-agent-connections"),
    limit=None,
)
