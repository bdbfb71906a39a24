"""The measured part of a page of the documentation: the machine's facts and the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figures import Finding, markdown


def measured(about: Mapping[str, Any], pairs: int, findings: Sequence[Finding]) -> str:
    """The part between the markers."""
    day = datetime.now(UTC).date().isoformat()
    known = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    head = f"Measured on {day}, {pairs} pairs of runs against time. The machine: {known}."
    return f"\n{head}\n\n{markdown(findings)}\n"


def write(page: Path, about: Mapping[str, Any], pairs: int, findings: Sequence[Finding]) -> None:
    """Fills the page. ValueError for one without the markers."""
    fill(page, "cost", measured(about, pairs, findings))


def fill(page: Path, name: str, part: str) -> None:
    """Fills the part of a page that has this name. ValueError for one without the markers."""
    marker = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    if not marker.search(text):
        raise ValueError(f"{page} has no measured part '{name}'")
    page.write_text(marker.sub(lambda found: found[1] + part + found[2], text), encoding="utf-8")
