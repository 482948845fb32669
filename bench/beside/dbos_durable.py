"""Durable workflows of DBOS Transact, by its public API and as its documentation sets it up; commands from standard input."""

import os
import threading
import time
from uuid import uuid4

import sqlalchemy
from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

from bench.ground.pace import serve

DATABASE = os.environ["BENCH_DATABASE"]
QUEUE = "resumed"
PAUSE = 0.02  # seconds, after which a workflow that is about to wait does so
PATIENCE = 120.0

DBOS(config={"name": "bench", "system_database_url": DATABASE, "application_version": "1", "log_level": "CRITICAL"})
source = SQLAlchemyDatasource.create(DATABASE)
marks: list[float] = []
reached, going = threading.Event(), threading.Event()


@DBOS.step()
def nothing(number: int) -> None:
    pass


# Its default is SERIALIZABLE; ours is READ COMMITTED.
@source.transaction(isolation_level="READ COMMITTED")
def insert(number: int) -> None:
    source.sql_session().execute(sqlalchemy.text("INSERT INTO bench_row (number) VALUES (:number)"), {"number": number})


@DBOS.workflow()
def stepping(count: int, inserts: bool) -> float:
    body = insert if inserts else nothing
    began = time.perf_counter()
    for number in range(count):
        body(number)
    return time.perf_counter() - began


@DBOS.workflow()
def resumed(count: int) -> None:
    began = time.perf_counter()
    for number in range(count):
        nothing(number)
    marks.append(time.perf_counter() - began)
    reached.set()
    going.wait()
    nothing(count)  # where it finds that it has been cancelled


@DBOS.workflow()
def sleeping(count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        DBOS.sleep(1e-6)
    return time.perf_counter() - began


@DBOS.workflow()
def receiving(count: int) -> None:
    receive(count)


@DBOS.workflow()
def late_receiving(count: int) -> float:
    """Once all messages are there."""
    going.wait()
    return receive(count)


def receive(count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        reached.set()
        assert DBOS.recv(timeout_seconds=60) == number
        marks.append(time.perf_counter())
    return time.perf_counter() - began


def steps(count: int, inserts: bool) -> float:
    return float(stepping(count, inserts)) / count


def resumes(count: int, times: int) -> list[float]:
    """Seconds of each resume of a workflow with so many steps in its journal: from its first line to the end of the
    journal. What comes before that line, the queue's poll among it, is not counted."""
    reached.clear()
    going.clear()
    with SetWorkflowID(id := str(uuid4())):
        DBOS.start_workflow(resumed, count)
    for _ in range(times):
        stop(id)
        DBOS.resume_workflow(id, queue_name=QUEUE)
    stop(id)
    seconds = marks[1:]
    marks.clear()
    assert len(seconds) == times, seconds
    return seconds


def stop(id: str) -> None:
    """Cancel it once it has come to the end of its journal."""
    assert reached.wait(PATIENCE)
    reached.clear()
    DBOS.cancel_workflow(id)
    going.set()
    time.sleep(0.05)
    going.clear()


def sleeps(count: int) -> float:
    """Seconds per sleep of a microsecond."""
    return float(sleeping(count)) / count


def early(count: int) -> float:
    """Seconds per message that is there already: its sending and its receiving."""
    going.clear()
    with SetWorkflowID(id := str(uuid4())):
        waiting = DBOS.start_workflow(late_receiving, count)
    began = time.perf_counter()
    for number in range(count):
        DBOS.send(id, number)
    sending = time.perf_counter() - began
    going.set()
    received = float(waiting.get_result())
    marks.clear()
    return (sending + received) / count


def late(count: int) -> list[float]:
    """Seconds from before a message is sent to the line after the wait for it."""
    reached.clear()
    with SetWorkflowID(id := str(uuid4())):
        waiting = DBOS.start_workflow(receiving, count)
    sent = []
    for number in range(count):
        assert reached.wait(PATIENCE)
        reached.clear()
        time.sleep(PAUSE)
        sent.append(time.perf_counter())
        DBOS.send(id, number)
    waiting.get_result()
    seconds = [seen - sent_at for seen, sent_at in zip(marks, sent, strict=True)]
    marks.clear()
    return seconds


if __name__ == "__main__":
    with source.engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("CREATE TABLE IF NOT EXISTS bench_row (id bigserial PRIMARY KEY, number int NOT NULL)")
        )
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.05)
    serve({"steps": steps, "resumes": resumes, "short_sleeps": sleeps, "sleeps": sleeps, "early": early, "late": late})
