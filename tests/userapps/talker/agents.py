"""An LLM agent that asks the model its prompt's event names; the model is that of the settings."""

from pydantic_ai import Agent

from agents import AgentRun, agent, on

llm = Agent(name="talker")


@agent("talker", durable=True, triggers=[on.event("talk")], retries=0)
def talker(run: AgentRun) -> str:
    return str(run.llm(llm, run.event.data["prompt"]).output)
