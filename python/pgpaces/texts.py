"""Texts from files, the command line and servers, in whatever encoding they are there.

As `str` they are UTF-8; bytes that are none are surrogates (PEP 383), which become the bytes that
they were when the text leaves.
"""

from __future__ import annotations


def encoded(text: str) -> bytes:
    """The bytes of a text."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes | bytearray | memoryview) -> str:
    """The text of bytes; the opposite of `encoded`."""
    return str(data, "utf-8", "surrogateescape")
