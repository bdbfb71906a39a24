"""The costs of a machine, as its owner enters them: a price, power, a card's endurance.

Facts of a machine, stored with each trial. Knows no files. A year has 8760 hours and a month a
twelfth of them, 730, as providers of machines count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields

from pgpaces.errors import PlanError

HOURS_A_YEAR = 8760.0
MONTHS = 12
HOURS_A_MONTH = HOURS_A_YEAR / MONTHS
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

    @property
    def price_a_month(self) -> float | None:
        """price_per_month, or price_per_h x 730 h, or price / (12 x lifetime_years)."""
        if self.price_per_month is not None:
            return self.price_per_month
        if self.price_per_h is not None:
            return self.price_per_h * HOURS_A_MONTH
        if self.price is not None and self.lifetime_years is not None:
            return self.price / (MONTHS * self.lifetime_years)
        return None

    @property
    def energy_a_month(self) -> float | None:
        """watts / 1000 x 730 h x energy_price_per_kwh."""
        if self.watts is None or self.energy_price_per_kwh is None:
            return None
        return self.watts / 1000 * HOURS_A_MONTH * self.energy_price_per_kwh

    @property
    def an_hour(self) -> float | None:
        """The cost of an hour with energy: (price + energy a month) / 730 h. None: unknown."""
        month = MonthlyCost.of([self]).month
        return None if month is None else month / HOURS_A_MONTH

    def plain(self) -> dict[str, Any]:
        """As plain values, without unknown ones."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return values if values.keys() - {"currency"} else {}


class MonthlyCost(Struct, frozen=True):
    """The price and the energy of machines, a month in `currency`; None: unknown.

    month, year: their sum, of those that are known.
    """

    currency: str
    price: float | None = None
    energy: float | None = None

    @classmethod
    def of(cls, machines: Sequence[Costs]) -> MonthlyCost:
        """Of machines together: amounts add up where all have the same currency."""
        currencies = {one.currency for one in machines}
        priced = machines if len(currencies) == 1 else ()
        return MonthlyCost(
            " and ".join(sorted(currencies)),
            total(priced, lambda one: one.price_a_month),
            total(priced, lambda one: one.energy_a_month),
        )

    @property
    def month(self) -> float | None:
        """A month's cost."""
        parts = [part for part in (self.price, self.energy) if part is not None]
        return sum(parts) if parts else None

    @property
    def year(self) -> float | None:
        """A year's cost."""
        return None if self.month is None else MONTHS * self.month


def total(machines: Sequence[Costs], value: Callable[[Costs], float | None]) -> float | None:
    """The sum over all machines; None where it is unknown for one, or there are none."""
    values = [each for one in machines if (each := value(one)) is not None]
    return sum(values) if values and len(values) == len(machines) else None


def machines_of(documents: Iterable[Any]) -> tuple[Costs, ...]:
    """The machines of a trial by what is stored of them; none if that of one is invalid."""
    machines = [read(each) for each in documents]
    return tuple(one for one in machines if one) if None not in machines else ()


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
