"""Agents of openai-agents in durable runs: `run.openai(agent, input)`. Needs the extra `openai-agents`, and the installed package: in a
tree, the import name of the SDK is taken.

    from agents import Agent as Assistant  # the SDK

    assistant = Assistant(name="Clerk", instructions="Answer the letter.")

    @agent("clerk", durable=True, triggers=[on.event("letter.came")])
    def clerk(run: AgentRun) -> str:
        return run.openai(assistant, run.event.data["text"]).final_output

- `call`: one call of `run.openai`, from its input to its result; it asks people about tools that need approval.
- `requests`: its requests to models, which are steps under the run's budgets and its taint. `lanes`: which recorded request a replay makes
  again. `messages`: a request and its answer as the journal keeps them. `costs`: what a request may cost.
- `refusals`: what would lead past the journal, the tool cap or the budgets.
- `sdk`: says what is not installed.

`agents.guards.openai_agents` brings the requests here, and refuses those outside of a call. `agents.guards.provider_loop` is the event loop
on which this process sends them.
"""
