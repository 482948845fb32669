"""An agent that a message of Slack wakes, and that asks for a decision."""

from agents import AgentRun, agent, on
from runs.failpoints import failpoint


@agent("butler", durable=True, triggers=[on.webhook("slack", "app_mention")], retries=3)
def butler(run: AgentRun) -> str:
    answer = run.ask_approval("Refund it?", arguments={"amount": 30}, expires="1h")
    failpoint("butler_has_got_a_decision")
    return str(run.step("pay", lambda: answer.decision))
