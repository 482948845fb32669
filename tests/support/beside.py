"""An ordinary Django project with its own Celery worker and Beat, beside a Wakeful stack: on its PostgreSQL and Redis database, with
the defaults of Celery and of django-celery-beat."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.support.stack import Stack

DONE = "shop:done"  # a list in Redis: what its worker has executed
FILES: Mapping[str, str] = {
    "shop/__init__.py": "from shop.celery import app\n",
    "shop/settings.py": """
import os, urllib.parse
SECRET_KEY = "of-the-shop"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_beat", "billing"]
url = urllib.parse.urlsplit(os.environ["SHOP_DATABASE"])
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": url.path.strip("/"), "USER": url.username, "PASSWORD": url.password or "",
    "HOST": url.hostname or dict(urllib.parse.parse_qsl(url.query)).get("host", ""), "PORT": str(url.port or ""),
    "OPTIONS": {k: v for k, v in urllib.parse.parse_qsl(url.query) if k != "host"}}}
CELERY_BROKER_URL = os.environ["SHOP_REDIS"]
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
CELERY_BEAT_SYNC_EVERY = 1  # it writes down its fires at once, not after three minutes
""",
    "shop/celery.py": """
import os
from celery import Celery
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
""",
    "billing/__init__.py": "",
    "billing/tasks.py": f"""
import os, redis
from celery import shared_task

@shared_task(name="billing.tasks.charge")
def charge(what):
    with redis.Redis.from_url(os.environ["SHOP_REDIS"]) as client:
        client.rpush("{DONE}", what)
""",
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
}
SEND = """
from shop.celery import app
from billing.tasks import charge
for number in range({count}):
    charge.delay(str(number))
"""


class Shop:
    """The project. `done` counts what its worker has executed, by the argument."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = folder
        self.stack = stack
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.env = {
            **kept,
            "SHOP_DATABASE": stack.database_url,
            "SHOP_REDIS": stack.redis_url,
            "PYTHONPATH": str(folder),
        }

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def send(self, count: int) -> None:
        """Send so many tasks to its own queue, with Celery's own name."""
        self.python("-c", SEND.format(count=count))

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """`celery worker` or `celery beat` of the project."""
        name = command[0]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "shop", *command],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def done(self) -> Counter[str]:
        with redis.Redis.from_url(self.stack.redis_url) as client:
            found: list[bytes] = client.lrange(DONE, 0, -1)
        return Counter(one.decode() for one in found)
