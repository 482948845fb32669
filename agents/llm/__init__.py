"""LLM agents: `run.llm(agent, prompt)` runs an ordinary `pydantic_ai.Agent` inside a durable run.

Reading order:
- `call`: one call of `run.llm`, from the prompt to the result.
- `durability`: each model request becomes a step of the run's journal.
- `door`: each call of a tool passes it. `tool_steps` makes it a step, `approvals` requests a person's approval,
  `danger` decides when.
- `outputs`, `delegates`: output functions, and agents as tools of others.
- `turn`: a call as a turn in a named session.
- `prompts`: the content of each request, kept with its step for the transcript.
- `models`: which model serves an agent, by its own choice or by WAKEFUL_MODEL. `builtin` is the model of the demo.
- `tools`: what the metadata of a tool declares: effect, dangerous, trusted.
- `fences`: how untrusted data is marked in a prompt.
- `failures`: which errors of a provider are transient, and when to retry.
"""
