"""What a notebook shows of an answer besides its card: its numbers as a frame, and its charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.show.section import Figure

_VEGA_LITE = "application/vnd.vegalite.v5+json"


class Frame(Struct, frozen=True):
    """The numbers of an answer as columns, one value a row: keys, metric, value, low, high, n.

    Any data frame library reads it through Arrow:

    `polars.DataFrame(frame)`, `pandas.DataFrame(frame.columns)`, `duckdb.from_arrow(frame)`.
    """

    columns: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, by column."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface. Raises RunError if no Arrow library is installed."""
        from pgpaces.show.data import arrow

        return arrow([*self.rows()]).__arrow_c_stream__(requested_schema)


class Plot(Struct, frozen=True):
    """A chart: shown by a notebook, or as `svg`, `png`, or the Vega-Lite specification `spec`."""

    _figure: Figure

    @property
    def name(self) -> str:
        """The name by which `Answer.plot` finds it."""
        return self._figure.key

    @property
    def title(self) -> str:
        """The title above it."""
        return self._figure.title

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        from pgpaces.show.charts import specification
        from pgpaces.show.style import LIGHT

        return specification(self._figure, LIGHT)

    @property
    def svg(self) -> str:
        """As SVG. Raises RunError if the drawing library is not installed."""
        from pgpaces.show.draw import picture

        return picture(self._figure, "svg").decode()

    @property
    def png(self) -> bytes:
        """As PNG. Raises RunError if the drawing library is not installed."""
        from pgpaces.show.draw import picture

        return picture(self._figure, "png")

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """For notebooks."""
        from pgpaces.show.draw import available

        drawn = {"image/svg+xml": self.svg} if available() else {}
        return {_VEGA_LITE: self.spec, "text/plain": repr(self), **drawn}

    def __repr__(self) -> str:
        """Its name and title."""
        return f"<plot {self.name}: {self.title}>"
