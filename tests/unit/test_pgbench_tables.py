"""What pgbench's tables are made of: SQL, rows and lines, without a server."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import pq

from pgpaces.database.pgbench_tables import (
    FOREIGN_KEYS,
    FillProgress,
    Tables,
    TablesError,
    blocks,
    create_statements,
    fill_statements,
    initialize,
    partition_statements,
    primary_key_statements,
)

# --- SQL ------------------------------------------------------------------------------------


def test_the_tables_are_made_in_pgbenchs_order_with_its_columns() -> None:
    assert create_statements(Tables()) == [
        "create table pgbench_history(tid int,bid int,aid    int,delta int,mtime timestamp,"
        "filler char(22))",
        "create table pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84))"
        " with (fillfactor=100)",
        "create table pgbench_accounts(aid    int not null,bid int,abalance int,filler char(84))"
        " with (fillfactor=100)",
        "create table pgbench_branches(bid int not null,bbalance int,filler char(88))"
        " with (fillfactor=100)",
    ]


@pytest.mark.parametrize(("scale", "kind"), [(19_999, "int"), (20_000, "bigint")])
def test_accounts_get_bigint_numbers_where_int_does_not_reach(scale: int, kind: str) -> None:
    for statement in create_statements(Tables(scale=scale)):
        for column in statement.split("(", 1)[1].split(","):
            name, found, *_ = column.split()
            if name == "aid":
                assert found == kind


def test_all_tables_are_unlogged_and_in_the_tablespace_that_is_asked_for() -> None:
    statements = create_statements(Tables(unlogged=True, tablespace='a "b"'))
    assert len(statements) == 4
    assert all(s.startswith("create unlogged table ") for s in statements)
    assert all(s.endswith(' tablespace "a ""b"""') for s in statements)
    assert not any(" tablespace " in s for s in create_statements(Tables(index_tablespace="x")))


def test_with_partitions_these_alone_are_unlogged_and_have_the_fillfactor() -> None:
    tables = Tables(unlogged=True, partitions=2, fillfactor=50)
    whole = create_statements(tables)
    assert not any("unlogged" in s for s in whole)
    [accounts] = [s for s in whole if "pgbench_accounts" in s]
    assert accounts.endswith(" partition by range (aid)")
    parts = list(partition_statements(tables))
    assert all(s.startswith("create unlogged table pgbench_accounts_") for s in parts)
    assert all(s.endswith(" with (fillfactor=50)") for s in parts)


def bounds(tables: Tables) -> list[tuple[str, str]]:
    """Where each partition begins, and where the next one does."""
    pattern = re.compile(r"for values from \((\w+)\) to \((\w+)\) with")
    found = [pattern.search(statement) for statement in partition_statements(tables)]
    return [(match[1], match[2]) for match in found if match]


@pytest.mark.parametrize(
    ("scale", "partitions", "expected"),
    [
        (1, 1, [("minvalue", "maxvalue")]),
        (1, 2, [("minvalue", "50001"), ("50001", "maxvalue")]),
        (2, 3, [("minvalue", "66668"), ("66668", "133335"), ("133335", "maxvalue")]),
        (50_000, 2, [("minvalue", "2500000001"), ("2500000001", "maxvalue")]),
    ],
)
def test_ranges_are_of_equal_size_and_open_at_both_ends(
    scale: int, partitions: int, expected: list[tuple[str, str]]
) -> None:
    assert bounds(Tables(scale=scale, partitions=partitions)) == expected


@pytest.mark.parametrize("partitions", [1, 2, 7, 100, 100_001])
def test_ranges_leave_no_gap(partitions: int) -> None:
    found = bounds(Tables(scale=1, partitions=partitions))
    assert len(found) == partitions
    assert [behind for _, behind in found[:-1]] == [first for first, _ in found[1:]]


def test_hash_partitions_have_one_remainder_each() -> None:
    statements = partition_statements(Tables(partitions=3, partition_method="hash"))
    assert [s.split("values ")[1] for s in statements] == [
        f"with (modulus 3, remainder {n}) with (fillfactor=100)" for n in range(3)
    ]


def test_without_partitions_there_is_no_statement_for_them() -> None:
    assert not list(partition_statements(Tables()))


def test_keys_are_made_in_pgbenchs_order_and_where_it_was_said() -> None:
    assert primary_key_statements(Tables()) == [
        "alter table pgbench_branches add primary key (bid)",
        "alter table pgbench_tellers add primary key (tid)",
        "alter table pgbench_accounts add primary key (aid)",
    ]
    assert all(
        s.endswith(' using index tablespace "fast"')
        for s in primary_key_statements(Tables(index_tablespace="fast"))
    )
    assert FOREIGN_KEYS[-1] == (
        "alter table pgbench_history add constraint pgbench_history_aid_fkey"
        " foreign key (aid) references pgbench_accounts"
    )


# --- rows -----------------------------------------------------------------------------------


def rows(table: str, scale: int) -> list[list[str]]:
    text = b"".join(block for _, block in blocks(table, scale)).decode()
    assert text.endswith("\n")
    return [line.split("\t") for line in text[:-1].split("\n")]


def test_rows_belong_to_their_branch_and_fillers_are_null_but_in_accounts() -> None:
    assert rows("branches", 3) == [[str(n), "0", "\\N"] for n in (1, 2, 3)]
    assert rows("tellers", 2) == [
        [str(n), "1" if n <= 10 else "2", "0", "\\N"] for n in range(1, 21)
    ]
    accounts = rows("accounts", 2)
    assert accounts == [[str(n), "1" if n <= 100_000 else "2", "0", ""] for n in range(1, 200_001)]


def test_blocks_say_how_many_rows_there_are_so_far() -> None:
    done = [rows for rows, _ in blocks("accounts", 1)]
    assert done == list(range(10_000, 100_001, 10_000))
    assert [rows for rows, _ in blocks("tellers", 1001)] == [10_000, 10_010]


def test_blocks_are_large_enough_for_few_writes_and_small_enough_for_memory() -> None:
    sizes = [len(block) for _, block in blocks("accounts", 2)]
    assert all(50_000 < size < 1_000_000 for size in sizes)


def test_the_server_is_told_to_make_as_many_rows() -> None:
    counts = [s.rsplit("(1, ", 1)[1] for s in fill_statements(Tables(scale=30_000))]
    assert counts == ["30000) as bid", "300000) as tid", "3000000000) as aid"]


# --- progress -------------------------------------------------------------------------------


def lines(
    seen: list[tuple[int, float]], total: int, *, quiet: bool
) -> list[tuple[str, int]]:  # fmt: skip
    said: list[tuple[str, int]] = []
    fill = FillProgress("pgbench_accounts", total, quiet, lambda *line: said.append(line))
    for done, elapsed_s in seen:
        fill.report(done, elapsed_s)
    fill.ended()
    return said


def test_a_line_comes_each_100000_rows_with_how_long_the_rest_will_take() -> None:
    seen = [(n * 50_000, n * 1.0) for n in range(1, 7)]
    first, second, third, wiped = lines(seen, 300_000, quiet=False)
    assert first == (
        "100000 of 300000 tuples (33%) of pgbench_accounts done (elapsed 2.00 s, remaining 4.00 s)",
        0,
    )
    assert second[0].startswith("200000 of 300000 tuples (66%) ")
    assert third[0].endswith(" (elapsed 6.00 s, remaining 0.00 s)")
    assert [width for _, width in (second, third)] == [len(first[0]), len(second[0])]
    assert wiped == ("", len(third[0]))


def test_under_quiet_a_line_comes_each_five_seconds_and_at_the_end() -> None:
    seen = [(n * 10_000, n * 1.3) for n in range(1, 11)]
    said = [text.split()[0] for text, _ in lines(seen, 100_000, quiet=True) if text]
    assert said == ["40000", "80000", "100000"]  # behind 5.2 s, 10.4 s, and at the end


def test_under_quiet_lines_missed_in_a_long_wait_are_not_made_up_for() -> None:
    seen = [(100, 0.1), (200, 17.0), (300, 17.1), (400, 19.9), (500, 20.0)]
    said = [text.split()[0] for text, _ in lines(seen, 1_000, quiet=True) if text]
    assert said == ["200", "500"]


def test_small_tables_have_no_line_and_nothing_to_wipe_out() -> None:
    assert lines([(10, 0.0)], 10, quiet=False) == []
    assert lines([(10, 0.0)], 10, quiet=True) == []
    assert len(lines([(100, 0.0)], 100, quiet=True)) == 2


# --- Ctrl-C ---------------------------------------------------------------------------------


class Interrupted:
    """A connection on which Ctrl-C comes when the statement is sent and nobody waits for it yet."""

    info = SimpleNamespace(transaction_status=pq.TransactionStatus.ACTIVE)
    pgconn = SimpleNamespace(notice_handler=None)

    def __init__(self) -> None:
        self.cancelled = 0

    def execute(self, _: bytes) -> None:
        raise KeyboardInterrupt

    def cancel_safe(self, *, timeout: float) -> None:
        assert timeout > 0
        self.cancelled += 1


def test_ctrl_c_leaves_no_statement_running_in_the_server() -> None:
    connection, said = Interrupted(), list[str]()
    with pytest.raises(TablesError) as caught:
        initialize(cast(Any, connection), Tables(), "v", say=said.append, progress=lambda *_: None)
    assert connection.cancelled == 1
    assert said == ["vacuuming...\n", "Cancel request sent\n"]
    assert caught.value.detail == "Query was: vacuum analyze pgbench_branches"
