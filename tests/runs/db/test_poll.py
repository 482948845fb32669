import os
import resource
import time

import pytest

from runs.db.poll import readable


def test_descriptors_of_any_number_are_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1500:
        pytest.skip("this user may not open 1,500 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    reader, writer = os.pipe()
    try:
        high = os.dup2(reader, 1400)
        assert readable([high], 0) == set()
        os.write(writer, b".")
        assert readable([high, reader], 5) == {high, reader}
        os.read(reader, 1)
        os.close(writer)
        assert readable([high], 5) == {high}  # its other end is gone
        os.close(high)
    finally:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_wait_ends_after_its_timeout() -> None:
    reader, writer = os.pipe()
    began = time.monotonic()
    assert readable([reader], 0.01) == set()
    assert time.monotonic() - began >= 0.009
    os.close(reader)
    os.close(writer)
