"""LLM agents: `run.llm(agent, prompt)` runs an ordinary `pydantic_ai.Agent` inside a durable run.

What the author of an agent declares:
- `tools`: what the metadata of a tool declares: effect, dangerous, trusted.
- `outputs`, `delegates`: output functions, and agents as tools of others.

What happens in a call, in reading order:
- `call`: one call of `run.llm`, from the prompt to the result. `context`: what it is given. `opening`: its entry in the journal, and
  which of its words are its author's. `turn`: a call as a turn in a named session.
- `requests`: each request to the model becomes a step of the run's journal.
- `door`: each call of a tool passes it: tool cap, taint, approval, effect, step.
- `strangers`: how untrusted data is marked in a prompt, and which addresses it may bring into a call.
- `costs`: what a request may cost and did cost.
- `providers`: which model serves an agent, and which of its failures pass.
"""
