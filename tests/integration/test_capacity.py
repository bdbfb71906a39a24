"""A search for a capacity on the embedded server: interrupted, resumed, to its answer."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.commands import Command
from tests.integration.sweeps import rows_of
from tests.waiting import until

from pgpaces.answers.capacity.api import load_capacity
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres

# One or two users can be offered: four short trials at two answer.
SEARCH = (
    "capacity", "select-only", "--scale", "1", "--users", "1,2", "--pace", "20/s", "-L", "1s",
    "--quick",
)  # fmt: skip


def test_what_ctrl_c_ends_is_kept_and_gone_on_with(pgpaces: Command, tmp_path: Path) -> None:
    process = pgpaces.start(*SEARCH)
    until(lambda: rows_of(pgpaces.store) > 0, "a second of a trial")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "The search has not ended" in " ".join(out.split())
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    assert row.state == "interrupted"
    assert f"resume with: pgpaces capacity --resume {row.id}" in err
    before = [each.id for each in store.placed(row.id)]

    page = tmp_path / "page.html"
    done = pgpaces("capacity", "--resume", "-o", page, "--json")
    assert done.code == 0, done.err
    assert Store.open(pgpaces.store).experiments()[0].state == "finished"
    found = json.loads(done.out)["sections"]["capacity"]
    assert set(before) < set(found["trials"])
    [cell] = found["value"]["cells"]
    assert (cell["unit"], cell["proved"], cell["ended"]) == ("users", 2, True)
    assert cell["worth"]["users"] == 2
    assert "Meets it up to 2 users; unknown above" in page.read_text()
    answer = load_capacity(store=pgpaces.store)
    assert answer.value.cells[0].levels == {}
    assert answer.sentences[0] == "Meets it up to 2 users; unknown above."
