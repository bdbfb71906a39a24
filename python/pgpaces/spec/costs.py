"""The price of a machine, as its owner enters it, also in a host file (TOML).

Facts of a machine, stored with each trial. A year has 8760 hours and a month a
twelfth of them, 730, as providers of machines count.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct
from msgspec.structs import asdict, fields

from pgpaces.core import tables
from pgpaces.core.errors import PlanError
from pgpaces.core.home import expanded, home, is_there

HOURS_A_YEAR = 8760.0
MONTHS = 12
HOURS_A_MONTH = HOURS_A_YEAR / MONTHS
PRICES = ("price_per_month", "price_per_hour", "price")
# In a host file, and below `[targets.NAME]` of an experiment file.
KEYS = {
    "price_per_month": "Monthly price of the machine.",
    "price_per_hour": "Hourly price of the machine, instead of the monthly price.",
    "price": "Purchase price of the machine, with `lifetime_years`.",
    "lifetime_years": "Number of years over which the purchase price is spread.",
    "currency": "Currency of the prices. Default: USD.",
}


class Costs(Struct, frozen=True):
    """The costs of a machine; None: not known. At most one of the three prices is set.

    price, lifetime_years: of one that was bought. Raises PlanError for invalid values.
    """

    price_per_month: float | None = None
    price_per_hour: float | None = None
    price: float | None = None
    lifetime_years: float | None = None
    currency: str = "USD"

    def __post_init__(self) -> None:
        prices = [name for name in PRICES if getattr(self, name) is not None]
        if len(prices) > 1:
            raise PlanError("cannot-combine", options=prices)
        if (self.price is None) is not (self.lifetime_years is None):
            raise PlanError("price-without-lifetime")
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "currency":
                free = field.name in PRICES
                if not math.isfinite(value) or value < 0 or (value == 0 and not free):
                    least = "at least 0" if free else "more than 0"
                    number = f"{value:g}"
                    raise PlanError("out-of-range", what=field.name, value=number, range=least)
        if not self.currency.strip():
            raise PlanError("currency-empty")

    @property
    def a_month(self) -> float | None:
        """price_per_month, or price_per_hour x 730 h, or price / (12 x lifetime_years)."""
        if self.price_per_month is not None:
            return self.price_per_month
        if self.price_per_hour is not None:
            return self.price_per_hour * HOURS_A_MONTH
        if self.price is not None and self.lifetime_years is not None:
            return self.price / (MONTHS * self.lifetime_years)
        return None

    @property
    def an_hour(self) -> float | None:
        return None if self.a_month is None else self.a_month / HOURS_A_MONTH

    def plain(self) -> dict[str, Any]:
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return values if values.keys() - {"currency"} else {}


class MonthlyCost(Struct, frozen=True):
    """The price of machines for a month, in `currency`; None: unknown."""

    currency: str
    month: float | None = None

    @classmethod
    def of(cls, machines: Sequence[Costs]) -> MonthlyCost:
        """Of machines together: prices add up if all are known and have the same currency."""
        currencies = {one.currency for one in machines}
        prices = [price for one in machines if (price := one.a_month) is not None]
        complete = len(currencies) == 1 and len(prices) == len(machines)
        return MonthlyCost(" and ".join(sorted(currencies)), sum(prices) if complete else None)

    @property
    def year(self) -> float | None:
        return None if self.month is None else MONTHS * self.month


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


NAME = "host.toml"
VARIABLE = "PGPACES_HOST_FILE"

_AMOUNT = Annotated[float, Meta(ge=0)]
# The keys as TOML has them, with their descriptions.
CostTable: Any = defstruct(
    "CostTable",
    [
        (name, Annotated[str, Meta(description=text)], "USD")
        if name == "currency"
        else (name, Annotated[_AMOUNT | None, Meta(description=text)], None)
        for name, text in KEYS.items()
    ],
    bases=(tables.Table,),
    frozen=True,
    kw_only=True,
)


def read_file(path: Path) -> Costs:
    """The costs in a file. Raises PlanError with the key and the defect."""
    content = tables.document(path, PlanError)
    try:
        return Costs(**asdict(tables.table(CostTable, content)))
    except tables.WrongKeyError as error:
        raise tables.wrong_key(error).at(f"the host file {path}") from None
    except PlanError as error:
        raise error.at(f"the host file {path}") from None


def find(named: str | Path | None = None) -> Costs | None:
    """The costs in the named file, else $PGPACES_HOST_FILE, else host.toml in the data folder.

    None if no file is named and the data folder has none. Raises PlanError.
    """
    if named := named or os.environ.get(VARIABLE):
        return read_file(expanded(named))
    usual = home() / NAME
    return read_file(usual) if is_there(usual, Path.is_file) else None
