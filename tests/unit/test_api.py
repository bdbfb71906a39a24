"""`pgpaces.run(...)`: what its arguments ask for, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pgpaces
from pgpaces.errors import PlanError


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (None, {}, "nothing to run was named"),
        ("reporting", {"target": "host=pi4", "profile": "pi-4gb"}, "profile is for servers of"),
        ("reporting", {"target": "host=pi4", "tls": False}, "tls is for servers of ours"),
        ("reporting", {"target": "host=pi4", "server_settings": {"a": 1}}, "server_settings is"),
        ("reporting", {"own": "mine"}, "need a target"),
        ("reporting", {"profile": "pi-4g"}, "there is no profile 'pi-4g'"),
        ("reporting", {"host_file": "/nowhere/host.toml"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    name: str | None, given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=said):
        pgpaces.run(name, store=tmp_path / "results.db", **given)
    assert not (tmp_path / "results.db").exists()
