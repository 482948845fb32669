"""Django's tasks (`django.tasks`, from Django 6.0 on) as runs: `TASKS = {"default": {"BACKEND": "wakeful.TaskBackend"}}`.

`backend` records a task that is enqueued as an event, in the transaction of its caller, and `results` reads what became of it: both in any
process of the project, which needs no app of Wakeful's. `terms` gives the run its queue, priority and start; `agent` calls the function,
in a worker.
"""
