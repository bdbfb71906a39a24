"""Why late, on the embedded server: from clients that are too few to the command's advice."""

from __future__ import annotations

import pytest
from tests.integration import causes

import pgpaces
from pgpaces.analysis.attribution.causes import Attribution, PossibleCause

pytestmark = pytest.mark.postgres

# A seed by which clients are far too few.
SLEPT = 11


def named(found: Attribution, key: str) -> PossibleCause:
    """The card of a cause that is named: first, unless this machine stood still meanwhile."""
    cards = [card for card in found.causes if card.named]
    stood_still = [card for card in cards if card.key in ("freeze", "steal")]
    [card] = [card for card in cards if card.key == key]
    assert card is cards[0] or cards[0] in stood_still, found
    return card


def test_too_few_clients_are_named(pgpaces_home, tmp_path):
    place = causes.Place(tmp_path, SLEPT, seconds=4)
    found = pgpaces.why(causes.connections(place).id, store=place.store).value
    assert "--clients 5,10,20" in named(found, "connections").command
