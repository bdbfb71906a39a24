"""Plans from real servers, old and new."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.errors import raises

from pgpaces.core.errors import ServerError
from pgpaces.core.findings import Notes
from pgpaces.database.access import Access, connect
from pgpaces.monitor.plans import explain

pytestmark = pytest.mark.postgres


@pytest.fixture
def tables(access):
    with connect(access) as admin:
        admin.execute(
            "CREATE TABLE plans_t AS SELECT i, i % 10 AS j FROM generate_series(1, 50000) i"
        )
        admin.execute("CREATE UNIQUE INDEX plans_i ON plans_t (i)")
        admin.execute("ANALYZE plans_t")
        yield access
        admin.execute("DROP TABLE plans_t")


def ask(access: Access, query: str) -> Any:
    with connect(access) as session:
        row = session.execute(query.encode()).fetchone()
        return row[0] if row else None


def with_options(access: Access, options: str) -> dict[str, str]:
    return {**access.keywords, "options": options}


def test_what_is_explained_was_executed_and_is_undone(tables):
    statements = [
        (0, 0, "BEGIN"),
        (0, 1, "UPDATE plans_t SET j = j + 1 WHERE i = 7"),
        (0, 2, "SELECT j FROM plans_t WHERE i = 7 AND j = 8"),
        (0, 3, "COMMIT"),
        (1, 0, "INSERT INTO plans_t VALUES (0, 0)"),
    ]
    found = explain(tables.keywords, "postgres", statements, analyze=True)
    assert [(e.script, e.command) for e in found] == [(0, 1), (0, 2), (1, 0)]
    assert found[0].summary == "Index Scan using plans_i on plans_t > Update on plans_t"
    [plan] = json.loads(found[1].plan)
    assert plan["Plan"]["Actual Rows"] == 1, "it saw what the update before it wrote"
    assert ask(tables, "SELECT count(*) FROM plans_t WHERE i = 0 OR (i = 7 AND j = 8)") == 0


def test_one_that_fails_does_not_end_the_others(tables):
    told = Notes()
    statements = [
        (0, 0, "SELECT nonsense"),
        (0, 1, "SELECT 1; COMMIT"),
        (0, 2, "COPY plans_t TO STDOUT"),
        (0, 3, "COPY plans_t FROM STDIN"),
        (0, 4, "VACUUM plans_t"),
        (0, 5, "DELETE FROM plans_t"),
        (0, 6, "SELECT 1/0"),
        (0, 7, "SELECT 1;"),
    ]
    found = explain(tables.keywords, "postgres", statements, analyze=True, notes=told)
    assert [e.command for e in found] == [5, 7]
    assert len(told) == 6
    assert {note.name for note in told} == {"statement-without-plan"}
    assert told[0].values["statement"] == "SELECT nonsense"
    assert ask(tables, "SELECT count(*) FROM plans_t") == 50_000


@pytest.mark.parametrize("analyze", [True, False])
def test_a_statement_that_a_rule_replaces_by_nothing_has_no_plan(tables, analyze):
    with connect(tables) as admin:
        admin.execute("CREATE RULE plans_r AS ON INSERT TO plans_t DO INSTEAD NOTHING")
    notes = Notes()
    statements = [(0, 0, "INSERT INTO plans_t VALUES (0, 0)"), (0, 1, "SELECT 1")]
    [plan] = explain(tables.keywords, "postgres", statements, analyze=analyze, notes=notes)
    assert plan.command == 1
    assert [note.name for note in notes] == ["statement-replaced-by-rules"]


def test_without_analyze_nothing_is_executed(tables):
    statements = [(0, 0, "CREATE TABLE plans_new ()"), (0, 1, "SELECT pg_sleep(60)"),
                  (0, 2, "TABLE plans_new")]  # fmt: skip
    [found] = explain(tables.keywords, "postgres", statements, analyze=False)
    assert (found.command, found.analyzed, found.workers_launched) == (1, False, 0)


def test_a_plan_keeps_its_shape_for_other_parameters_and_not_for_another_way(tables):
    def shapes(options: str) -> list[str]:
        sql = "SELECT * FROM plans_t WHERE i = "
        statements = [(0, 0, f"{sql}5"), (0, 1, f"{sql}4000")]
        keywords = with_options(tables, options)
        return [e.shape for e in explain(keywords, "postgres", statements, analyze=True)]

    first, second = shapes("")
    assert first == second
    [other, _] = shapes("-c enable_indexscan=off -c enable_bitmapscan=off")
    assert other != first


def test_workers_and_spills_are_counted(tables):
    forced = (
        "-c parallel_setup_cost=0 -c parallel_tuple_cost=0 -c min_parallel_table_scan_size=0"
        " -c work_mem=64kB -c max_parallel_workers_per_gather=2"
    )
    statements = [
        (0, 0, "SELECT count(*) FROM plans_t"),
        (0, 1, "SELECT * FROM plans_t ORDER BY j"),
    ]
    count, sort = explain(with_options(tables, forced), "postgres", statements, analyze=True)
    assert count.workers_planned == 2
    assert 0 <= count.workers_launched <= 2
    assert "Parallel" in count.summary
    assert sort.spilled_bytes > 100_000
    [idle] = explain(with_options(tables, ""), "postgres", [(0, 0, "SELECT 1")], analyze=True)
    assert (idle.workers_planned, idle.spilled_bytes) == (0, 0)


def test_a_server_that_is_away_is_an_error_of_ours(access):
    with raises(ServerError, "plans-unavailable"):
        explain(access.keywords, "no_such_database", [(0, 0, "SELECT 1")], analyze=True)
