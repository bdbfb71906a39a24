"""Digests as texts: JSON without the trial, which stands beside it. Knows no connection.

Every value of a digest that is read is checked.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct

from pgpaces.answers import digest as rules
from pgpaces.answers.accumulator import Accumulator
from pgpaces.answers.digest import Bucket, Digest, Track
from pgpaces.answers.summary import Summary, summarize
from pgpaces.result import Trial

VERSION = rules.VERSION


class _Kept(Struct, frozen=True):
    """A digest without its trial."""

    summary: Summary
    series: tuple[Bucket, ...]
    tracks: tuple[Track, ...]
    latency: tuple[tuple[float, float | None], ...]
    lag: tuple[tuple[float, float | None], ...]


_NAMES = _Kept.__struct_fields__


def text(digest: Digest) -> str:
    """A digest without its trial as JSON, in ASCII; infinity stands in it as JavaScript has it."""
    kept = _Kept(*(getattr(digest, name) for name in _NAMES))
    return json.dumps(msgspec.to_builtins(kept), separators=(",", ":"))


def read(trial: Trial, text: str) -> Digest:
    """The digest of a trial from its text. Raises ValueError where it is none."""
    kept = msgspec.convert(json.loads(text), _Kept)
    return Digest(trial, *(getattr(kept, name) for name in _NAMES))


def made(trial: Trial) -> Digest:
    """The digest of a whole trial, by the rules of today. Raises StoreError as `summarize`."""
    accumulator = Accumulator.of(trial.intervals)
    return rules.digest(trial, summarize(trial, accumulator), accumulator)
