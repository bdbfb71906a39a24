"""The quick tests specify charts and draw them only where a test asks for that."""

from collections.abc import Callable
from functools import cache

import pytest

BLANK = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


@cache
def _draw_once() -> Callable[..., str]:
    import vl_convert

    return cache(vl_convert.vegalite_to_svg)


@pytest.fixture(autouse=True)
def charts(request, monkeypatch):
    """A page takes longer to draw than to make, so its charts are blank, but with `drawn`."""
    import vl_convert

    draw = _draw_once()  # before it is replaced
    if "drawn" not in request.fixturenames:
        draw = lambda specified, **_: BLANK  # noqa: E731
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", draw)


@pytest.fixture
def drawn():
    """Charts are drawn, each once."""
