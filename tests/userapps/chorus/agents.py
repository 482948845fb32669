"""Two agents that share a conversation: each turn is two requests to a model, with a tool between them."""

from pydantic_ai import Agent as LlmAgent

from agents import AgentRun, agent, on

llm = LlmAgent("openai-chat:gpt-4o", name="voice", defer_model_check=True)


@llm.tool_plain(metadata={"effect": "read", "trusted": True})
def look_up(number: int) -> str:
    return f"line {number}"


def sing(run: AgentRun) -> str:
    return str(run.llm(llm, run.event.data["prompt"], session="choir").output)


@agent("alto", durable=True, triggers=[on.event("alto.sings")], retries=50, pause_after=0)
def alto(run: AgentRun) -> str:
    return sing(run)


@agent("tenor", durable=True, triggers=[on.event("tenor.sings")], retries=50, pause_after=0)
def tenor(run: AgentRun) -> str:
    return sing(run)
