"""The quick tests draw a chart once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(autouse=True, scope="session")
def drawn_once() -> Iterator[None]:
    """The same chart is drawn once: reports of the same trials are made for test after test."""
    import vl_convert

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "vegalite_to_svg", cache(vl_convert.vegalite_to_svg))
        yield
