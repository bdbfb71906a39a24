"""Where the quick tests keep files: in memory, as each second of a trial that is stored waits for a
disk, and they store thousands."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, removed behind it."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pgpaces-test-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True, scope="session")
def drawn_once() -> Iterator[None]:
    """The same chart is drawn once: reports of the same trials are made for test after test."""
    import vl_convert

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "vegalite_to_svg", cache(vl_convert.vegalite_to_svg))
        yield
