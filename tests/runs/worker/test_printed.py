"""What the body of a run prints stands in the files of the log: without secrets."""

import io
import sys
import traceback

import pytest

from agents.kernel.redaction import know
from runs.worker.printed import print_without_secrets

SECRET = "secret-that-is-printed-5c1b"


def test_what_is_printed_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    know(SECRET)
    output, errors = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", errors)

    print_without_secrets()
    print("Bearer", SECRET, flush=True)
    written = sys.stdout.write(f"{SECRET}\n")
    sys.stdout.writelines([f"1 {SECRET}\n", "2\n"])
    try:
        raise RuntimeError(SECRET)
    except RuntimeError:
        traceback.print_exc()

    assert output.getvalue() == "Bearer [secret]\n[secret]\n1 [secret]\n2\n"
    assert written == len(SECRET) + 1
    assert errors.getvalue().endswith("RuntimeError: [secret]\n") and SECRET not in errors.getvalue()
    assert sys.stdout.closed is False  # else as the stream itself
