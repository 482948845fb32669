"""Watches a deploy until it answers well, and schedules itself meanwhile. It is woken by

    manage.py emit deploy.started --data '{"service": "shop", "url": "https://shop.example.com/health", "expect": "v1.4"}'

The host must be in WAKEFUL_HTTP_ALLOW. It is silent about a deploy that goes well: that is the event `deploy.healthy`.
"""

from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync

from agents import AgentRun, Permanent, agent, on
from agents.kernel.durations import in_words

EVERY = "30s"
IN_A_ROW = 3  # good answers that end the watch
MINUTES = 15  # how long a deploy may answer badly before it is reported, unless the event sets another time
LONGEST = 24 * 60


@agent("deploy-watcher", durable=True, triggers=[on.event("deploy.started")], key="event.data.service", retries=1)
def deploy_watcher(run: AgentRun) -> Any:
    """Looks at a new deploy every 30 seconds: silent once it answers well, loud if it does not in time."""
    deploy = read(run.event.data)
    service, began = deploy["service"], datetime.fromisoformat(deploy.get("began") or run.event.time.isoformat())
    if run.state.get(service, "") > began.isoformat():
        return {"service": service, "ended": "a newer deploy is watched"}
    run.state.set(service, began.isoformat())

    fault = run.step("look", look, deploy["url"], deploy["expect"], effect="read")
    good = 0 if fault else deploy.get("good", 0) + 1
    waited = run.now() - began
    if good >= IN_A_ROW:
        run.emit("deploy.healthy", {"service": service, "seconds": round(waited.total_seconds())})
        return {"service": service, "ended": "it answers well"}
    if waited > timedelta(minutes=deploy["minutes"]):
        run.notify(
            f"The deploy of {service} does not answer well after {in_words(waited)}: {fault or 'only at times'}.",
            urgency="high",
            topic=f"deploy:{service}:{began.isoformat()}",
        )
        return {"service": service, "ended": fault or "it answers well only at times"}
    run.wake_in(EVERY, {"began": began.isoformat(), "good": good}, reason=f"the deploy of {service} is not done")
    return {"service": service, "good": good, "fault": fault}


def read(data: Any) -> dict[str, Any]:
    """Permanent: it is no deploy."""
    given = data if isinstance(data, dict) else {}
    minutes = given.get("minutes", MINUTES)
    texts = [given.get(name, "") for name in ("service", "url", "expect")]
    if not all(isinstance(text, str) for text in texts) or not (texts[0] and texts[1]) or len(texts[0]) > 100:
        raise Permanent('not a deploy: send "service" and "url" as texts, and "expect", a text that the answer has')
    if not isinstance(minutes, int) or not 1 <= minutes <= LONGEST:
        raise Permanent(f'"minutes" must be a whole number from 1 to {LONGEST}')
    return {"expect": "", **given, "minutes": minutes}


def look(url: str, expect: str) -> str:
    """The fault of the answer; empty if there is none. It does not quote the answer, which is untrusted text."""
    from agents.guards.addresses import Refused
    from agents.tools.http import allowed_by_settings, answer_of

    try:
        answer = async_to_sync(answer_of)(allowed_by_settings(), url)
    except Refused as refused:
        raise Permanent(f"WAKEFUL_HTTP_ALLOW: {refused}") from None
    if "error" in answer:
        return "no answer"
    if not 200 <= answer["status"] < 300:
        return f"status {answer['status']}"
    return "" if expect in answer["body"] else "another answer than expected"
