import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("wakeful")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# By name: it needs models, which are not loaded yet.
app.steps["worker"].add("runs.worker.parent:Parent")
