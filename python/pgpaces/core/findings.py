"""A finding is a name and values. The catalog, findings.toml, has all prose about findings.

Code compares names and values. Only what people read is filled in from the catalog (`filled`, which
messages and errors use, too). `pgpaces explain` reads the names of all catalogs here.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from pgpaces.core import errors, metrics
from pgpaces.core.units import (
    memory_text,
    ms_text,
    percent_text,
    rate_text,
    significant,
    size_text,
)

Severity = Literal["nothing", "caution", "invalid"]
SEVERITIES: tuple[Severity, ...] = ("invalid", "caution", "nothing")
CATALOG = Path(__file__).with_name("findings.toml")
UNKNOWN = "unknown"
# A number, and its unit.
_NUMBER = re.compile(r"(-?[\d.,]+)(\D*)")
_PLACEHOLDER = re.compile(r"\{(\w+)(?:![rsa])?(?::[^}]*)?\}")


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """What the catalog says about a finding; the three texts may have {placeholders} of values.

    severity: what the finding does to a verdict. sentence: one line for the terminal. means: one
    to five sentences. do: an instruction; empty if there is nothing to do.
    """

    severity: Severity
    sentence: str
    means: str
    do: str = ""


class Finding(Struct, frozen=True, omit_defaults=True):
    """What a check reports: a name of the catalog, and values by name.

    A value's name ends in its unit. about: the node, script, or generator that it is about; empty
    if there is only one.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""

    @property
    def severity(self) -> Severity:
        """From the catalog; a name that this version does not know is a caution."""
        entry = catalog().get(self.name)
        return entry.severity if entry else "caution"

    @property
    def sentence(self) -> str:
        """The catalog's sentence with the values; only the values if the name is unknown."""
        entry = catalog().get(self.name)
        return filled(entry.sentence if entry else "{values}", self.values)

    @property
    def advice(self) -> str:
        """What to do; empty if there is nothing to do, or the name is unknown."""
        entry = catalog().get(self.name)
        return filled(entry.do, self.values) if entry else ""

    def __str__(self) -> str:
        about = f"{self.about}: " if self.about else ""
        return f"{self.name}: {about}{self.sentence}"


def finding(name: str, about: str = "", /, **values: Any) -> Finding:
    """A finding with these values; a number that is not finite becomes None."""
    return Finding(name, {key: _plain(value) for key, value in values.items()}, about)


class Notes(list[Finding]):
    """Findings in order, each once."""

    def add(self, *findings: Finding) -> None:
        for each in findings:
            if each not in self:
                self.append(each)


def _plain(value: Any) -> Any:
    if isinstance(value, float):  # also one of numpy, which JSON cannot hold
        return float(value) if math.isfinite(value) else None
    return value


def as_json(finding: Finding) -> dict[str, Any]:
    """Name, severity, values, and what it is about, as JSON shows them."""
    return {
        "name": finding.name,
        "severity": finding.severity,
        "about": finding.about,
        "values": dict(finding.values),
    }


@functools.cache
def catalog() -> Mapping[str, Entry]:
    """All entries by name. Findings of one severity are shown in this order."""
    return msgspec.convert(tomllib.loads(CATALOG.read_text("utf-8")), dict[str, Entry])


def explained_names() -> tuple[str, ...]:
    """The names of all findings, errors, and metrics."""
    return *catalog(), *errors.catalog(), *metrics.catalog()


def explanation(name: str) -> dict[str, str]:
    """The entry of a name of any catalog; a placeholder is shown as the name of its value.

    An entry of a metric has its better direction too.
    """
    if metric := metrics.catalog().get(name):
        texts = {"sentence": metrics.axis(name), "means": metric.about, "do": ""}
        return {"name": name, "severity": "metric", **texts, "better": metric.better}
    if name in catalog():
        entry = catalog()[name]
        severity: str = entry.severity
        texts = {"sentence": entry.sentence, "means": entry.means, "do": entry.do}
    else:
        error, severity = errors.catalog()[name], "error"
        hints = "; or ".join(error.get("hint", ()))
        texts = {"sentence": error["sentence"][0], "means": "", "do": hints}
    shown = {key: with_names(text) for key, text in texts.items()}
    return {"name": name, "severity": severity, **shown}


def with_names(text: str) -> str:
    """The text with the names of its values, as in `<lag_ms>`, in place of placeholders."""
    return _PLACEHOLDER.sub(r"<\1>", text)


def explained(entry: Mapping[str, str]) -> str:
    """The explanation of a name as text for a terminal, at most 80 columns wide."""
    do = f"What to do: {entry['do']}." if entry["do"] else ""
    title = f"{entry['name']} ({entry['severity']}): {entry['sentence']}"
    better = f"Better: {entry['better']}" if entry.get("better") else ""
    parts = (title, entry["means"], do, better)
    wrapped = ["\n".join(textwrap.wrap(part, 80)) for part in parts if part]
    return "\n\n".join(wrapped)


def weight(finding: Finding) -> tuple[int, int]:
    """Sorts findings: the most severe first, then as the catalog lists them."""
    names = list(catalog())
    place = names.index(finding.name) if finding.name in names else len(names)
    return SEVERITIES.index(finding.severity), place


def moment(second: float) -> str:
    """A time of a trial, with its minute counted from 1."""
    return f"{length(second)} (minute {int(second // 60) + 1})"


def length(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{ms_text(1000 * seconds)} ms"
    whole = round(seconds)
    if whole < 120:
        return f"{significant(seconds)} s"
    return f"{round(whole / 60)} min" if whole >= 300 else f"{whole // 60} min {whole % 60} s"


def _percent(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return significant(value, 3 if abs(value) >= 1 else 2)


def _bounds(pair: Sequence[float], form: str) -> str:
    """An interval: `0.1–1.5%` or, if it has no upper end, `over 3.1%`."""
    low, high = (_shown(form, each) for each in pair)
    if math.isinf(pair[1]):
        return f"over {low}"
    ends = _NUMBER.fullmatch(low), _NUMBER.fullmatch(high)
    if ends[0] and ends[1] and ends[0][2] == ends[1][2]:
        return f"{ends[0][1]}–{high}"
    return f"{low}–{high}"


def _confidence(pair: Sequence[float] | None, form: str) -> str:
    return f"95% CI {_bounds(pair, form)}" if pair else ""


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "ms": lambda value: f"{ms_text(value)} ms",
    "s": length,
    "moment": moment,
    "percent": lambda value: f"{_percent(value)}%",
    "share": lambda value: f"{percent_text(value)}%",
    "goal": lambda value: f"{100 * value:.4g}%",
    "number": rate_text,
    "rate": lambda value: f"{rate_text(value)}/s",
    "size": size_text,
    "memory": memory_text,
    "each": lambda values: "   ".join(f"{name} {value}" for name, value in values.items()),
    "shares": lambda values: ", ".join(
        f"{name} {100 * share:.0f}%" for name, share in values.items()
    ),
}
# Formats with an argument after a blank: the format of the ends of an interval, or a noun.
_OF: Mapping[str, Callable[[Any, str], str]] = {
    "n": lambda value, noun: f"{_shown('number', value)} {noun}{'' if value == 1 else 's'}",
    "ci": lambda pair, form: f" ({_confidence(pair, form)})" if pair else "",
    "ends": _bounds,
    "metric": lambda value, name: metrics.number(name, value),
    "ci,": lambda pair, form: f"{_confidence(pair, form)}, " if pair else "",
}
_UNITS = {"ms": " ms", "kb_s": " kB/s", "s": " s", "us": " µs", "celsius": " °C"}


class _Filler(Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        return labels(kwargs) if key == "values" else kwargs.get(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        return _shown(format_spec, value)


def _shown(form: str, value: Any) -> str:
    kind, _, argument = form.partition(" ")
    try:
        if argument and kind in _OF:
            return _OF[kind](value, argument)
        if value is None:
            return UNKNOWN
        if isinstance(value, list | tuple):
            return (" and " if form == "and" else ", ").join(map(str, value))
        return _FORMATS.get(form, lambda each: format(each, form))(value)
    except (TypeError, ValueError, OverflowError):  # the stored value has another type
        return str(value)


def filled(text: str, values: Mapping[str, Any]) -> str:
    """The text with values in place of its placeholders.

    {NAME:FORMAT} takes a format of Python, or one of these: ms, s, moment, percent; share and goal,
    from 0 to 1; number, rate, size, memory; `n NOUN`; `ci FORMAT`, of a pair or None; `metric NAME`
    without a unit; each and shares, of values by name; and, of a list. {values} lists all values.
    """
    return _Filler().vformat(text, (), values)


def needed(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the texts of this finding have placeholders for."""
    entry = catalog()[name]
    names = placeholders(f"{entry.sentence} {entry.means} {entry.do}")
    return {key: _plain(value) for key, value in values.items() if key in names}


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def labels(values: Mapping[str, Any]) -> str:
    """All values that are known, each after its name: `cpu busy 31%, disk sda busy 4%`."""
    return ", ".join(_label(*item) for item in values.items() if item[1] is not None)


def _label(name: str, value: Any) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"{name.replace('_', ' ')} {value}"
    for ending, form in (("_percent", "percent"), ("_bytes", "size")):
        if name.endswith(ending):
            return f"{name.removesuffix(ending).replace('_', ' ')} {_FORMATS[form](value)}"
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")
    label = name.removesuffix(f"_{unit}").replace("_", " ")
    return f"{label} {rate_text(value)}{_UNITS.get(unit, '')}"
