"""An LLM agent with a tool: two model requests for each letter."""

from pydantic_ai import Agent as LlmAgent

from agents import AgentRun, agent, on

llm = LlmAgent("openai-chat:gpt-4o", name="clerk", defer_model_check=True, model_settings={"max_tokens": 40})


@llm.tool_plain(metadata={"effect": "read", "trusted": True})
def look_up(number: int) -> str:
    return f"letter {number}"


@agent("clerk", durable=True, triggers=[on.event("letter.came")], retries=50, pause_after=0)
def clerk(run: AgentRun) -> str:
    return str(run.llm(llm, run.event.data["prompt"]).output)
