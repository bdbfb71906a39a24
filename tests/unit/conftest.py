"""The quick tests specify charts and draw them only where a test asks for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

BLANK = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


@pytest.fixture(autouse=True, scope="session")
def draw_once() -> Iterator[Callable[..., str]]:
    """A page takes longer to draw than to make, so its charts are blank. What would draw them."""
    import vl_convert

    with pytest.MonkeyPatch.context() as patch:
        draw = cache(vl_convert.vegalite_to_svg)
        patch.setattr(vl_convert, "vegalite_to_svg", lambda specified, **_: BLANK)
        yield draw


@pytest.fixture
def drawn(draw_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are drawn, each once."""
    import vl_convert

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", draw_once)
