"""The requests to a model as steps of the journal.

- `durability`: pydantic-ai's extension point, for one call of `run.llm`. `step_backend` makes each request a step.
- `prompts`, `answers`: what a step keeps of a request and of its answer. `resolution`: what it keeps where a person gives the answer.
- `secrets`: takes secrets out of a request.
"""
