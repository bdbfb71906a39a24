"""What tests check of errors: names and values, not words."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from pgpaces.core.errors import PgpacesError


@contextlib.contextmanager
def raises(
    kind: type[PgpacesError], name: str, /, **values: Any
) -> Iterator[pytest.ExceptionInfo[PgpacesError]]:
    with pytest.raises(kind) as caught:
        yield caught
    assert (caught.value.name, caught.value.values) == (name, caught.value.values | values)


def sentence(name: str, /, **values: Any) -> str:
    """The sentence of an error, as commands print it after `error: `."""
    return PgpacesError(name, **values).message
