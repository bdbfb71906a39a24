"""How charts look: colors for light and dark, templates/charts/looks.toml.

In the page a color is a CSS variable, so that charts follow its light and dark mode; in image files
it is a constant. What all charts share is in templates/charts/configuration.json.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources

# The default width of a chart in pixels.
WIDTH = 372
# Six digits, no more than needed, and no exponent before they end.
NUMBER = ".6~g"

Look = Mapping[str, str]
_FILE = resources.files("pgpaces.show").joinpath("templates", "charts", "looks.toml")
LIGHT, DARK = tomllib.loads(_FILE.read_text("utf-8")).values()
PAGE = {n: f"var(--{n})" for n in LIGHT} | {"background": "transparent", "font": "inherit"}
