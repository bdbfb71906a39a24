"""What there has to be."""

from typing import TypeVar

Value = TypeVar("Value")


def sure(value: Value | None) -> Value:
    """The value; fails where there is none."""
    assert value is not None
    return value
