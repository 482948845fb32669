"""A provider of models: a real HTTP server that speaks the OpenAI chat completions, the OpenAI responses and the Anthropic
messages wire formats, plain and streamed, and remembers every request.

    with providing() as wire:
        wire.script("sums", [Call("add", a=1, b=2), Call("add", a=3, b=4)], "10")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{wire.url}/v1")
        run.llm(Agent("openai-chat:gpt-4o", name="sums"), wire.prompt("sums", "first"))
        assert wire.asked("first") == {0: 1, 1: 1}

A prompt names its script and its conversation: `[script sums first]`. The next turn follows from how many answers of the
model stand behind that prompt in the request, so the same request gets the same answer. A `Turn` may begin with
faults, one for each request that comes for it.
"""

import json
import re
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol

from tests.support.answering import answering

MARK = re.compile(r"\[script ([\w.-]+) ([\w.:-]+)\]")


class Call:
    """The model calls a tool. Without an `id` it is given one by its place, the same for each request."""

    def __init__(self, name: str, /, *, id: str = "", **arguments: Any) -> None:
        self.name = name
        self.id = id
        self.arguments = arguments


Answer = str | Sequence[Call]


@dataclass(frozen=True)
class Status:
    """An error of HTTP; `retry_after` in seconds, as in the header."""

    code: int
    retry_after: object = None


@dataclass(frozen=True)
class Body:
    """200, and this as the whole body."""

    text: str


@dataclass(frozen=True)
class Slow:
    """The answer, after so many seconds."""

    seconds: float


class Held:
    """The answer, once `release` is called."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


@dataclass(frozen=True)
class Cut:
    """Half of the answer, and the connection is closed."""


@dataclass(frozen=True)
class Silent:
    """No answer: the connection is closed."""


Fault = Status | Body | Slow | Held | Cut | Silent
MALFORMED = Body('{"id": "answer-1", "choices": [')
WRONG_SCHEMA = Body('{"choices": "none", "output": "none", "content": "none"}')


@dataclass(frozen=True)
class Turn:
    """An answer of the model, behind one fault for each request that comes first."""

    answer: Answer
    faults: Sequence[Fault] = ()
    input_tokens: int = 100
    output_tokens: int = 20


End = Literal["", "answered", "failed", "left"]


@dataclass(eq=False)
class Request:
    """One request, as it came (names of headers in lower case), and how it ended. "left": its sender did not wait for the answer."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    script: str
    conversation: str
    turn: int
    at: float = field(default_factory=time.monotonic)
    end: End = ""
    ended_at: float = 0.0

    def ends(self, end: End) -> None:
        self.end, self.ended_at = end, time.monotonic()


class Wire:
    def __init__(self) -> None:
        self.scripts: dict[str, list[Turn]] = {}
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), _handler(self))

    # For tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """What brings the clients of all three formats here."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "wire-openai-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "wire-anthropic-key",
            "OLLAMA_BASE_URL": f"{self.url}/v1",
        }

    def script(self, name: str, *turns: Turn | Answer) -> None:
        self.scripts[name] = [turn if isinstance(turn, Turn) else Turn(turn) for turn in turns]

    def prompt(self, script: str, conversation: object, text: str = "") -> str:
        return f"[script {script} {conversation}] {text}"

    def of(self, conversation: object) -> list[Request]:
        with self.lock:
            return [request for request in self.requests if request.conversation == str(conversation)]

    def asked(self, conversation: object) -> dict[int, int]:
        """How many requests came for each turn."""
        return dict(sorted(Counter(request.turn for request in self.of(conversation)).items()))

    def paid(self, conversation: object) -> dict[int, int]:
        """How many of them were answered, and are on the bill."""
        answered = [request.turn for request in self.of(conversation) if request.end == "answered"]
        return dict(sorted(Counter(answered).items()))

    # For the server

    def take(self, format: "Format", path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> "Taken":
        script, conversation, number = _place(format.messages(body))
        request = Request(path, headers, body, script, conversation, number)
        with self.lock:
            earlier = sum((one.conversation, one.turn) == (conversation, number) for one in self.requests)
            self.requests.append(request)
        turns = self.scripts.get(script, [])
        if number >= len(turns):
            return Taken(request, None, Status(400))
        turn = turns[number]
        return Taken(request, turn, turn.faults[earlier] if earlier < len(turn.faults) else None)


@dataclass(frozen=True)
class Taken:
    request: Request
    turn: Turn | None
    fault: Fault | None


def _place(messages: Iterator[tuple[str, str]]) -> tuple[str, str, int]:
    """Script, conversation, and how many answers of the model stand behind the last prompt that names them."""
    script = conversation = ""
    answers = 0
    for role, text in messages:
        if role == "assistant":
            answers += 1
        elif found := MARK.search(text):
            script, conversation = found.groups()
            answers = 0
    return script, conversation, answers


# Wire formats


class Format(Protocol):
    def messages(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Role and text of each message; "assistant" once for each answer of the model."""

    def whole(self, turn: Turn, number: int, model: str) -> dict[str, Any]: ...
    def events(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, Any]]: ...


def _calls(turn: Turn, number: int) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call."""
    if isinstance(turn.answer, str):
        return []
    return [
        (call.id or f"call_{number}_{index}", call.name, json.dumps(call.arguments))
        for index, call in enumerate(turn.answer)
    ]


def _text(content: Any) -> str:
    if isinstance(content, str) or not content:
        return content or ""
    return "\n".join(part.get("text", "") for part in content if part.get("type") in ("text", "input_text"))


class Chat:
    def messages(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for message in body["messages"]:
            yield message["role"], _text(message.get("content")) if message["role"] == "user" else ""

    def whole(self, turn: Turn, number: int, model: str) -> dict[str, Any]:
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in _calls(turn, number)
        ]
        text = turn.answer if isinstance(turn.answer, str) else None
        message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return {**self._head(number, model, "chat.completion"), "choices": [choice], "usage": self._usage(turn)}

    def events(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, Any]]:
        head = self._head(number, model, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], reason: str | None = None) -> tuple[str, Any]:
            return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        yield chunk({"role": "assistant", "content": ""})
        for half in _halves(turn.answer):
            yield chunk({"content": half})
        calls = _calls(turn, number)
        for index, (id, name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
            for half in _halves(arguments):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
        yield chunk({}, "tool_calls" if calls else "stop")
        yield "", {**head, "choices": [], "usage": self._usage(turn)}
        yield "", "[DONE]"

    def _head(self, number: int, model: str, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{number}", "object": kind, "created": int(time.time()), "model": model}

    def _usage(self, turn: Turn) -> dict[str, int]:
        return {
            "prompt_tokens": turn.input_tokens,
            "completion_tokens": turn.output_tokens,
            "total_tokens": turn.input_tokens + turn.output_tokens,
        }


class Responses:
    def messages(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        given = body["input"]
        was_answer = False
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            # An answer is sent back as one item for each of its parts.
            is_answer = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
            if not is_answer:
                yield "user", _text(item.get("content"))
            elif not was_answer:
                yield "assistant", ""
            was_answer = is_answer

    def whole(self, turn: Turn, number: int, model: str) -> dict[str, Any]:
        return {
            **self._head(number, model, "completed"),
            "output": self._items(turn, number),
            "usage": self._usage(turn),
        }

    def events(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, Any]]:
        events = self._unnumbered(turn, number, model)
        for sequence, (kind, data) in enumerate(events):
            yield kind, {"type": kind, "sequence_number": sequence, **data}

    def _unnumbered(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.created", {"response": {**self._head(number, model, "in_progress"), "output": []}}
        for index, item in enumerate(self._items(turn, number)):
            at: dict[str, Any] = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                part = item["content"][0]
                yield "response.output_item.added", {"output_index": index, "item": {**item, "content": []}}
                yield "response.content_part.added", {**at, "content_index": 0, "part": {**part, "text": ""}}
                for half in _halves(part["text"]):
                    yield "response.output_text.delta", {**at, "content_index": 0, "delta": half, "logprobs": []}
                done = {**at, "content_index": 0, "text": part["text"], "logprobs": []}
                yield "response.output_text.done", done
                yield "response.content_part.done", {**at, "content_index": 0, "part": part}
            else:
                yield "response.output_item.added", {"output_index": index, "item": {**item, "arguments": ""}}
                for half in _halves(item["arguments"]):
                    yield "response.function_call_arguments.delta", {**at, "delta": half}
                done = {**at, "arguments": item["arguments"], "name": item["name"]}
                yield "response.function_call_arguments.done", done
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield "response.completed", {"response": self.whole(turn, number, model)}

    def _items(self, turn: Turn, number: int) -> list[dict[str, Any]]:
        if isinstance(turn.answer, str):
            part = {"type": "output_text", "text": turn.answer, "annotations": []}
            message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
            return [{**message, "content": [part]}]
        return [
            {
                "id": f"fc_{id}",
                "type": "function_call",
                "status": "completed",
                "call_id": id,
                "name": name,
                "arguments": text,
            }
            for id, name, text in _calls(turn, number)
        ]

    def _head(self, number: int, model: str, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "status": status,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def _usage(self, turn: Turn) -> dict[str, Any]:
        return {
            "input_tokens": turn.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": turn.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input_tokens + turn.output_tokens,
        }


class Messages:
    def messages(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for message in body["messages"]:
            yield message["role"], _text(message["content"])

    def whole(self, turn: Turn, number: int, model: str) -> dict[str, Any]:
        usage = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
        return {**self._head(number, model), "content": self._blocks(turn, number), **self._stop(turn), "usage": usage}

    def events(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, Any]]:
        for kind, data in self._untyped(turn, number, model):
            yield kind, {"type": kind, **data}

    def _untyped(self, turn: Turn, number: int, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
        begun = {"input_tokens": turn.input_tokens, "output_tokens": 1}
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield "message_start", {"message": {**self._head(number, model), **nothing, "usage": begun}}
        for index, block in enumerate(self._blocks(turn, number)):
            if block["type"] == "text":
                yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}
                deltas = [{"type": "text_delta", "text": half} for half in _halves(block["text"])]
            else:
                yield "content_block_start", {"index": index, "content_block": {**block, "input": {}}}
                text = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": half} for half in _halves(text)]
            for delta in deltas:
                yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        yield "message_delta", {"delta": self._stop(turn), "usage": {"output_tokens": turn.output_tokens}}
        yield "message_stop", {}

    def _head(self, number: int, model: str) -> dict[str, Any]:
        return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}

    def _stop(self, turn: Turn) -> dict[str, Any]:
        return {"stop_reason": "end_turn" if isinstance(turn.answer, str) else "tool_use", "stop_sequence": None}

    def _blocks(self, turn: Turn, number: int) -> list[dict[str, Any]]:
        if isinstance(turn.answer, str):
            return [{"type": "text", "text": turn.answer}]
        return [
            {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
            for id, name, arguments in _calls(turn, number)
        ]


def _halves(text: Answer) -> list[str]:
    if not isinstance(text, str):
        return []
    return [half for half in (text[: len(text) // 2], text[len(text) // 2 :]) if half]


FORMATS: dict[str, Format] = {
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
    "/v1/messages": Messages(),
}


# The server


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a process that is killed resets its connections
            super().handle_error(request, client_address)


def _handler(wire: Wire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as those of providers are
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            if path not in FORMATS:
                self.send_whole(404, '{"error": {"message": "no such path"}}')
                return
            taken = wire.take(FORMATS[path], path, {name.lower(): value for name, value in self.headers.items()}, body)
            try:
                self.answer(FORMATS[path], taken)
            except OSError:
                taken.request.ends("left")
            if taken.request.end == "left" or isinstance(taken.fault, Cut | Silent):
                self.close_connection = True

        def answer(self, format: Format, taken: Taken) -> None:
            request, turn, fault = taken.request, taken.turn, taken.fault
            match fault:
                case Status(code, retry_after):
                    request.ends("failed")
                    error = {"type": "error", "error": {"type": "error", "message": f"status {code}, as scripted"}}
                    headers = {} if retry_after is None else {"Retry-After": retry_after}
                    return self.send_whole(code, json.dumps(error), headers=headers)
                case Body(text):
                    request.ends("failed")
                    return self.send_whole(200, text)
                case Silent():
                    return request.ends("failed")
                case Slow(seconds) if not self.stays(seconds):
                    return request.ends("left")
                case Held() as held if not self.wait(held.released, 600):
                    return request.ends("left")
            assert turn
            is_cut = isinstance(fault, Cut)
            # Before it is sent: its receiver may ask at once for the record.
            request.ends("failed" if is_cut else "answered")
            model = str(request.body.get("model", ""))
            if request.body.get("stream"):
                self.stream(list(format.events(turn, request.turn, model)), is_cut)
            else:
                self.send_whole(200, json.dumps(format.whole(turn, request.turn, model)), is_cut=is_cut)

        def send_whole(
            self, status: int, text: str, *, headers: Mapping[str, object] | None = None, is_cut: bool = False
        ) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if is_cut else data)

        def stream(self, events: Sequence[tuple[str, Any]], is_cut: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for kind, data in events[: len(events) // 2] if is_cut else events:
                text = data if isinstance(data, str) else json.dumps(data)
                name = f"event: {kind}\n" if kind else ""
                event = f"{name}data: {text}\n\n".encode()
                self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            if not is_cut:
                self.wfile.write(b"0\r\n\r\n")

        def stays(self, seconds: float) -> bool:
            """Wait so long; is the sender still there? A thousand threads that looked every moment would be the load themselves."""
            sender = select.poll()
            sender.register(self.connection, select.POLLIN)
            return not sender.poll(seconds * 1000) or bool(self.connection.recv(1, socket.MSG_PEEK))

        def wait(self, until: threading.Event, seconds: float) -> bool:
            """Is the sender still there once the time is over, or the event has come?"""
            sender = select.poll()  # select knows only the first 1,024 files of a process
            sender.register(self.connection, select.POLLIN)
            give_up_at = time.monotonic() + seconds
            while not until.wait(0.02) and time.monotonic() < give_up_at:
                if sender.poll(0) and not self.connection.recv(1, socket.MSG_PEEK):
                    return False
            return True

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


@contextmanager
def providing() -> Iterator[Wire]:
    wire = Wire()
    with answering(wire.server):
        try:
            yield wire
        finally:
            for turn in (turn for turns in wire.scripts.values() for turn in turns):
                for fault in turn.faults:
                    if isinstance(fault, Held):
                        fault.release()
