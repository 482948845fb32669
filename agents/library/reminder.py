from typing import Any

from agents import AgentRun, Permanent, agent


@agent("reminder")
def reminder(run: AgentRun) -> dict[str, Any]:
    """Notifies a person: with the text of a reminder, the input `text` of its trigger, or the name of its schedule."""
    given = run.input if isinstance(run.input, dict) else {}
    data = given.get("data")
    told = data.get("text") if isinstance(data, dict) else None
    text = given.get("text") or told or given.get("schedule")
    if not text:
        raise Permanent(
            'the reminder has no text: give the trigger an input such as {"text": "\'Renew the certificate\'"}'
        )
    run.notify(f"Reminder: {text}")
    return {"reminded": text}
