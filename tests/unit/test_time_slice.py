"""Threads of a load with a schedule wake before others: they have a short time slice."""

import platform
import subprocess
import sys
import threading

from pgpaces.load.engine import short_slice, slice_attributes
from tests.needs import needs

CHILD = "from pgpaces.load.engine import slice_attributes; print(slice_attributes().runtime)"


def slice_ns() -> int | None:
    """Of the thread that asks."""
    own = slice_attributes()
    return None if own is None else own.runtime


@needs("slices of tasks in the kernel")
def test_what_is_begun_within_has_a_short_slice_and_nothing_else():
    before = slice_ns()
    assert before
    seen: list[int | None] = []
    with short_slice("open"):
        thread = threading.Thread(target=lambda: seen.append(slice_ns()))
        thread.start()
        child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True)
    thread.join()
    assert seen == [before // 2]
    assert int(child.stdout) == before // 2
    assert slice_ns() == before
    later = threading.Thread(target=lambda: seen.append(slice_ns()))
    later.start()
    later.join()
    assert seen[1] == before


def test_without_the_call_nothing_is_changed(monkeypatch):
    before = slice_ns()
    monkeypatch.setattr(platform, "machine", lambda: "mips")
    with short_slice("open"):
        assert slice_ns() is None
    monkeypatch.undo()
    assert slice_ns() == before
