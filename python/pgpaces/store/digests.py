"""Digests as texts: JSON without the trial, which is in the same row.

Reading checks all values of a digest.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import defstruct
from msgspec.structs import asdict, fields

from pgpaces.analysis import digest as rules
from pgpaces.analysis.digest import Digest
from pgpaces.spec import setup
from pgpaces.spec.result import Trial

VERSION = rules.VERSION


# A digest without its trial.
_Stored: Any = defstruct(
    "_Stored", [(each.name, each.type) for each in fields(Digest) if each.name != "trial"]
)


def text(digest: Digest) -> str:
    """A digest without its trial as JSON, in ASCII, with infinity as `Infinity`."""
    values = {name: getattr(digest, name) for name in _Stored.__struct_fields__}
    return json.dumps(msgspec.to_builtins(values), separators=(",", ":"))


def read(trial: Trial, text: str) -> Digest:
    """The digest of a trial from its text. Raises ValueError for other texts."""
    return Digest(trial, **asdict(setup.read(_Stored, json.loads(text), "its digest")))
