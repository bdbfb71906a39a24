"""Why late, on the embedded server: from a lock that was really held to the command's answer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.integration import causes

import pgpaces
from pgpaces.analysis.attribution.answer import Attribution, Card
from pgpaces.cli.main import cli

pytestmark = pytest.mark.postgres

# Seeds by which an UPDATE of all branches holds them, and by which clients are far too few.
LOCKED, SLEPT = 3, 11


def named(found: Attribution, key: str) -> Card:
    """The card of a cause that is named: first, unless this machine stood still meanwhile."""
    cards = [card for card in found.causes if card.named]
    stood_still = [card for card in cards if card.key in ("freeze", "steal")]
    [card] = [card for card in cards if card.key == key]
    assert card is cards[0] or cards[0] in stood_still, found
    return card


@pytest.mark.slow
def test_a_session_that_holds_rows_is_named(pgpaces_home, tmp_path):
    place = causes.Place(tmp_path, LOCKED, seconds=7)
    run = causes.lock(place)
    found = pgpaces.why(run.id, store=place.store).value
    cause = named(found, "lock")
    said = " ".join(cause.evidence)
    assert "nightly job" in said
    assert "UPDATE pgbench_branches" in said

    report = tmp_path / "why.html"
    words = ["why", "--json", "-o", str(report), "--store", str(place.store)]
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 0, told.output
    [answer] = json.loads(told.stdout)
    assert "lock" in [each["key"] for each in answer["value"]["causes"]]
    assert answer["trials"] == [run.id]
    page = report.read_text()
    assert page.count('<h2 id="h-why">Why late: ') == 1
    assert "locks that another session held" in page


def test_too_few_clients_are_named(pgpaces_home, tmp_path):
    place = causes.Place(tmp_path, SLEPT, seconds=4)
    found = pgpaces.why(causes.connections(place).id, store=place.store).value
    assert "--clients 5,10,20" in named(found, "connections").command
