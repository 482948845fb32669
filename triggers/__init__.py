"""What may wake an agent, and the decision that it does. The life of an event, in reading order:

- `sources`: the ways in; each ends in `accept`, which records an event once
- `dispatch`: events are matched, admitted and become runs, or decisions with a reason
- `schedules`: when triggers fire by the clock; `beat` is Celery Beat's scheduler
- `upcoming`: what wakes next; `events`: recorded events, as runs and agents ask for them
- `declarations`: triggers that the code declares; `transfer`: a system's triggers as a file
- `retention`, `api`, `tokens`, `tasks`, `management`: what operators and callers use
- `models`, `exceptions`: what all stands on
"""
