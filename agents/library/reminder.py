from typing import Any

from agents import AgentRun, Permanent, agent


@agent("reminder")
def reminder(run: AgentRun) -> dict[str, Any]:
    """Tells a person something, at the time of the schedule an operator makes for it: input `text`, or the schedule's name."""
    given = run.input if isinstance(run.input, dict) else {}
    text = given.get("text") or given.get("schedule")
    if not text:
        raise Permanent(
            'it does not say what of: give the trigger an input such as {"text": "\'Renew the certificate\'"}'
        )
    run.notify(f"Reminder: {text}")
    return {"reminded": text}
