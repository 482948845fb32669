"""Events, triggers and schedules: what wakes agents. The life of an event, in reading order:

- `sources`: where events come from; each ends in `accept`, which records an event once
- `emit`: a project records an event in its own transaction, with none of Wakeful's settings
- `django_tasks`: Django's tasks as events, and the agent that calls them; `agents` registers it
- `matching`: which triggers an event matches; `dispatch`: admits matches, which become runs, or decisions with a reason
- `outbound`: events leave to subscriptions; `switches`: an event is recorded when another one is absent
- `reports`: the outcome of a run goes to people, subscriptions, and on as an event
- `replays`: recorded events are dispatched again
- `schedules`: when triggers fire by the clock; `beat` is Celery Beat's scheduler
- `upcoming`: what wakes next; `overnight`: what woke; `events`: recorded events, for runs and agents
- `declarations`: triggers that the code declares; `transfer`: triggers as a file
- `retention`, `api`, `tasks`, `management`: for operators and API clients; `wiring`: what runs need of this room
- `models`, `exceptions`, `dispatch_lock`: used by all of them
"""
