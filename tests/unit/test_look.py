"""Colors of charts can be told from what is behind them, in light and in dark."""

from __future__ import annotations

import pytest

from pgpaces.answers.sweep.charts import DASHES
from pgpaces.show.chart import SHAPES
from pgpaces.show.style import DARK, LIGHT, Look

# Backgrounds that the page's style sheet puts behind charts, beside that of the page.
BEHIND = {"light": (LIGHT, ("#ffffff", "#f4f6f9")), "dark": (DARK, ("#191f28", "#1b212b"))}


def luminance(color: str) -> float:
    """Relative luminance as in WCAG 2.2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", BEHIND)
def test_texts_and_lines_stand_out_from_the_background(name: str) -> None:
    look, backgrounds = BEHIND[name]
    for behind in (*backgrounds, look.background):
        assert all(contrast(text, behind) >= 4.5 for text in (look.ink, look.muted, look.alarm))
        assert all(contrast(line, behind) >= 3 for line in look.lines), behind


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_on_the_map_can_be_read(look: Look) -> None:
    for text, behind in zip(look.on_heat, look.heat, strict=True):
        assert contrast(text, behind) >= 4.5, behind


def test_lines_are_told_apart_without_colors_too() -> None:
    assert (
        len({str(dash) for dash in DASHES}) == len(DASHES) == len(set(SHAPES)) == len(LIGHT.lines)
    )
