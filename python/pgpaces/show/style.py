"""How charts look: colors for light and dark.

In the page a color is a CSS variable, so that charts follow its light and dark mode; in image files
it is a constant. What all charts share is in templates/charts/configuration.json.
"""

from __future__ import annotations

from msgspec import Struct

# The default width of a chart in pixels.
WIDTH = 372
# Six digits, no more than needed, and no exponent before they end.
NUMBER = ".6~g"


class Look(Struct, frozen=True):
    """The colors of a chart. lines: distinguishable with color vision deficiency."""

    background: str
    ink: str
    muted: str
    grid: str
    alarm: str
    lines: tuple[str, ...]
    font: str = "sans-serif"

    def colors(self) -> dict[str, str]:
        colors = {name: getattr(self, name) for name in ("ink", "muted", "grid", "alarm")}
        return colors | {f"line{n}": color for n, color in enumerate(self.lines)}


# After Okabe and Ito (2008), darker on white and lighter on black where contrast requires it; every
# line at least 3:1 against its background.
LIGHT = Look(
    background="#ffffff",
    ink="#1c2430",
    muted="#55606e",
    grid="#dfe4ea",
    alarm="#b3261e",
    lines=("#0072b2", "#d55e00", "#00805d", "#a8478a", "#8f6400", "#2b8cc4", "#4d4d4d"),
)
DARK = Look(
    background="#14181f",
    ink="#e8ecf1",
    muted="#a9b4c0",
    grid="#2f3743",
    alarm="#ff8a80",
    lines=("#56b4e9", "#ff8f40", "#2fc99a", "#e59ac4", "#f0c04a", "#a7b6ff", "#c8ccd2"),
)
PAGE = Look(
    background="transparent",
    ink="var(--ink)",
    muted="var(--muted)",
    grid="var(--grid)",
    alarm="var(--alarm)",
    lines=tuple(f"var(--line{n})" for n in range(7)),
    font="inherit",
)
