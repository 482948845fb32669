"""The checkpoints of a graph as steps of a journal: each commits behind the run's fence. What LangGraph reads comes from memory, which is
made again from the journal. So checkpoints are kept, forked, erased and removed with the journal of their run."""

import asyncio
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from agents.exceptions import Permanent
from agents.graphs.values import loaded, stored
from agents.journal.concurrent import in_main_thread
from agents.journal.engine import Journal
from agents.journal.keys import outside_of_nodes
from agents.journal.protocol import Place, StepRequest

VERSION = 1
COMES_WITHIN = 10.0  # seconds from the beginning of a node to LangGraph's call with the checkpoint that it began from
UNFINISHED = frozenset({ERROR, INTERRUPT, RESUME, SCHEDULED})  # what a task has written that has not ended


class JournalSaver(InMemorySaver):
    """`place` is the key of the call whose checkpoints these are. The thread `own` has no name in the journal: a fork has another."""

    def __init__(self, journal: Journal, place: str, own: str = "") -> None:
        super().__init__()
        self._journal = journal
        self._place = place
        self._own = own
        self._number = 0
        self._is_closed = False
        self._came: set[str] = set()  # ids of the checkpoints that are recorded, or are about to be
        self._kept: set[str] = set()  # ids of those that are recorded
        self._failure: BaseException | None = None
        self._lock = threading.RLock()
        self._is_recorded = threading.Condition(self._lock)
        if journal.store.is_binding:  # a shadow run begins its graph at the start
            self._read()

    def _read(self) -> None:
        steps = self._journal.store.steps
        while step := steps.get(f"{self._place}:{self._number + 1}"):
            if step.status != "done":
                return
            if step.output is None:
                raise Permanent(f"a checkpoint of {self._place!r} has been erased from the journal, so it cannot go on")
            self._number += 1
            self._apply(step.output)

    def _record(self, what: Mapping[str, Any]) -> None:
        """Commit it as a step, then apply it as a replay will."""
        with self._lock:
            if self._failure:
                raise self._failure  # LangGraph goes on to record that it failed
            place = Place(name=self._place, key=str(self._number + 1))
            try:
                with outside_of_nodes():
                    begun = self._journal.begin(StepRequest(place=place))
                done = (
                    begun.output if begun.is_recorded else self._journal.perform(begun, lambda: {"v": VERSION, **what})
                )
            except BaseException as error:
                self._failure = error
                raise
            self._number += 1
            self._apply(done)
            self._is_recorded.notify_all()

    def _apply(self, kept: Mapping[str, Any]) -> None:
        if kept["v"] != VERSION:
            raise Permanent(
                f"a checkpoint of {self._place!r} has format {kept['v']}: a newer version of Wakeful wrote it"
            )
        act: Callable[..., None] = getattr(self, f"_{kept['do']}")
        act(**{name: value for name, value in kept.items() if name not in ("v", "do")})

    def _named(self, thread: str) -> str:
        return "" if thread == self._own else thread

    def _thread(self, named: str) -> str:
        return named or self._own

    # Checkpoints

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._came.add(checkpoint["id"])
        where: dict[str, Any] = config["configurable"]
        rest: dict[str, Any] = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        values = checkpoint["channel_values"]
        self._record(
            {
                "do": "put",
                "thread": self._named(where["thread_id"]),
                "ns": where.get("checkpoint_ns", ""),
                "id": checkpoint["id"],
                "parent": where.get("checkpoint_id"),
                "checkpoint": stored(rest, self.serde),
                "metadata": stored(get_checkpoint_metadata(config, metadata), self.serde),
                "values": [
                    [name, version, stored(values[name], self.serde) if name in values else None]
                    for name, version in new_versions.items()
                ],
            }
        )
        place = {"thread_id": where["thread_id"], "checkpoint_ns": where.get("checkpoint_ns", "")}
        return {"configurable": {**place, "checkpoint_id": checkpoint["id"]}}

    def _put(
        self, thread: str, ns: str, id: str, parent: str | None, checkpoint: Any, metadata: Any, values: Any
    ) -> None:
        thread = self._thread(thread)
        for name, version, kept in values:
            self.blobs[thread, ns, name, version] = ("empty", b"") if kept is None else self._typed(kept)
        self.storage[thread][ns][id] = (self._typed(checkpoint), self._typed(metadata), parent)
        self._kept.add(id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        where: dict[str, Any] = config["configurable"]
        self._record(
            {
                "do": "write",
                "thread": self._named(where["thread_id"]),
                "ns": where.get("checkpoint_ns", ""),
                "id": where["checkpoint_id"],
                "task": task_id,
                "path": task_path,
                "writes": [[channel, stored(value, self.serde)] for channel, value in writes],
            }
        )

    def _write(self, thread: str, ns: str, id: str, task: str, path: str, writes: Any) -> None:
        of_checkpoint = self.writes[self._thread(thread), ns, id]
        for number, (channel, kept) in enumerate(writes):
            place = task, WRITES_IDX_MAP.get(channel, number)
            if place[1] < 0 or place not in of_checkpoint:
                of_checkpoint[place] = (task, channel, self._typed(kept), path)

    def _typed(self, kept: Any) -> tuple[str, bytes]:
        """As memory has it."""
        if "base64" in kept:
            return kept["type"], b64decode(kept["base64"])
        typed: tuple[str, bytes] = self.serde.dumps_typed(loaded(kept, self.serde))
        return typed

    def answers_before(self, interrupt: str) -> int | None:
        """How many interrupts of the same node, which have the same id, were answered before this one; None: so was this one."""
        most = 0
        for writes in self.writes.values():
            kept = [(task, channel, value) for task, channel, value, _ in writes.values()]
            asks = {task for task, channel, value in kept if channel == INTERRUPT and self._is_in(interrupt, value)}
            if any(task in asks and channel not in UNFINISHED for task, channel, _ in kept):
                return None
            given = [
                self.serde.loads_typed(value) for task, channel, value in kept if channel == RESUME and task in asks
            ]
            most = max([most, *(len(one) if isinstance(one, list) else 1 for one in given)])
        return most

    def _is_in(self, interrupt: str, value: tuple[str, bytes]) -> bool:
        found = self.serde.loads_typed(value)
        return any(one.id == interrupt for one in (found if isinstance(found, list | tuple) else [found]))

    def wait_for(self, checkpoints: Mapping[str, str]) -> None:
        """Wait until these checkpoints (their ids, by namespaces) are recorded: LangGraph begins the first nodes beside that. Permanent:
        one of them is not going to be."""
        began = time.monotonic()
        with self._is_recorded:
            while missing := self._missing(checkpoints):
                self._require_coming(missing, time.monotonic() - began)
                self._is_recorded.wait(0.2)

    async def wait_for_async(self, checkpoints: Mapping[str, str]) -> None:
        """The same, on the event loop that writes them."""
        began = time.monotonic()
        while missing := self._missing(checkpoints):
            self._require_coming(missing, time.monotonic() - began)
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """The graph has ended: no further checkpoint comes."""
        self._is_closed = True

    def _require_coming(self, missing: Mapping[str, str], waited: float) -> None:
        if self._journal.end:
            raise self._journal.end
        if unknown := [ns for ns, id in missing.items() if id not in self._came and waited > COMES_WITHIN]:
            raise Permanent(
                f"the checkpoints of the subgraph {unknown[0]!r} are not recorded, so its requests could not be known again after a "
                "crash: compile it without checkpointer=False"
            )
        if self._is_closed:
            raise Permanent(f"{self._place!r} ended before the checkpoint of its node was recorded")

    def _missing(self, checkpoints: Mapping[str, str]) -> dict[str, str]:
        # By their ids alone: a task that a node calls names the node's own namespace, and the checkpoint of the graph around it.
        return {ns: id for ns, id in checkpoints.items() if id not in self._kept}

    # Threads

    def delete_thread(self, thread_id: str) -> None:
        self._record({"do": "forget", "thread": self._named(thread_id)})

    def _forget(self, thread: str) -> None:
        super().delete_thread(self._thread(thread))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._record({"do": "forget_runs", "runs": list(run_ids)})

    def _forget_runs(self, runs: Sequence[str]) -> None:
        for thread, ns, id in self._all():
            metadata = self.serde.loads_typed(self.storage[thread][ns][id][1])
            if metadata.get("run_id") in runs:
                self._drop(thread, ns, id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._record({"do": "copy", "source": self._named(source_thread_id), "to": self._named(target_thread_id)})

    def _copy(self, source: str, to: str) -> None:
        source, to = self._thread(source), self._thread(to)
        for ns, checkpoints in list(self.storage[source].items()):
            self.storage[to][ns].update(checkpoints)
        for (thread, ns, id), writes in list(self.writes.items()):
            if thread == source:
                self.writes[to, ns, id] = dict(writes)
        for (thread, ns, channel, version), kept in list(self.blobs.items()):
            if thread == source:
                self.blobs[to, ns, channel, version] = kept

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"prune: strategy {strategy!r} is not keep_latest or delete")
        self._record({"do": "thin", "threads": [self._named(thread) for thread in thread_ids], "strategy": strategy})

    def _thin(self, threads: Sequence[str], strategy: str) -> None:
        for named in threads:
            thread = self._thread(named)
            if strategy == "delete":
                super().delete_thread(thread)
                continue
            for ns, checkpoints in list(self.storage[thread].items()):
                for id in sorted(checkpoints)[:-1]:
                    self._drop(thread, ns, id)

    def _all(self) -> list[tuple[str, str, str]]:
        return [
            (thread, ns, id)
            for thread, of_thread in self.storage.items()
            for ns, checkpoints in of_thread.items()
            for id in checkpoints
        ]

    def _drop(self, thread: str, ns: str, id: str) -> None:
        self.storage[thread][ns].pop(id, None)
        self.writes.pop((thread, ns, id), None)

    # From coroutines: the journal belongs to the main thread

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._came.add(checkpoint["id"])
        return await in_main_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await in_main_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await in_main_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await in_main_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await in_main_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await in_main_thread(self.prune, thread_ids, strategy=strategy)
