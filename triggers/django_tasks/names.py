"""What enqueuing processes, the dispatcher and workers call a task. No model is imported: the first of them have no app of Wakeful's."""

TYPE = "django.task"
SOURCE = "emit"
AGENT = "django-task"
INPUT = {name: f"event.data.{name}" for name in ("queue", "priority", "run_after")}
EFFECTS = ("at_most_once", "idempotent", "transactional")  # of a task, as of a step; the first is the default
