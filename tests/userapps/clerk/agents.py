"""An LLM agent that answers mail: it looks invoices up, and refunds what a person approves."""

from typing import Any

from pydantic_ai import Agent as LlmAgent

from agents import AgentRun, agent, on

billing = LlmAgent("openai-chat:gpt-4o", name="billing", instructions="You are a billing clerk.")


@billing.tool_plain(metadata={"effect": "read", "trusted": True})
def look_up(invoice: str) -> dict[str, Any]:
    """Look up an invoice by its number."""
    return {"invoice": invoice, "cents": 12900}


@billing.tool_plain(metadata={"effect": "at_most_once", "dangerous": True})
def refund(invoice: str, cents: int) -> str:
    """Refund an invoice, or a part of it."""
    return f"refunded {cents} of {invoice}"


@agent("answer-mail", durable=True, triggers=[on.event("mail.received")], retries=3)
def answer_mail(run: AgentRun) -> str:
    data = run.event.data
    run.step("note", lambda: data["from"])
    return str(run.llm(billing, data["ask"], untrusted=data["text"]).output)
