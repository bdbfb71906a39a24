"""The costs of a machine, as its owner enters them: a price, power, a card's endurance.

Knows no files. `answers/costs.py` computes with these values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields

from pgpaces.errors import PlanError

PRICES = ("price_per_month", "price_per_h", "price")
# In a host file, and below `[targets.NAME]` of an experiment file.
KEYS = {
    "price_per_month": "What the machine costs a month.",
    "price_per_h": "Or an hour.",
    "price": "Or what it was bought for, with `lifetime_years`.",
    "lifetime_years": "The `price` is spread over this many years.",
    "currency": "Of the prices. Default: USD.",
    "watts": "What the machine draws while it works, measured at the plug.",
    "energy_price_per_kwh": "What a kilowatt-hour costs.",
    "endurance_tb": "The terabytes (10^12 bytes) that may be written to the card in its life.",
}


class Costs(Struct, frozen=True):
    """The costs of a machine; None: not known. At most one of the three prices is set.

    price, lifetime_years: of one that was bought. endurance_tb: terabytes that may be written to
    the card or disk of its data. Raises PlanError for invalid values.
    """

    price_per_month: float | None = None
    price_per_h: float | None = None
    price: float | None = None
    lifetime_years: float | None = None
    currency: str = "USD"
    watts: float | None = None
    energy_price_per_kwh: float | None = None
    endurance_tb: float | None = None

    def __post_init__(self) -> None:
        """Raises PlanError."""
        prices = [name for name in PRICES if getattr(self, name) is not None]
        if len(prices) > 1:
            raise PlanError(f"{' and '.join(prices)} are prices of the same machine", "choose one")
        if (self.price is None) is not (self.lifetime_years is None):
            raise PlanError(
                "price and lifetime_years belong together",
                "price = 85, lifetime_years = 4; or price_per_month",
            )
        if self.energy_price_per_kwh is not None and self.watts is None:
            raise PlanError("energy_price_per_kwh says nothing without watts", "add watts")
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        if not self.currency.strip():
            raise PlanError("the currency is empty", "such as USD or EUR")

    @staticmethod
    def _check(name: str, value: Any) -> None:
        if value is None or name == "currency":
            return
        free = name in (*PRICES, "energy_price_per_kwh")
        if not math.isfinite(value) or value < 0 or (value == 0 and not free):
            least = "0 or more" if free else "more than 0"
            raise PlanError(f"{name} is {value:g}", f"a number, {least}")

    def plain(self) -> dict[str, Any]:
        """As plain values, without unknown ones."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return values if values.keys() - {"currency"} else {}


def read(stored: Any) -> Costs | None:
    """The costs of plain values from a store; None if they are invalid or empty."""
    if not isinstance(stored, Mapping):
        return None
    values = {name: stored[name] for name in KEYS if name in stored}
    currency = values.pop("currency", "USD")
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in values.values())
    if not values or not numbers or not isinstance(currency, str):
        return None
    try:
        return Costs(currency=currency, **{name: float(n) for name, n in values.items()})
    except (PlanError, OverflowError):
        return None
