"""A workload from statements: what is taken, what parameters are for, and what scripts send."""

import errno
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.capture import catalog, folder, guess, logs, parser, reader, script, uses
from pgpaces.capture import folder as folder_of
from pgpaces.capture.catalog import (
    Captured,
    CapturedScript,
    CatalogColumn,
    CatalogTable,
    Entry,
    ExcludedStatement,
    Function,
    ServerStatements,
    SourceKind,
    Type,
)
from pgpaces.capture.guess import Parameter, ValueSource
from pgpaces.capture.uses import Catalog, Role, Use
from pgpaces.core.errors import WorkloadError
from pgpaces.core.findings import Finding
from pgpaces.load import engine
from pgpaces.spec import workload
from tests.errors import raises

INT, TEXT, BOOL = Type("integer", "N"), Type("text", "S"), Type("boolean", "B")
DATE, NUMERIC = Type("date", "D"), Type("numeric(10,2)", "N")


def column(name, kind=INT, table="t", **more):
    values = {"has_statistics": True, "rows": 1000, "distinct": -1} | more
    return CatalogColumn(table, name, kind, **values)


def table(name, *columns):
    return CatalogTable(name, {each.name: each for each in columns})


T = table("t", *(column(name) for name in ("a", "b", "c")))
U = table("u", *(column(name, table="u") for name in ("a", "d")))
CATALOG = Catalog({("", "t"): T, ("", "u"): U, ("s", "t"): U}, {})


def used(sql, catalog=CATALOG):
    found = uses.uses(parser.parse(sql).tree, catalog)
    return {
        number: [(use.role.name, use.column.label if use.column else "") for use in every]
        for number, every in found.items()
    }


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("BEGIN", "statement-of-transaction"),
        ("SAVEPOINT $1", "statement-of-transaction"),
        ("ROLLBACK TO $1", "statement-of-transaction"),
        ("COMMIT", "statement-of-transaction"),
        ("COPY t FROM STDIN", "statement-copy"),
        ("FETCH FORWARD $1 FROM c", "statement-not-parsed"),
        ("FETCH 5 FROM c", "statement-cursor"),
        ("DECLARE c CURSOR FOR SELECT $1", "statement-cursor"),
        ("CREATE TABLE x (a int)", "statement-utility"),
        ("SET work_mem = $1", "statement-utility"),
        ("EXPLAIN SELECT $1", "statement-utility"),
        ("SELECT * INTO x FROM t", "statement-creates-table"),
        ("SELECT * FROM t WHERE", "statement-not-parsed"),
        ("SELECT a FROM t WHERE b = 'cut off here", "statement-not-parsed"),
        ("SELECT \ud800", "statement-not-parsed"),
        ("SELECT 1; SELECT 2", "statement-not-single"),
        ("SELECT * FROM pg_stat_activity WHERE pid = $1", "statement-of-catalogs"),
        ("SELECT relname FROM pg_catalog.pg_class", "statement-of-catalogs"),
        ("SELECT pg_is_in_recovery()", "statement-of-catalogs"),
        ("SELECT current_setting($1)", "statement-of-catalogs"),
        ("SELECT * FROM metrics.pg_stat_statements", "statement-of-catalogs"),
        ('SELECT "x:y" FROM t', "statement-colon"),
        ("", "statement-text-lost"),
        ("-- nothing", "statement-not-single"),
    ],
)
def test_what_cannot_be_a_script_is_left_out_with_its_reason(sql, why):
    with raises(parser.UnusableError, why):
        parser.parse(sql)


@pytest.mark.parametrize(
    ("sql", "kind", "writes"),
    [
        ("SELECT $1", "select", False),
        ("VALUES ($1)", "select", False),
        ("TABLE t", "select", False),
        ("SELECT a FROM t FOR UPDATE", "select", True),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "select", True),
        ("INSERT INTO t VALUES ($1)", "insert", True),
        ("UPDATE t SET a = $1", "update", True),
        ("DELETE FROM t", "delete", True),
        ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", "merge", True),
        ("CALL p($1)", "call", True),
        ("SELECT pg_sleep($1)", "select", False),
    ],
)
def test_statements_of_an_application_are_taken(sql, kind, writes):
    found = parser.parse(sql)
    assert (found.kind, found.writes) == (kind, writes)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
def test_weights_are_in_proportion_to_the_calls_and_none_is_zero(calls):
    weights = catalog.weights(calls)
    assert all(weight >= 1 for weight in weights)
    assert sum(weights) <= catalog.WEIGHTS + len(calls)
    for weight, count in zip(weights, calls, strict=True):
        exact = count * min(1.0, catalog.WEIGHTS / sum(calls))
        assert abs(weight - exact) <= 1


entries = st.lists(
    st.builds(Entry, st.sampled_from("abcdef"), st.integers(0, 10**6), st.floats(0, 1e6)),
    max_size=20,
)


@given(entries)
def test_entries_of_one_text_are_one_and_nothing_is_lost(every):
    merged = catalog.merged(every)
    assert len({entry.text for entry in merged}) == len(merged)
    assert sum(entry.calls for entry in merged) == sum(entry.calls for entry in every)


@given(entries)
def test_shares_of_what_is_taken_and_left_add_up_to_a_hundred(every):
    total = sum(entry.calls for entry in every)
    taken = [entry for entry in every if entry.text < "c"]
    left = [ExcludedStatement("", WorkloadError(e.text), e.calls, 0) for e in every if e.text > "b"]
    shares = [catalog.share(entry.calls, total) for entry in taken]
    shares += [catalog.share(calls, total) for _, _, calls, _ in catalog.by_reason(left)]
    assert sum(shares) == pytest.approx(100 if total else 0)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM t WHERE a = $1", {1: [("EQUAL", "t.a")]}),
        ("SELECT 1 FROM t WHERE $1 < a", {1: [("LOWER", "t.a")]}),
        ("SELECT 1 FROM t x JOIN u ON u.a = x.b WHERE x.a = $1::int", {1: [("EQUAL", "t.a")]}),
        ("SELECT 1 FROM t, u WHERE d = $1", {1: [("EQUAL", "u.d")]}),
        ("SELECT 1 FROM s.t WHERE t.a = $1", {1: [("EQUAL", "u.a")]}),
        ("SELECT 1 FROM t WHERE a IN ($1 /*, ... */)", {1: [("EQUAL", "t.a")]}),
        ("SELECT 1 FROM t WHERE a = ANY ($1)", {1: [("ELEMENTS", "t.a")]}),
        ("SELECT 1 FROM t WHERE a LIKE $1", {1: [("PATTERN", "t.a")]}),
        ("SELECT 1 FROM t WHERE (a, b) = ($1, $2)", {1: [("EQUAL", "t.a")], 2: [("EQUAL", "t.b")]}),
        ("SELECT 1 FROM t LIMIT $1 OFFSET $2", {1: [("LIMIT", "")], 2: [("OFFSET", "")]}),
        ("INSERT INTO t (b, a) VALUES ($1, $2)", {1: [("INSERT", "t.b")], 2: [("INSERT", "t.a")]}),
        ("INSERT INTO t VALUES ($1)", {1: [("INSERT", "t.a")]}),
        ("INSERT INTO t (c) SELECT $1 FROM u WHERE d = $2",
         {1: [("INSERT", "t.c")], 2: [("EQUAL", "u.d")]}),
        ("UPDATE t SET a = $1, b = b + $2 WHERE c = $3",
         {1: [("SET", "t.a")], 2: [("AMOUNT", "t.b")], 3: [("EQUAL", "t.c")]}),
        ("UPDATE t SET (a, b) = ($1, $2)", {1: [("SET", "t.a")], 2: [("SET", "t.b")]}),
        ("SELECT a FROM t WHERE b = $1 UNION ALL SELECT d FROM u WHERE d = $2",
         {1: [("EQUAL", "t.b")], 2: [("EQUAL", "u.d")]}),
        ("SELECT 1 FROM t TABLESAMPLE SYSTEM ($1) WHERE a = $2", {2: [("EQUAL", "t.a")]}),
        ("SELECT 1 FROM (SELECT d FROM u WHERE a = $1) x", {1: [("EQUAL", "u.a")]}),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT FROM u WHERE c = $1)", {1: [("EQUAL", "t.c")]}),
        ("WITH t AS (SELECT 1 AS a) SELECT 1 FROM t x WHERE x.zz = $1", {}),
        ("SELECT $1", {}),
    ],
)  # fmt: skip
def test_a_parameter_is_of_the_column_that_it_meets(sql, expected):
    assert used(sql) == expected


TENS = tuple(str(n) for n in range(0, 1001, 10))


@pytest.mark.parametrize(
    ("role", "kind", "statistics", "step"),
    [
        (Role.EQUAL, INT, {"bounds": TENS}, "random(0, 1000)"),
        (Role.EQUAL, BOOL, {"common": ("f", "t"), "frequencies": (0.7, 0.3)},
         "random(1, 100) <= 30"),
        (Role.EQUAL, BOOL, {"common": ("f", "t"), "frequencies": (0.2, 0.2), "null_share": 0.6},
         "random(1, 100) <= 50"),
        (Role.INSERT, INT, {"unique": True, "bounds": ("1", "1000")}, "random(1001, 1000001001)"),
    ],
)  # fmt: skip
def test_numbers_are_drawn_from_their_range_by_their_statistics(role, kind, statistics, step):
    found = source(Use(role, column("a", kind, **statistics)), kind)
    assert found.steps == ((1, step),)
    assert found.kind is (SourceKind.NEW if role is Role.INSERT else SourceKind.STATISTICS)


@pytest.mark.parametrize(
    ("role", "kind", "statistics", "choices"),
    [
        (Role.EQUAL, TEXT, {"common": ("it's", "b:c"), "frequencies": (0.5, 0.5)},
         ["'it''s'", "E'b\\x3ac'"]),
        (Role.EQUAL, TEXT, {"common": ("x",), "frequencies": (0.75,), "null_share": 0.25},
         ["'x'"]),
        (Role.INSERT, TEXT, {"common": ("x",), "frequencies": (0.75,), "null_share": 0.25},
         ["'x'", "NULL"]),
        (Role.LOWER, NUMERIC, {"bounds": ("1.5e25", "2e25")}, ["'1.5e25'", "'2e25'"]),
    ],
)  # fmt: skip
def test_texts_and_what_no_integer_draws_are_listed(role, kind, statistics, choices):
    found = source(Use(role, column("a", kind, **statistics)), kind)
    assert list(dict.fromkeys(value for _, value in found.choices)) == choices
    if "NULL" in choices:
        assert [weight for weight, _ in found.choices] == [7500, 2500]


def test_common_values_come_as_often_as_they_are_there():
    found = source(Use(Role.EQUAL, column("a", common=("7", "3"), frequencies=(0.9, 0.1))))
    assert found.steps == ((9000, "7"), (1000, "3"))


@pytest.mark.parametrize(
    ("kind", "expected"), [(Type("uuid", "U"), "gen_random_uuid()"), (TEXT, "md5(")]
)
def test_a_key_that_is_inserted_is_new(kind, expected):
    found = source(Use(Role.INSERT, column("a", kind, unique=True, bounds=("1", "1000"))), kind)
    assert found.kind is SourceKind.NEW
    assert expected in found.sql


@pytest.mark.parametrize(
    ("sql", "first", "second"),
    [
        ("a BETWEEN $1 AND $2", {2}, {1}),
        ("a NOT BETWEEN $1 AND $2", {2}, {1}),
        ("a >= $1 AND b = 1 AND a < $2", {2}, {1}),
        ("a BETWEEN $1 AND $1", {None}, set()),
    ],
)
def test_both_ends_of_a_range_know_each_other(sql, first, second):
    found = uses.uses(parser.parse(f"SELECT 1 FROM t WHERE {sql}").tree, CATALOG)
    assert {use.partner for use in found[1]} >= first
    assert {use.partner for use in found.get(2, ())} >= second
    low, high = (source(Use(role, column("a", bounds=TENS), partner))
                 for role, partner in ((Role.LOWER, 2), (Role.UPPER, 1)))  # fmt: skip
    assert (low.steps[0][1], high.steps[0][1]) == ("random(0, 1000)", ":p1 + 10")


PLPGSQL = """CREATE FUNCTION f(x integer, b integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE n int; BEGIN
  SELECT count(*) INTO n FROM u WHERE u.d = x;
  INSERT INTO t (a, c) VALUES (f.b, n);
END $$"""
STANDARD = """CREATE FUNCTION f(x integer, b integer) RETURNS void LANGUAGE sql BEGIN ATOMIC
  SELECT 1 FROM u WHERE d = x; INSERT INTO t (a) VALUES (f.b); END"""


@pytest.mark.parametrize(
    "function",
    [
        Function(("", "f"), ("x", "b"), "plpgsql", PLPGSQL, ""),
        Function(("", "f"), ("x", "b"), "sql", STANDARD, ""),
        Function(("", "f"), ("x", "b"), "sql", "",
                 "SELECT 1 FROM u WHERE d = $1; INSERT INTO t (a) VALUES (f.b)"),
    ],
    ids=["plpgsql", "standard", "sql"],
)  # fmt: skip
@pytest.mark.parametrize("call", ["SELECT * FROM f($1, $2)", "SELECT f(b => $2, x => $1)"])
def test_an_argument_is_what_the_function_does_with_it(function, call):
    catalog = Catalog(CATALOG.tables, {("", "f"): function})
    assert used(call, catalog) == {1: [("EQUAL", "u.d")], 2: [("INSERT", "t.a")]}


def source(use, kind=INT, **more):
    return guess.source(Parameter([use], kind, **more))


def test_a_skewed_key_follows_its_histogram():
    bounds = tuple(str(n * n) for n in range(0, 32))
    found = source(Use(Role.EQUAL, column("a", bounds=bounds)))
    assert len(found.steps) == 10
    assert all(step.startswith("random(") for _, step in found.steps)


def test_a_range_of_dates_is_a_bin_of_the_histogram():
    one = column("a", DATE, bounds=("2020-01-01", "2020-02-01", "2020-03-01"))
    statement = parser.parse("SELECT 1 FROM t WHERE a BETWEEN $1 AND $2")
    sources = {1: source(Use(Role.LOWER, one, 2), DATE), 2: source(Use(Role.UPPER, one, 1), DATE)}
    sent = script.write(statement, sources).probes
    assert [text.split("BETWEEN ")[1] for text in sent] == [
        "'2020-01-01' AND '2020-02-01'", "'2020-02-01' AND '2020-03-01'",
    ]  # fmt: skip


def test_the_end_of_a_range_whose_other_end_is_no_number_is_by_itself():
    one = column("a", bounds=tuple(str(n) for n in range(0, 1001, 10)))
    low = Parameter([Use(Role.LOWER, one, 2)], TEXT)
    high = Parameter([Use(Role.UPPER, one, 1)], INT)
    found = guess.sources({1: low, 2: high})
    assert found[1].choices
    assert found[2].steps == ((1, "random(0, 1000)"),)


@pytest.mark.parametrize("kind", [INT, TEXT, BOOL, DATE, NUMERIC, Type("point", "G"), None])
@pytest.mark.parametrize("role", list(Role))
def test_what_is_not_known_is_said(role, kind):
    one = CatalogColumn("t", "a", kind or INT)
    found = source(Use(role, one, within="date_trunc"), kind)
    assert found.kind in (SourceKind.UNKNOWN, SourceKind.ASSUMED, SourceKind.NEW)
    assert found.sql or found.steps


@pytest.mark.parametrize("role", [Role.EQUAL, Role.INSERT, Role.PATTERN, Role.ELEMENTS, Role.LOWER])
def test_without_values_no_text_of_the_database_is_written(role):
    one = column("a", TEXT, common=("secret",), frequencies=(0.5,), bounds=("hidden", "private"))
    assert not source(Use(role, one), TEXT, values=False).choices


@pytest.mark.parametrize("value", [":\u2192", "a:\u00e9", ":b", "::c", ":{d}", "e:"])
def test_no_colon_of_a_literal_stands_before_what_a_name_may_begin_with(value):
    """Which in a script is any byte that is not ASCII; extended protocols would send no text."""
    assert not re.search(rb":[\w{\x80-\xff]", guess.quoted(value).encode())


@given(st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_a_literal_is_its_text_and_no_variable(value):
    if any("\ud800" <= c <= "\udfff" for c in value):
        return
    sql = f"SELECT {guess.quoted(value)}"
    sent = engine.rehearse("s", f"\\set name 1\n{sql}\n;\n", [("a", "x"), ("b", "y")])
    assert [text.rstrip(";").strip() for _, text in sent] == [sql]
    tree = parser.trees(sql)[0]["SelectStmt"]["targetList"][0]["ResTarget"]["val"]["A_Const"]
    assert tree.get("sval", {}).get("sval", "") == value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a::text, $1::int FROM t",
        "SELECT x[$1:$2] FROM t",
        "SELECT x[1:b] FROM t",
        "SELECT 1 /* a:b */ FROM t WHERE c = $1 -- it's :so",
        "SELECT $body$ it's; a $body$, $1",
        "SELECT 'a;b', $1",
        'SELECT "it\'s;" FROM t WHERE b = $1',
        "SELECT é FROM t WHERE ü = $1 AND b IN ($2 /*, ... */)",
        "SELECT CURRENT_DATE - INTERVAL $1",
        "SELECT f(a := $1)",
        "SELECT a ? $1, b @> $2",
    ],
)
def test_a_script_sends_its_statement_and_nothing_else(sql):
    statement = parser.parse(sql)
    typed = {spot.number for spot in statement.spots if spot.typed is not None}
    number = ValueSource(SourceKind.STATISTICS, "", steps=((1, "random(5, 5)"),))
    literal = ValueSource(SourceKind.STATISTICS, "", sql="'1 day'")
    sources = {n: literal if n in typed else number for n in statement.numbers}
    sent = engine.rehearse("s", script.write(statement, sources).text)
    assert len(sent) == 1
    assert parser.fingerprint(sent[0][1]) == parser.fingerprint(sql)


def test_a_negative_value_after_a_minus_begins_no_comment():
    """Else the rest of the line would be gone, and with it what says which rows are changed."""
    statement = parser.parse("UPDATE acc SET balance = balance-$1 WHERE id = $2")
    number = ValueSource(SourceKind.LOG, "", steps=((1, "-5"),))
    for rows in ((), [(1, {1: "-5", 2: "3"})]):
        text = script.write(statement, {1: number, 2: number}, rows).text
        [(_, sent)] = engine.rehearse("s", text)
        assert parser.fingerprint(sent) == parser.fingerprint(statement.text.decode())


def test_a_statement_that_kept_its_texts_is_told_from_one_that_did_not():
    assert parser.has_texts(parser.parse("CALL note('alice@example.com')"))
    assert not parser.has_texts(parser.parse("SELECT a FROM t WHERE b = $1 ORDER BY 1"))


def test_texts_stand_in_branches_by_their_weights():
    statement = parser.parse("SELECT 1 FROM t WHERE a = $1")
    source = ValueSource(SourceKind.STATISTICS, "", choices=((3, "'x'"), (1, "'y'")))
    text = script.write(statement, {1: source}).text
    sent = [sql for seed in range(400) for _, sql in engine.rehearse("s", text, seed=seed)]
    share = sum("'x'" in sql for sql in sent) / len(sent)
    assert len(sent) == 400
    assert 0.65 < share < 0.85


def test_choices_of_several_parameters_do_not_go_along():
    statement = parser.parse("SELECT 1 FROM t WHERE a = $1 AND b = $2")
    even = ValueSource(SourceKind.STATISTICS, "", choices=tuple((1, f"'{n}'") for n in range(5)))
    assert len(script.write(statement, {1: even, 2: even}).probes) > 15


def test_real_numbers_need_no_branches():
    statement = parser.parse("SELECT 1 FROM t WHERE a = $1 AND b = $2")
    one = ValueSource(SourceKind.LOG, "", steps=((1, "random(1, 2)"),))
    rows = [(5, {1: "1", 2: "10"}), (5, {1: "2", 2: "20"})]
    text = script.write(statement, {1: one, 2: one}, rows).text
    assert "\\if" not in text
    sent = {engine.rehearse("s", text, seed=seed)[0][1].split("WHERE ")[1] for seed in range(50)}
    assert {each.split()[2] + each.split()[6] for each in sent} == {"110", "220"}


HOSTILE = 'a"b\n[[scripts]] | <b>\x1b[31m`c` \\'


def captured(folder, rate=12.5):
    entry = Entry(f"SELECT 1 -- {HOSTILE}", 75, 10.0)
    sources = {1: ValueSource(SourceKind.UNKNOWN, HOSTILE, sql="1")}
    text = folder_of.comments(entry, sources) + "SELECT 1\n;\n"
    taken = CapturedScript(entry, "01_select", 3, text, False, {"unknown": 1})
    seen = ServerStatements(HOSTILE, 18, (entry,))
    left = ExcludedStatement(HOSTILE, WorkloadError(HOSTILE), 25, 10.0)
    return Captured(folder / "made", seen, (taken,), (left,), 100, 20.0, rate, (Finding(HOSTILE),))


def test_what_the_server_does_not_count_is_found():
    lacks = reader.lacks("none", twice=True, counted=0, hidden=1, dropped=2)
    assert [each.name for each in lacks] == [
        "statements-unseen", "statements-not-counted", "statements-counted-twice",
        "no-statement-counted", "statements-dropped",
    ]  # fmt: skip


def test_only_scripts_with_real_values_cover_and_each_source_has_its_share_of_the_time(tmp_path):
    kinds = ({"from the log": 2}, {"by statistics": 1, "assumed": 1}, {}, {"unknown": 1})
    scripts = tuple(
        CapturedScript(Entry("SELECT 1", calls, ms), "01", 1, "", False, sources)
        for calls, ms, sources in zip(
            (10, 20, 30, 20), (40.0, 20.0, 10.0, 10.0), kinds, strict=True
        )
    )
    found = replace(captured(tmp_path), scripts=scripts, calls=100, total_ms=100.0)
    assert catalog.coverage(found) == (40, 50)
    assert catalog.sources(found) == {
        "from the log": 40, "assumed": 20, "without parameters": 10, "unknown": 10, "left out": 20,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "calls", "rows", "bulk"),
    [
        ("INSERT INTO t SELECT generate_series($1, $2)", 1, 100_000, True),
        ("copy t from stdin", 2, 50_000, True),
        ("INSERT INTO t SELECT generate_series($1, $2)", 24, 2_400_000, False),
        ("INSERT INTO t VALUES ($1)", 1, 1, False),
        ("SELECT * FROM t", 1, 100_000, False),
    ],
)
def test_a_bulk_load_is_called_rarely_and_moves_many_rows(text, calls, rows, bulk):
    assert catalog.is_bulk(Entry(text, calls, 1.0, rows)) == bulk


@pytest.mark.parametrize("rate", [None, 12.5, 1e-9])
def test_a_folder_is_a_workload_whatever_things_are_called(tmp_path, rate):
    found = captured(tmp_path, rate)
    folder_of.write(found, "Protect it.")
    read = workload.read(found.folder)
    assert [(each.name, each.weight) for each in read.scripts] == [("01_select", 3)]
    assert (read.init, read.writes) == ((), False)
    assert read.load == ({"rate": "12.500000/s"} if rate == 12.5 else {})
    assert engine.rehearse("s", read.scripts[0].text) == [(0, "SELECT 1\n;")]
    assert "\x1b" not in "".join(path.read_text() for path in found.folder.iterdir())
    assert found.folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_written_is_not_half_there(tmp_path, monkeypatch):
    found = captured(tmp_path)
    write = Path.write_text

    def full(path, text, **options):
        if path.name == folder_of.TOML:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with raises(WorkloadError, "cannot-write", why="No space left on device"):
            folder_of.write(found, "Protect it.")
    folder_of.check(found.folder)
    folder_of.write(found, "Protect it.")


@pytest.mark.parametrize(
    "target", ["postgresql://u:canary@h/db", "host=h password=canary", "host=h sslpassword=canary"]
)
def test_the_next_command_has_no_password(tmp_path, target):
    command = folder.command_for(captured(tmp_path), target)
    assert "canary" not in command
    assert "h" in command
    assert "--from-database" in command


@pytest.mark.parametrize("target", ["shop", ""])
def test_the_next_command_copies_a_database_that_was_named_alone_by_a_dsn(tmp_path, target):
    found = replace(captured(tmp_path), server=ServerStatements("shop", 18, ()))
    assert folder.command_for(found, target).endswith("--from-database dbname=shop")


STDERR = """\
2026-01-01 00:00:00.000 UTC [1] app@db LOG:  duration: 0.1 ms  statement: SELECT b FROM t
\tWHERE a = 5 AND c = 'it''s'
2026-01-01 00:00:00.000 UTC [1] LOG:  duration: 0.1 ms  execute <unnamed>: SELECT b FROM t WHERE a = $1 AND c = $2
2026-01-01 00:00:00.000 UTC [1] DETAIL:  parameters: $1 = '7', $2 = 'a, $3 = ''b'''
2026-01-01 00:00:00.000 UTC [1] LOG:  execute S_1: SELECT b FROM t WHERE a = $1 AND c = $2
2026-01-01 00:00:00.000 UTC [1] DETAIL:  Parameters: $1 = '7', $2 = NULL
2026-01-01 00:00:00.000 UTC [1] ERROR:  duration: 0.1 ms  statement: SELECT b FROM t WHERE a = 9 AND c = 'no'
2026-01-01 00:00:00.000 UTC [1] LOG:  checkpoint starting: time
2026-01-01 00:00:00.000 UTC [1] LOG:  statement: SELECT b FROM t WHERE a = -1 AND c = ''
not a line of a log
"""  # noqa: E501
CSV = (
    '2026-01-01,"app","db",1,"c",1,1,"SELECT",2026-01-01,1/1,0,LOG,00000,"duration: 0.1 ms  '
    'execute s: SELECT b FROM t\nWHERE a = $1 AND c = $2",'
    "\"parameters: $1 = '7', $2 = 'x'\",,,,,,,\n"
)
JSON = (
    '{"message": "execute s: SELECT b FROM t WHERE a = $1 AND c = $2",'
    " \"detail\": \"Parameters: $1 = '7', $2 = 'x'\"}\nno json\n[]\n"
)
TEMPLATE = "SELECT b FROM t WHERE a = $1 AND c = $2"


def logged(path, sql=TEMPLATE, encoding="utf-8"):
    found = logs.LoggedParameters([(sql, parser.parse(sql).tree)])
    for each in logs.read(path, None, encoding):
        found.add(each)
    return found


def real(path, sql=TEMPLATE):
    return logged(path, sql).of(0)


def test_values_are_read_in_the_encoding_of_the_database_or_left_out(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(
        b"LOG:  statement: SELECT b FROM t WHERE a = 1 AND c = 'caf\xe9'\n"
        b"LOG:  execute s: SELECT b FROM t WHERE a = $1 AND c = $2\n"
        b"DETAIL:  parameters: $1 = '7', $2 = 'na\xefve'\n"
        b"LOG:  statement: SELECT b FROM t WHERE a = 2 AND c = 'tea'\n"
    )
    every = {"'caf\u00e9'", "'na\u00efve'", "'tea'"}
    for encoding, values, undecoded in (("latin-1", every, 0), ("utf-8", {"'tea'"}, 2)):
        found = logged(log, encoding=encoding)
        assert {each[2] for _, each in found.of(0)} == values
        assert found.undecoded == undecoded


PIECES = "".join(
    f"LOG:  execute {what}S_1/C_2: {TEMPLATE}\nDETAIL:  parameters: $1 = '7', $2 = 'x'\n"
    for what in ("", *["fetch from "] * 9)
)


@pytest.mark.parametrize(
    ("name", "text", "others"),
    [
        ("a.csv", CSV, 1),
        ("a.json", JSON.replace("{", '{"dbname": "db", ', 1), 1),
        ("a.json", JSON, None),
        # What is fetched in pieces was executed once.
        ("a.log", PIECES, None),
    ],
)
def test_parameters_are_read_from_any_kind_of_log_and_of_its_database(tmp_path, name, text, others):
    (tmp_path / name).write_text(text)
    assert real(tmp_path / name) == [(1, {1: "'7'", 2: "'x'"})]
    if others:
        assert len(list(logs.read(tmp_path / name, "db"))) == others
        assert not list(logs.read(tmp_path / name, "tenant2"))


def test_parameters_are_read_from_a_log_of_stderr(tmp_path):
    (tmp_path / "a.log").write_text(STDERR)
    every = [("5", "'it''s'"), ("'7'", "'a, $3 = ''b'''"), ("'7'", "NULL"), ("-1", "''")]
    found = sorted((count, *sorted(row.items())) for count, row in real(tmp_path / "a.log"))
    assert found == sorted((1, (1, a), (2, c)) for a, c in every)


@pytest.mark.parametrize("begin", ["2026-01-01 00:00:00 UTC-6450-", "app,", "db;", "[1] ", ""])
@pytest.mark.parametrize("state", ["", "00000: "])
def test_any_prefix_and_verbosity_of_lines_will_do(tmp_path, begin, state):
    statement = "duration: 0.1 ms  execute s: SELECT b FROM t WHERE a = $1 AND c = $2"
    detail = f"{begin}DETAIL:  parameters: $1 = '7', $2 = 'x'\n"
    (tmp_path / "a.log").write_text(f"{begin}LOG:  {state}{statement}\n{detail}")
    assert real(tmp_path / "a.log") == [(1, {1: "'7'", 2: "'x'"})]


@pytest.mark.parametrize(
    ("template", "logged", "expected"),
    [
        ("SELECT $1::date", "SELECT '2020-01-01'::date", {1: "'2020-01-01'"}),
        ("SELECT CURRENT_DATE - INTERVAL $1", "SELECT current_date - interval '5 minutes'",
         {1: "'5 minutes'"}),
        ("SELECT 1 FROM t WHERE a IN ($1 /*, ... */)", "SELECT 1 FROM t WHERE a IN (4, 5, 6)",
         {1: "4, 5, 6"}),
        ("SELECT $1, $2, $3, $4", "SELECT 1.5, true, NULL, B'101'",
         {1: "1.5", 2: "true", 3: "NULL", 4: "B'101'"}),
        ("SELECT f($1, a)", "SELECT f(a, 1)", None),
        ("SELECT $1 FROM t", "SELECT 1 FROM u", None),
    ],
)  # fmt: skip
def test_what_stands_in_a_statement_is_found_where_its_parameters_are(
    tmp_path, template, logged, expected
):
    (tmp_path / "a.log").write_text(f"x LOG:  statement: {logged}\n")
    assert real(tmp_path / "a.log", template) == ([(1, expected)] if expected else [])


def test_logged_numbers_replace_what_was_assumed_of_a_parameter():
    """A constant that was guessed, such as LIMIT 10, would have stayed."""
    statement = parser.parse("SELECT * FROM t WHERE a BETWEEN $1 AND $2 LIMIT $3")
    kept = {
        1: ValueSource(SourceKind.STATISTICS, "", steps=((1, "random(1, 9)"),)),
        2: ValueSource(SourceKind.UNKNOWN, "", sql="1 + 1"),
        3: ValueSource(SourceKind.ASSUMED, "", sql="10"),
    }
    tuples = [(2, {1: "5", 2: "299999", 3: "20"}), (1, {1: "7", 2: "8", 3: "1"})]
    written = script.write(statement, kept, tuples)
    assert "BETWEEN :p1 AND :p2 LIMIT :p3" in written.text
    assert "299999" in written.text
    assert written.probes == ("SELECT * FROM t WHERE a BETWEEN 1 AND 1 LIMIT 1",)


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT date_trunc($1, x) FROM t", {1: "'day'"}),
        ("SELECT f($1)", {1: "'day'"}),
        ("SELECT to_char(x, $1), encode(y, $2) FROM t", {1: "'YYYY-MM-DD'", 2: "'hex'"}),
        ("SELECT pg_catalog.date_part($1, x), s.date_trunc($2) FROM t", {1: "'day'", 2: "'a'"}),
    ],
)
def test_an_argument_that_takes_only_known_words_gets_one(sql, values):
    body = "SELECT date_trunc(part, now())"
    functions = {("", "f"): Function(("", "f"), ("part",), "sql", "", body)}
    found = uses.uses(parser.parse(sql).tree, replace(CATALOG, functions=functions))
    given = {n: guess.source(Parameter(found.get(n, ()), TEXT)).sql for n in values}
    assert given == values


def test_a_type_that_takes_only_known_words_gets_one():
    words_of = {
        Type("mood", "E"): "(enum_range(NULL::mood))[1]",
        Type("regclass", "N"): "'pg_class'",
    }
    assert {kind: guess.source(Parameter((), kind)).sql for kind in words_of} == words_of
