"""The schema of host files. Imported only when one is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pgpaces.costs import KEYS
from pgpaces.tables import Table

_Number = Annotated[float, Meta(ge=0)]


class CostTable(Table, frozen=True, kw_only=True):
    """The keys, as in `costs.KEYS`."""

    price_per_month: Annotated[_Number | None, Meta(description=KEYS["price_per_month"])] = None
    price_per_h: Annotated[_Number | None, Meta(description=KEYS["price_per_h"])] = None
    price: Annotated[_Number | None, Meta(description=KEYS["price"])] = None
    lifetime_years: Annotated[_Number | None, Meta(description=KEYS["lifetime_years"])] = None
    currency: Annotated[str, Meta(description=KEYS["currency"])] = "USD"
    watts: Annotated[_Number | None, Meta(description=KEYS["watts"])] = None
    energy_price_per_kwh: Annotated[
        _Number | None, Meta(description=KEYS["energy_price_per_kwh"])
    ] = None
    endurance_tb: Annotated[_Number | None, Meta(description=KEYS["endurance_tb"])] = None
