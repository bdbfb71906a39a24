"""Every number that people see, by its name in the catalog, metrics.toml."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from pgpaces.core.units import ms_text, percent_text, rate_text

CATALOG = Path(__file__).with_name("metrics.toml")
SHARES = ("late", "skipped", "failed", "unfinished", "missed")
TIMES = ("mean", "p50", "p95", "p99", "p99.9")
# The metrics that are followed over time, and those by which loads are compared.
FOLLOWED = ("throughput", *TIMES)
COMPARED = (*FOLLOWED, "missed")
_FORMATS: Mapping[str, Callable[[float], str]] = {
    "": "{:.3g}".format,
    "count": "{:,.0f}".format,
    "ms": ms_text,
    "percent": percent_text,
    "rate": rate_text,
    "megabytes": lambda value: f"{value / 1e6:.3g}",
}
_SCALES = {"percent": 100.0, "megabytes": 1e-6}


class Metric(Struct, frozen=True, forbid_unknown_fields=True):
    """What the catalog says of a number. column: its title in a table, if that is another one."""

    title: str
    about: str
    column: str = ""
    unit: str = ""
    format: Literal["", "count", "ms", "percent", "rate", "megabytes", "info"] = ""
    better: Literal["", "lower", "higher"] = ""


@functools.cache
def catalog() -> Mapping[str, Metric]:
    return msgspec.convert(tomllib.loads(CATALOG.read_text("utf-8")), dict[str, Metric])


def metric(name: str) -> Metric:
    """The entry of the catalog. KeyError for an unknown name."""
    return catalog()[name]


def is_share(name: str) -> bool:
    """Whether it is a share, which may be 0: B less A is compared, and of others B over A."""
    return metric(name).format == "percent"


def scale(name: str) -> float:
    """The factor from the stored number to the number that is shown."""
    return _SCALES.get(metric(name).format, 1.0)


def title(name: str) -> str:
    return metric(name).title


def axis(name: str) -> str:
    """The title and the unit, for an axis: `p95 latency, ms`."""
    unit = metric(name).unit
    return f"{title(name)}, {unit}" if unit else title(name)


def header(name: str) -> str:
    """The title of a column with its unit: `p95 ms`, `missed %`."""
    return f"{metric(name).column or title(name)} {metric(name).unit}".rstrip()


def number(name: str, value: float | None, above: str = "–") -> str:
    """A number without its unit; `above` if it is unknown or infinite."""
    if value is None or math.isinf(value):
        return above
    return _FORMATS[metric(name).format](value)


def shown(name: str, value: float | None, above: str = "–") -> str:
    """A number with its unit: `12.3 ms`, `4.5%`; `above` if it is unknown or infinite."""
    text, unit = number(name, value, above), metric(name).unit
    return text if text == above else f"{text} {unit}".replace(" %", "%").rstrip()
