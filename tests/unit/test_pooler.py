"""Poolers of ours: what their configurations say, and which loads they are refused for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, ServerError
from pgpaces.server import pooler
from pgpaces.server.folder import ServerRecord
from pgpaces.server.pooler import SPARE, PoolerProgram, PoolSpec
from pgpaces.spec.target import PoolMode, PoolPlan
from pgpaces.trial.request import pool_of
from tests.errors import raises, sentence

MODES: tuple[PoolMode, ...] = ("session", "transaction")


def server(name: str, folder: str = "/srv") -> ServerRecord:
    where = Path(folder) / name
    return ServerRecord(name, "18.1", 18, Path("/b"), where / "run", 5432, where, 1, 1, stays=False)


def setting(plan: PoolPlan, standbys: int = 0, version: str = "1.18.0", **more: Any) -> PoolSpec:
    servers = (server("pg18"), *(server(f"pg18-standby{n + 1}") for n in range(standbys)))
    made = PoolSpec(
        plan,
        PoolerProgram(Path("/p"), version),
        7,
        9,
        servers,
        Path("/srv/pool/run"),
        Path("/srv/pool"),
    )
    return replace(made, **more)


def values(text: str) -> dict[str, str]:
    """The names and values of a configuration; quotes of pgpool's are taken away."""
    pairs = re.findall(r"^(\S+) = (.*)$", text, re.MULTILINE)
    return {name: value.strip("'") if name != "*" else value for name, value in pairs}


# A pool, the standbys of its server, and what its configuration says.
CONFIGURED: list[tuple[PoolPlan, int, dict[str, str]]] = [
    *(
        (
            PoolPlan("pgbouncer", mode), 2,
            # Nobody else reaches it, and it closes nothing that a load waits for.
            {"*": "host='/srv/pg18/run' port=5432", "pool_mode": mode, "default_pool_size": "7",
             "listen_addr": "", "server_idle_timeout": "0", "query_wait_timeout": "0"},
        )
        for mode in MODES
    ),
    (
        PoolPlan("pgpool"), 2,
        # Reads go to the standbys, and no other server becomes the primary.
        {"backend_weight0": "0", "backend_weight1": "1", "backend_weight2": "1",
         "load_balance_mode": "on", "backend_hostname1": "/srv/pg18-standby1/run",
         "backend_flag0": "DISALLOW_TO_FAILOVER", "backend_flag1": "DISALLOW_TO_FAILOVER",
         "failover_on_backend_error": "off", "health_check_period": "0"},
    ),
    (
        PoolPlan("pgpool"), 0,
        {"load_balance_mode": "off", "backend_weight0": "1", "sr_check_period": "0",
         "num_init_children": str(7 + SPARE)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "standbys", "expected"), CONFIGURED)
def test_a_configuration_is_that_of_its_servers(plan, standbys, expected):
    found = values(pooler.configuration(setting(plan, standbys)))
    assert {name: found.get(name) for name in expected} == expected
    assert "backend_hostname3" not in found
    assert int(found.get("max_client_conn", 10)) > 9


@pytest.mark.parametrize(("version", "there"), [("1.18.0", False), ("1.21", True), ("2.0", True)])
def test_pgbouncer_is_told_of_prepared_statements_where_it_knows_them(version, there):
    text = pooler.configuration(setting(PoolPlan("pgbouncer", "transaction"), version=version))
    assert ("max_prepared_statements" in text) is there


FOLDER = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="/."),
    min_size=1,
    max_size=9,
)


@given(FOLDER)
def test_any_folder_can_be_named_or_is_refused(name):
    # A quote in quotes is doubled by pgbouncer's rules; pgpool has no way to write one.
    odd = (server("pg18", f"/srv/{name}"),)
    line = pooler.configuration(setting(PoolPlan("pgbouncer"), servers=odd)).split("\n")[1]
    told = re.fullmatch(r"\* = host='((?:[^']|'')*)' port=5432", line)
    assert told is not None
    assert told[1].replace("''", "'") == f"/srv/{name}/pg18/run"
    if "'" in name or "\\" in name:
        with raises(ServerError, "pgpool-misreads"):
            pooler.configuration(setting(PoolPlan("pgpool"), servers=odd))
    else:
        text = pooler.configuration(setting(PoolPlan("pgpool"), servers=odd))
        assert f"backend_hostname0 = '/srv/{name}/pg18/run'\n" in text


@pytest.mark.parametrize("version", ["1.18.0", "1.20.9", "1.21.0", "1.24.1"])
@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_prepared_statements_in_transaction_mode_need_a_pgbouncer_that_knows_them(
    version, mode, protocol
):
    plan, program = PoolPlan("pgbouncer", mode), PoolerProgram(Path("/p"), version)
    if mode == "transaction" and protocol == "prepared" and version < "1.21":
        with raises(PlanError, "pool-loses-prepared-statements", version=version):
            pooler.check(plan, program, protocol)
    else:
        pooler.check(plan, program, protocol)


def test_no_pool_is_a_level():
    assert pool_of({"pool": "none"}) is None


@pytest.mark.parametrize(("which", "package"), [("pgbouncer", "pgbouncer"), ("pgpool", "pgpool2")])
def test_a_pooler_that_is_not_here_is_said_with_its_package(which, package, monkeypatch):
    monkeypatch.setattr(pooler, "_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with raises(ServerError, "not-installed", program=which, package=package):
        pooler.find(which)


def test_a_run_and_an_experiment_with_a_pooler_that_is_not_here_begin_nothing(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(pooler, "_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    store = tmp_path / "results.db"
    for words in (["run", "--pool", "pgpool"], ["sweep", "--pool", "none,pgpool", "--dry-run"]):
        called = CliRunner().invoke(cli, [*words, "select-only", "--store", str(store)])
        assert isinstance(called.exception, ServerError), called.output
        assert called.exception.message == sentence("not-installed", program="pgpool")
        assert called.exception.exit_code == 10
    assert not store.exists()


def test_a_program_that_does_not_print_its_version_is_refused(tmp_path, monkeypatch):
    program = tmp_path / "pgbouncer"
    program.write_text("#!/bin/sh\necho something else\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with raises(ServerError, "program-failed", why="something else"):
        pooler.find("pgbouncer")
