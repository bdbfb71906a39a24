"""Without the libraries of an extra, what needs them says which to install."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pgpaces.capture import parser
from pgpaces.core.errors import RunError, extra
from pgpaces.show import data
from pgpaces.show.section import Records

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("library", "needs_it", "name"),
    [
        ("pgparse", parser.parser, "statements"),
        ("arro3.core", lambda: data.arrow(Records(())), "frames"),
        ("arro3.io", lambda: data.parquet(Records(())), "frames"),
    ],
)
def test_the_extra_of_a_library_that_is_not_installed_is_named(
    library: str, needs_it: Callable[[], object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RunError) as error:
        needs_it()
    assert f" need {library}, which is not installed" in error.value.message
    assert error.value.hint == f"install the extra: pip install 'pgpaces[{name}]'"
    assert name in PROJECT["optional-dependencies"]


def test_a_module_of_our_own_that_is_missing_is_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError), extra("web", "pages"):
        raise ModuleNotFoundError(name="pgpaces.web.app")
