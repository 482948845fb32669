import os
import time
from pathlib import Path

from django.db import connection
from django.tasks import task


@task
def send(letter: str, folder: str) -> int:
    """Writes a file, which no rollback undoes, and a row, as tasks do that call something outside."""
    with Path(folder, letter).open("a") as file:
        file.write(f"{os.getpid()}\n")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES (%s)", [letter])
    return len(letter)


@task
def hang(folder: str) -> None:
    Path(folder, "hangs").touch()
    time.sleep(600)


@task(backend="exact")
def book(name: str, folder: str) -> str:
    """Fails at its first attempt, after its write."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES (%s)", [name])
    if not Path(folder, "tried").exists():
        Path(folder, "tried").touch()
        raise LookupError("the shelf is being moved")
    return name


@task(backend="exact")
def hang_once(name: str, folder: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES (%s)", [name])
    if not Path(folder, "hung").exists():
        Path(folder, "hung").touch()
        time.sleep(600)
    return name
