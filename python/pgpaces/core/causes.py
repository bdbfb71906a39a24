"""The causes that `why` names. The catalog, causes.toml, has all prose about them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from pgpaces.core.findings import Finding, filled, with_names

CATALOG = Path(__file__).with_name("causes.toml")


Proof = Literal["whole", "time", "coinciding"]


class Remedy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to do about a cause, or about one of its forms."""

    advice: str
    next: str
    question: str
    options: str = ""


class Cause(Remedy, frozen=True, kw_only=True):
    """A row of the catalog; its comments say what each text is."""

    title: str
    sentence: str
    signal: str
    proof: Proof
    after: tuple[str, ...] = ()
    carried: bool = True
    resource: bool = True
    thresholds: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)


class Catalog(Struct, frozen=True, forbid_unknown_fields=True):
    causes: Mapping[str, Cause]
    forms: Mapping[str, Remedy]
    outcomes: Mapping[str, str]
    notes: Mapping[str, str]
    unread: Mapping[str, str]

    @property
    def observations(self) -> dict[str, str]:
        """The sentences of evidence, by name."""
        return {n: text for cause in self.causes.values() for n, text in cause.evidence.items()}


@functools.cache
def catalog() -> Catalog:
    return msgspec.convert(tomllib.loads(CATALOG.read_text("utf-8")), Catalog)


def title(key: str) -> str:
    return catalog().causes[key].title


def thresholds(key: str) -> Mapping[str, float]:
    return catalog().causes[key].thresholds


def headline(name: str, **values: Any) -> str:
    """The line that a cause, or an answer without one, begins with."""
    outcomes = catalog().outcomes
    text = outcomes[name] if name in outcomes else catalog().causes[name].sentence
    return filled(text, values)


def note(name: str, **values: Any) -> str:
    return filled(catalog().notes[name], values)


def observed(evidence: Finding) -> str:
    """The sentence of an observation; its values if this version does not know the name."""
    return filled(catalog().observations.get(evidence.name, "{values}"), evidence.values)


def explanation(key: str) -> dict[str, str]:
    """The entry of a cause as `pgpaces explain` shows it; a placeholder is a value's name."""
    entry = catalog().causes[key]
    texts = {
        "sentence": entry.sentence,
        "means": f"{filled(entry.signal, entry.thresholds)}.",
        "do": entry.advice,
    }
    shown = {name: with_names(text) for name, text in texts.items()}
    return {"name": f"cause-{key}", "severity": "cause", **shown}


def remedy(key: str) -> Remedy:
    """What to do about a cause, or about a form of one."""
    return catalog().forms.get(key) or catalog().causes[key]
