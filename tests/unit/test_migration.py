"""A migration's statements, and a safer form of them."""

import re

import pytest

from pgpaces.core.errors import PlanError
from pgpaces.spec.migration import StatementRun, read, split
from pgpaces.spec.safer import safer
from tests.errors import raises

LIMIT_NS = 100_000_000
TIMEOUT = "SET lock_timeout = '50ms'"
NONE = "RESET lock_timeout"


def kinds(text):
    return [each.kind for each in split(text)]


def test_statements_are_those_of_postgresql_without_the_comments_before_them():
    text = "-- été\n/* a; b */ SELECT ';' ; DO $$ begin null; end $$;\nSELECT 2"
    assert [each.text for each in split(text)] == [
        "SELECT ';'",
        "DO $$ begin null; end $$",
        "SELECT 2",
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("BEGIN", "begin"), ("START TRANSACTION", "begin"), ("COMMIT", "end"), ("ROLLBACK", "end"),
        ("SAVEPOINT a", "alone"), ("ALTER TABLE a ADD b int", "plain"), ("ANALYZE a", "plain"),
        ("CLUSTER a USING b", "plain"), ("CLUSTER", "alone"), ("VACUUM a", "alone"),
        ("VACUUM FULL a", "alone"),
        ("CREATE INDEX CONCURRENTLY a ON b (c)", "alone"), ("DROP INDEX CONCURRENTLY a", "alone"),
        ("REINDEX TABLE a", "plain"), ("REINDEX (CONCURRENTLY) TABLE a", "alone"),
        ("REINDEX TABLE CONCURRENTLY a", "alone"), ("REINDEX SCHEMA a", "alone"),
        ("CALL a()", "alone"), ("LOCK TABLE a", "alone"), ("SET LOCAL a = 1", "alone"),
        ("ALTER TABLE a DETACH PARTITION b CONCURRENTLY", "alone"),
        ("ALTER TABLE a DETACH PARTITION b", "plain"),
    ],
)  # fmt: skip
def test_what_postgresql_does_not_run_in_a_transaction_is_alone(text, kind):
    assert kinds(text) == [kind]


SAFER = {
    "CREATE INDEX i ON t (a)": ["CREATE INDEX CONCURRENTLY i ON t (a)"],
    "create unique index i on t (a)": ["create unique index CONCURRENTLY i on t (a)"],
    "REINDEX TABLE t": ["REINDEX TABLE CONCURRENTLY t"],
    "ALTER TABLE t ADD COLUMN b int": [TIMEOUT, "ALTER TABLE t ADD COLUMN b int"],
    "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0)": [
        TIMEOUT,
        "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT c",
    ],
    'ALTER TABLE s."T" ADD FOREIGN KEY (a, b) REFERENCES u (a, b)': [
        TIMEOUT,
        'ALTER TABLE s."T" ADD CONSTRAINT "T_a_b_fkey" FOREIGN KEY (a, b) REFERENCES u (a, b)'
        " NOT VALID",
        'ALTER TABLE s."T" VALIDATE CONSTRAINT "T_a_b_fkey"',
    ],
    "ALTER TABLE t ALTER COLUMN a SET NOT NULL": [
        TIMEOUT,
        "ALTER TABLE t ADD CONSTRAINT t_a_not_null CHECK (a IS NOT NULL) NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT t_a_not_null",
        "ALTER TABLE t ALTER COLUMN a SET NOT NULL",
        "ALTER TABLE t DROP CONSTRAINT t_a_not_null",
    ],
    "ALTER TABLE t ADD UNIQUE (a, b)": [
        "CREATE UNIQUE INDEX CONCURRENTLY t_a_b_key ON t (a, b)",
        TIMEOUT,
        "ALTER TABLE t ADD CONSTRAINT t_a_b_key UNIQUE USING INDEX t_a_b_key",
    ],
    "BEGIN; ALTER TABLE t ADD b int; COMMIT": [TIMEOUT, "ALTER TABLE t ADD b int"],
    "SET lock_timeout = '9s'; ALTER TABLE t ADD b int; CREATE INDEX i ON t (b)": [
        TIMEOUT,
        "ALTER TABLE t ADD b int",
        NONE,
        "CREATE INDEX CONCURRENTLY i ON t (b)",
    ],
    'ALTER TABLE "user" ADD CHECK ("order" > 0) -- why': [
        TIMEOUT,
        'ALTER TABLE "user" ADD CONSTRAINT user_order_check CHECK ("order" > 0) -- why\nNOT VALID',
        'ALTER TABLE "user" VALIDATE CONSTRAINT user_order_check',
    ],
    # What is not known is left as it is.
    **{
        text: [TIMEOUT, text]
        for text in (
            "ALTER TABLE t ADD UNIQUE (a) INCLUDE (b)",
            "ALTER TABLE t ADD UNIQUE (a) DEFERRABLE",
            "ALTER TABLE IF EXISTS t ADD CHECK (a > 0)",
            "ALTER TABLE ONLY t ADD CHECK (a > 0)",
            "ALTER TABLE t ADD CHECK (a > 0), ADD b int",
        )
    },
}


@pytest.mark.parametrize("text", SAFER)
def test_a_safer_form_waits_no_longer_than_half_the_limit_and_never_cancels_concurrently(text):
    found = safer([*split(text)], LIMIT_NS)
    assert found is not None
    assert [each.text for each in split(found)] == SAFER[text]


def test_a_primary_key_is_an_index_first_and_its_columns_are_not_null_before_it():
    found = safer([*split("ALTER TABLE t ADD PRIMARY KEY (a)")], LIMIT_NS) or ""
    assert found.startswith(f"CREATE UNIQUE INDEX CONCURRENTLY t_pkey ON t (a);\n{TIMEOUT}")
    assert found.index("SET NOT NULL") < found.index("PRIMARY KEY USING INDEX t_pkey")


KEYS = {"t": ("id", "bigint")}


def texts(found):
    return [each.text for each in split(found)]


def ran(took_ns=LIMIT_NS, rewritten=()):
    return StatementRun(
        text="",
        began_ns=0,
        tried_ns=0,
        done_ns=took_ns,
        released_ns=took_ns,
        rewritten=rewritten,
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("UPDATE t SET a = 1", ["FROM t\n", "UPDATE t SET a = 1 WHERE t.id = ANY (pgpaces_batch)"]),
        (
            "UPDATE t AS o SET a = (SELECT 1 WHERE true) WHERE a = 'where' OR b -- c",
            [
                "FROM t AS o WHERE a = 'where' OR b -- c\n",
                "SET a = (SELECT 1 WHERE true) WHERE (a = 'where' OR b -- c\n) AND o.id = ANY",
            ],
        ),
        ("DELETE FROM t WHERE a", ["FROM t WHERE a\n", "DELETE FROM t WHERE (a) AND t.id = ANY"]),
    ],
)
def test_a_long_update_or_delete_is_divided_by_the_key(text, parts):
    found = safer([*split(text)], LIMIT_NS, runs=[ran()], keys=KEYS) or ""
    timeout, batches = split(found)
    flat = re.sub(r"\n +WHERE", " WHERE", found)
    assert (timeout.text, batches.name) == (TIMEOUT, "DoStmt")
    assert all(part in flat for part in [*parts, "bigint[]", "/ 1000 AS part", "COMMIT"])


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET id = id + 1",
        "UPDATE t SET a = u.a FROM u",
        "UPDATE ONLY t SET a = 1",
        "UPDATE t SET a = (SELECT max(a) + 1 FROM t)",
        "DELETE FROM t WHERE id NOT IN (SELECT min(id) FROM t GROUP BY a)",
        "UPDATE u SET a = 1",
        "DELETE FROM t RETURNING a",
        "DELETE FROM t USING u WHERE t.a = u.a",
        "WITH c AS (SELECT 1) UPDATE t SET a = 1",
    ],
)
def test_an_update_that_the_key_does_not_divide_stays_as_it_is(text):
    assert texts(safer([*split(text)], LIMIT_NS, runs=[ran()], keys=KEYS)) == [TIMEOUT, text]


def test_a_short_update_stays_as_it_is():
    found = safer([*split("DELETE FROM t")], LIMIT_NS, runs=[ran(LIMIT_NS // 3)], keys=KEYS)
    assert texts(found) == [TIMEOUT, "DELETE FROM t"]


def test_a_column_with_a_default_that_differs_by_row_is_filled_in_batches():
    text = "ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid() NOT NULL"
    found = safer([*split(text)], LIMIT_NS, runs=[ran(rewritten=("t",))], keys=KEYS) or ""
    lines = texts(found)
    assert lines[:3] == [
        TIMEOUT,
        "ALTER TABLE t ADD u uuid",
        "ALTER TABLE t ALTER COLUMN u SET DEFAULT gen_random_uuid()",
    ]
    assert "UPDATE t SET u = DEFAULT\n        WHERE (u IS NULL) AND t.id = ANY" in lines[3]
    assert "ALTER TABLE t ALTER COLUMN u SET NOT NULL" in lines
    for bad in (f"{text} UNIQUE", "ALTER TABLE t ADD u serial"):
        own = [*split(bad)]
        found = safer(own, LIMIT_NS, runs=[ran(rewritten=("t",))], keys=KEYS)
        assert texts(found) == [TIMEOUT, bad]


def test_an_update_of_a_new_column_leaves_the_transaction_of_the_file():
    text = "BEGIN; ALTER TABLE t ADD a int; UPDATE t SET a = 1; COMMIT"
    runs = [ran(0), ran(0), ran(), ran(0)]
    found = safer([*split(text)], LIMIT_NS, runs=runs, keys=KEYS) or ""
    assert [each.name for each in split(found)][1:] == ["AlterTableStmt", "DoStmt"]


def test_an_autovacuum_in_the_way_is_canceled_soon():
    found = safer([*split("ALTER TABLE t ADD a int")], LIMIT_NS, before_autovacuum=True) or ""
    assert texts(found)[:2] == ["SET deadlock_timeout = '10ms'", TIMEOUT]


@pytest.mark.parametrize(
    "text",
    [
        "VACUUM FULL t",
        "CREATE INDEX CONCURRENTLY i ON t (a)",
        "BEGIN; LOCK TABLE t; ALTER TABLE t ADD a int; COMMIT",
        "BEGIN; ALTER TABLE t ADD a int; ROLLBACK",
        "BEGIN; ALTER TABLE t ADD a int; UPDATE t SET b = 1; COMMIT",
        "BEGIN; ALTER TABLE t RENAME TO u; ALTER TABLE v RENAME TO t; COMMIT",
        "CREATE USER MAPPING FOR u SERVER s OPTIONS (password 'hunter2')",
    ],
)
def test_there_is_no_safer_form_where_it_would_mean_something_else_or_show_a_password(text):
    assert safer([*split(text)], LIMIT_NS) is None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE DATABASE a",
        "DROP DATABASE a",
        "ALTER DATABASE a SET work_mem = '1MB'",
        "ALTER SYSTEM RESET ALL",
        "CREATE ROLE a",
        "ALTER ROLE a PASSWORD 'hunter2'",
        "GRANT a TO b",
        "DROP OWNED BY a",
        "PREPARE TRANSACTION 'a'",
    ],
)
def test_what_changes_the_server_is_refused_without_showing_a_password(text):
    with raises(PlanError, "migration-of-server") as caught:
        [*split(text)]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [("selec 1", "migration-not-parsed"), ("-- nothing", "migration-empty"),
     ("SELECT 1;\n\\i other.sql", "migration-for-psql"), ("COPY t FROM STDIN", "migration-copies")],
)  # fmt: skip
def test_a_file_that_is_not_sql_is_an_error(tmp_path, text, name):
    path = tmp_path / "m.sql"
    path.write_text(text)
    with raises(PlanError, name):
        read([str(path)])


def test_files_are_read_one_by_one_and_a_backslash_in_a_text_is_none_of_psql(tmp_path):
    one, two = tmp_path / "1.sql", tmp_path / "2.sql"
    one.write_text("SELECT 1")
    two.write_text("SELECT '\n\\d'")
    assert [each.text for each in read([str(one), str(two)])[1]] == ["SELECT 1", "SELECT '\n\\d'"]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with raises(PlanError, "cannot-read"):
        read([str(tmp_path / "none.sql")])
