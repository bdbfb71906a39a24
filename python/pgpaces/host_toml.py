"""The schema of host files. Imported only where one is read, as pydantic is."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pgpaces.costs import KEYS

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _key(name: str, default: Any = None) -> Any:
    return Field(default, description=KEYS[name])


class CostTable(BaseModel):
    """The keys as pydantic checks them."""

    model_config = ConfigDict(extra="forbid", strict=True)
    price_per_month: _Number | None = _key("price_per_month")
    price_per_h: _Number | None = _key("price_per_h")
    price: _Number | None = _key("price")
    lifetime_years: _Number | None = _key("lifetime_years")
    currency: str = _key("currency", "USD")
    watts: _Number | None = _key("watts")
    energy_price_per_kwh: _Number | None = _key("energy_price_per_kwh")
    endurance_tb: _Number | None = _key("endurance_tb")
