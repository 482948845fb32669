import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Celery would run Django's checks at each start and drop what they say; they load the whole console.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

OUR_SCHEDULER = "triggers.beat:Scheduler"

app = Celery("wakeful")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# By name: it needs models, which are not loaded yet.
app.steps["worker"].add("runs.worker.parent:Parent")
