"""The price of a machine, from a host file or an experiment file (TOML), and its monthly cost.

The price is stored with each trial. A month has 730 hours, a twelfth of a year, as providers count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from pgpaces.core import toml_files
from pgpaces.core.errors import PlanError
from pgpaces.core.home import expanded, home, is_there

HOURS_A_MONTH = 730.0
NAME = "host.toml"
VARIABLE = "PGPACES_HOST_FILE"
# In a host file, and below `[targets.NAME]` of an experiment file.
KEYS = {
    "price_per_month": "Monthly price of the machine.",
    "price_per_hour": "Hourly price of the machine, instead of the monthly price.",
    "currency": "Currency of the prices. Default: USD.",
}
_Price = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Costs(toml_files.Table, frozen=True):
    """The price of a machine; None: unknown. Raises PlanError for two prices."""

    price_per_month: Annotated[_Price | None, Meta(description=KEYS["price_per_month"])] = None
    price_per_hour: Annotated[_Price | None, Meta(description=KEYS["price_per_hour"])] = None
    currency: Annotated[str, Meta(min_length=1, description=KEYS["currency"])] = "USD"

    def __post_init__(self) -> None:
        if None not in (self.price_per_month, self.price_per_hour):
            raise PlanError("cannot-combine", options=["price_per_month", "price_per_hour"])
        for name in ("price_per_month", "price_per_hour"):
            if not 0 <= (getattr(self, name) or 0) <= sys.float_info.max:
                raise PlanError(
                    "out-of-range", what=name, value=getattr(self, name), range="from 0"
                )

    @property
    def a_month(self) -> float | None:
        if self.price_per_hour is not None:
            return self.price_per_hour * HOURS_A_MONTH
        return self.price_per_month

    def plain(self) -> dict[str, Any]:
        """The keys that have a value; empty without a price."""
        if self.a_month is None:
            return {}
        return {name: value for name, value in asdict(self).items() if value is not None}


class MonthlyCost(Struct, frozen=True):
    """The price of all machines of a trial for a month, in `currency`."""

    currency: str
    month: float

    @property
    def year(self) -> float:
        return 12 * self.month


def monthly(documents: Iterable[Any]) -> MonthlyCost | None:
    """The cost of machines by what is stored of each.

    None unless all have a price in the same currency.
    """
    machines = [read(each) for each in documents]
    prices = [(one.currency, one.a_month or 0.0) for one in machines if one is not None]
    currencies = {currency for currency, _ in prices}
    if len(currencies) != 1 or len(prices) != len(machines):
        return None
    return MonthlyCost(currencies.pop(), sum(price for _, price in prices))


def read(stored: Any) -> Costs | None:
    """The price from plain values of a store; None if there is none or it is invalid."""
    try:
        found = msgspec.convert(stored, Costs)
    except (msgspec.ValidationError, PlanError, OverflowError):
        return None
    return None if found.a_month is None else found


def find(named: str | Path | None = None) -> Costs | None:
    """The price in the named file, else $PGPACES_HOST_FILE, else host.toml in the data folder.

    None if no file is named and the data folder has none. Raises PlanError with the key.
    """
    named = named or os.environ.get(VARIABLE)
    path = expanded(named) if named else home() / NAME
    if not named and not is_there(path, Path.is_file):
        return None
    content = toml_files.document(path, PlanError)
    try:
        return toml_files.table(Costs, content)
    except PlanError as error:
        raise error.at(f"the host file {path}") from None
