"""What a plan says: its shape, its line, its workers and spills, without a server."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.plan_text import as_text
from pgpaces.core.findings import finding
from pgpaces.monitor import plans
from pgpaces.trial import monitors

SCAN = {"Node Type": "Seq Scan", "Relation Name": "a", "Total Cost": 1.5, "Filter": "(x = 1)"}


def node(kind: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Node Type": kind, **{k.replace("_", " "): v for k, v in more.items()},
            **({"Plans": list(children)} if children else {})}  # fmt: skip


PARALLEL = node(
    "Aggregate",
    node(
        "Gather",
        node(
            "Aggregate",
            node(
                "Hash Join",
                node("Seq Scan", Relation_Name="pgbench_reporting", Parallel_Aware=True,
                     Parent_Relationship="Outer"),
                node("Hash", node("Seq Scan", Relation_Name="b"), Parent_Relationship="Inner"),
                Join_Type="Left", Sort_Space_Used=3, Sort_Space_Type="Disk",
            ),
            Strategy="Hashed", Partial_Mode="Partial", Disk_Usage=5,
        ),
        Workers_Planned=2, Workers_Launched=1,
    ),
    Strategy="Sorted", Partial_Mode="Finalize", Temp_Written_Blocks=4,
)  # fmt: skip


def test_a_plan_in_one_line_is_the_way_of_its_rows():
    assert plans.summary(PARALLEL) == (
        "Parallel Seq Scan on pgbench_reporting > Hash Left Join (Seq Scan on b)"
        " > Partial HashAggregate > Gather > Finalize GroupAggregate"
    )


TEXT = """\
Finalize GroupAggregate
  Temp Written Blocks: 4
  ->  Gather
        Workers Planned: 2
        Workers Launched: 1
        ->  Partial HashAggregate
              Disk Usage: 5
              ->  Hash Left Join
                    Sort Space Used: 3
                    Sort Space Type: Disk
                    ->  Parallel Seq Scan on pgbench_reporting
                    ->  Hash
                          ->  Seq Scan on b b1  (cost=0.00..1.50 rows=2 width=4)  \
(actual time=0.010..0.020 rows=2 loops=3)
                                Filter: (x = 1)
Execution Time: 1.5"""


def test_a_plan_as_a_text_is_the_tree_that_explain_prints():
    tree = json.loads(json.dumps(PARALLEL))
    scan = tree["Plans"][0]["Plans"][0]["Plans"][0]["Plans"][1]["Plans"][0]
    scan |= {"Alias": "b1", "Startup Cost": 0.0, "Total Cost": 1.5, "Plan Rows": 2, "Plan Width": 4,
             "Actual Startup Time": 0.01, "Actual Total Time": 0.02, "Actual Rows": 2,
             "Actual Loops": 3, "Filter": "(x = 1)", "Rows Removed by Filter": 0,
             "Workers": [{"Worker Number": 0, "Actual Rows": 2, "Temp": 0}]}  # fmt: skip
    plan = [{"Plan": tree, "Planning": {"Shared Hit Blocks": 3}, "Execution Time": 1.5}]
    assert as_text(json.dumps(plan)) == TEXT


@pytest.mark.parametrize("plan", ["", "Seq Scan on a", "[]", "[1]", '[{"Plan": {}}]', "{}"])
def test_what_is_no_plan_is_shown_as_it_is(plan):
    assert as_text(plan) == plan


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (node("Result"), "Result"),
        (node("Index Only Scan", Index_Name="i", Relation_Name="t"),
         "Index Only Scan using i on t"),
        (node("ModifyTable", SCAN, Operation="Update", Relation_Name="a"),
         "Seq Scan on a > Update on a"),
        (node("Nested Loop", SCAN, SCAN, Join_Type="Semi"),
         "Seq Scan on a > Nested Loop Semi Join (Seq Scan on a)"),
        (node("Nested Loop", SCAN, node("Bitmap Heap Scan", node("Bitmap Index Scan",
                                                                 Index_Name="i"),
                                        Relation_Name="b"), Join_Type="Inner"),
         "Seq Scan on a > Nested Loop (Bitmap Heap Scan on b)"),
        (node("Seq Scan", node("Result", Parent_Relationship="InitPlan"), Relation_Name="a"),
         "Seq Scan on a"),
        (node("Aggregate", SCAN, Strategy="Plain", Partial_Mode="Simple"),
         "Seq Scan on a > Aggregate"),
    ],
)  # fmt: skip
def test_nodes_are_called_as_explain_calls_them(tree, line):
    assert plans.summary(tree) == line


def test_workers_and_spills_are_those_of_the_whole_tree():
    found = plans.read(json.dumps([{"Plan": PARALLEL}]), (1, 2), 8192, analyze=True)
    assert (found.script, found.command, found.analyzed) == (1, 2, True)
    assert (found.workers_planned, found.workers_launched) == (2, 1)
    assert found.spilled_bytes == 4 * 8192, "the root's blocks hold those of the sort"
    untold = {**PARALLEL, "Temp Written Blocks": 0}
    found = plans.read(json.dumps([{"Plan": untold}]), (1, 2), 8192, analyze=True)
    assert found.spilled_bytes == 8 * 1024


NUMBERS = st.dictionaries(
    st.sampled_from(["Total Cost", "Plan Rows", "Actual Rows", "Filter", "Workers Launched",
                     "Index Cond", "Alias", "Temp Written Blocks"]),
    st.integers(0, 99),
)  # fmt: skip


@given(NUMBERS, NUMBERS)
def test_costs_rows_times_and_parameters_are_no_part_of_the_shape(one, other):
    def tree(numbers: dict[str, int]) -> dict[str, Any]:
        return {**node("Gather", {**SCAN, **numbers}), **numbers}

    assert plans.shape(tree(one)) == plans.shape(tree(other))


@pytest.mark.parametrize(
    "other",
    [
        {**SCAN, "Relation Name": "b"},
        {**SCAN, "Node Type": "Index Scan"},
        {**SCAN, "Index Name": "i"},
        {**SCAN, "Parallel Aware": True},
        {**SCAN, "Plans": [SCAN]},
        node("Gather", SCAN),
    ],
)
def test_another_plan_has_another_shape(other):
    assert plans.shape(other) != plans.shape(SCAN)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", "plan"),
        (" ( (select 1))", "plan"),
        ("-- BEGIN\n/* a /* b */ c */ WITH x AS (SELECT 1) SELECT * FROM x", "plan"),
        ("/* never ended SELECT 1", "other"),
        ("values (1)", "plan"),
        ("TABLE t", "plan"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "plan"),
        ("BEGIN", "transaction"),
        ("end;", "transaction"),
        ("START TRANSACTION", "transaction"),
        ("rollback to s", "transaction"),
        ("PREPARE TRANSACTION 'x'", "transaction"),
        ("set transaction read only", "transaction"),
        ("PREPARE x AS SELECT 1", "other"),
        ("EXECUTE x", "other"),
        ("SET work_mem = '1MB'", "other"),
        ("selected", "other"),
        ("", "other"),
    ],
)
def test_statements_are_told_apart_by_their_first_word(sql, kind):
    assert plans.kind_of(sql) == kind


@given(st.text(alphabet="/*-\n ();SELECT", max_size=60))
def test_any_text_is_of_some_kind(text):
    assert plans.kind_of(text) in ("plan", "transaction", "other")


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (json.dumps([{"Plan": SCAN}]), True),
        ("[\n]", False),
        ('["Notify", {"Plan": {"Node Type": "Result"}}]', False),
        ("", False),
    ],
)
def test_a_statement_that_rules_replace_has_no_plan(text, has):
    assert plans.has_plan(text) == has


def test_a_script_that_gives_up_has_no_plans_and_does_not_end_the_trial(monkeypatch):
    explained: list[Any] = []
    monkeypatch.setattr(plans, "explain", lambda *all_, **_: explained.extend(all_[2]) or [])
    scripts = [
        SimpleNamespace(name="bad", text="\\set x 1 / 0\nSELECT :x;"),
        SimpleNamespace(name="good", text="SELECT 1;"),
    ]
    work = SimpleNamespace(
        request=SimpleNamespace(workload=SimpleNamespace(is_scripts=True)),
        variables=dict,
        prepared=SimpleNamespace(dbname="bench"),
    )
    component = SimpleNamespace(
        work=work, scripts=scripts, plan=SimpleNamespace(seed=1),
        node=monitors.POOL, command=None,
    )  # fmt: skip
    ready = SimpleNamespace(
        components=[component], prepared=work.prepared, request=SimpleNamespace(as_is=False),
        primary=lambda: SimpleNamespace(keywords={}, password=None),
    )  # fmt: skip
    every = monitors.Monitors(cast("Any", ready))
    every.explain()
    assert explained == [(1, 0, "SELECT 1;")]
    assert every.notes() == [finding("script-unexplained", why="bad:1: division by zero")]
