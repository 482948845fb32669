"""A client that openapi-python-client generates from the schema of a running server, and calls with it that are counted."""

import importlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from inspect import signature
from io import BytesIO
from pathlib import Path
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

GENERATOR = "openapi_python_client"
PACKAGE = "generated_wakeful"
# The generator knows no NDJSON: of two types with bytes it makes the same client.
CONFIG = "content_type_overrides:\n  application/x-ndjson: application/octet-stream\npost_hooks: []\n"
JSON = {"Content-Type": "application/json"}


@contextmanager
def generated(schema: Mapping[str, Any], folder: Path) -> Iterator[ModuleType]:
    """The package that the generator makes from this schema. It is given as a file: by its address, it would have to be there in 5 s."""
    config, document = folder / "generator.yml", folder / "schema.json"
    config.write_text(CONFIG)
    document.write_text(json.dumps(schema))
    command = [sys.executable, "-m", GENERATOR, "generate", "--path", str(document), "--meta", "none"]
    command += ["--output-path", str(folder / PACKAGE), "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
            del sys.modules[name]


class Caller:
    """`call("runs_get", run_id, wait=5)`: what the client made of the answer. Each operation and status is counted."""

    def __init__(self, url: str, token: str, schema: Mapping[str, Any]) -> None:
        self.operations = {one["operationId"]: one for path in schema["paths"].values() for one in path.values()}
        self.answered: dict[str, set[int]] = defaultdict(set)
        self._made = importlib.import_module(f"{PACKAGE}.client")
        self._url = url
        self._clients: list[Any] = []
        self.known = self.with_token(token)

    def with_token(self, token: str) -> Any:
        client = self._made.AuthenticatedClient(
            base_url=self._url, token=token, raise_on_unexpected_status=True, timeout=120
        )
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.get_httpx_client().close()

    def __call__(
        self, operation: str, *path: Any, expect: int = 0, body: Any = None, client: Any = None, **query: Any
    ) -> Any:
        """`expect`: the status; 0: a success."""
        module = self.module(operation)
        hints = get_type_hints(module.sync_detailed)
        places = [name for name in hints if name not in ("client", "body", "return")]
        given = {name: as_hinted(hints[name], value) for name, value in zip(places, path, strict=False)}
        given |= {name: as_hinted(hints[name], value) for name, value in query.items()}
        if body is not None:
            given["body"] = self.as_model(hints["body"], body)
        answer = module.sync_detailed(client=client or self.known, **given)
        return self.count(operation, answer, expect)

    def raw(self, operation: str, path: Sequence[Any], content: bytes, *, client: Any = None) -> Any:
        """The answer, as the client reads it, to a body that no model of the client makes."""
        module, client = self.module(operation), client or self.known
        hints = get_type_hints(module._get_kwargs)
        given = {name: as_hinted(hints[name], value) for name, value in zip(hints, path, strict=False)}
        asked = [one.name for one in signature(module._get_kwargs).parameters.values() if one.default is one.empty]
        given = (
            dict.fromkeys(asked, "2050-01-01T09:00") | given
        )  # the only parameter beside the path that must be given is a time
        if "body" in hints:
            given["body"] = SimpleNamespace(to_dict=dict, payload=b"")
        request = module._get_kwargs(**given)
        response = client.get_httpx_client().request(request["method"], request["url"], content=content, headers=JSON)
        return module._build_response(client=client, response=response)

    def count(self, operation: str, answer: Any, expect: int = 0) -> Any:
        code = int(answer.status_code)
        assert code == expect if expect else code < 300, (operation, code, answer.content[:1000])
        self.answered[operation].add(code)
        has_content = any(self.operations[operation]["responses"][str(code)].get("content", {}))
        assert (answer.parsed is not None) == has_content, (operation, code, answer.content[:1000])
        return answer.parsed

    def module(self, operation: str) -> Any:
        [tag] = self.operations[operation]["tags"]
        return importlib.import_module(f"{PACKAGE}.api.{tag.replace('-', '_')}.{operation}")

    def as_model(self, hint: Any, body: Any) -> Any:
        if isinstance(body, bytes):
            return importlib.import_module(f"{PACKAGE}.types").File(payload=BytesIO(body))
        [model, *_] = [one for one in alternatives(hint) if hasattr(one, "from_dict")]
        return model.from_dict(body)


def as_hinted(hint: Any, value: Any) -> Any:
    """The value as the client takes it, such as a UUID of a text."""
    for one in alternatives(hint):
        if isinstance(one, type) and issubclass(one, (Enum, UUID)) and isinstance(value, str):
            return one(value)
        if one is datetime and isinstance(value, str):
            return datetime.fromisoformat(value)
    return value


def alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
