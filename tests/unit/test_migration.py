"""A migration's statements, and a safer form of them."""

import pytest

from pgpaces.core.errors import PlanError
from pgpaces.spec.migration import read, safer, split
from tests.errors import raises

LIMIT_NS = 100_000_000
TIMEOUT = "SET lock_timeout = '50ms'"
NONE = "SET lock_timeout = 0"


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
        ("SAVEPOINT a", "plain"), ("ALTER TABLE a ADD b int", "plain"), ("ANALYZE a", "plain"),
        ("CLUSTER a USING b", "plain"), ("CLUSTER", "alone"), ("VACUUM a", "alone"),
        ("VACUUM FULL a", "alone"),
        ("CREATE INDEX CONCURRENTLY a ON b (c)", "alone"), ("DROP INDEX CONCURRENTLY a", "alone"),
        ("REINDEX TABLE a", "plain"), ("REINDEX (CONCURRENTLY) TABLE a", "alone"),
        ("REINDEX TABLE CONCURRENTLY a", "alone"), ("REINDEX SCHEMA a", "alone"),
        ("CALL a()", "alone"), ("CREATE DATABASE a", "alone"), ("ALTER SYSTEM RESET ALL", "alone"),
        ("ALTER TABLE a DETACH PARTITION b CONCURRENTLY", "alone"),
        ("ALTER TABLE a DETACH PARTITION b", "plain"),
    ],
)  # fmt: skip
def test_what_postgresql_does_not_run_in_a_transaction_is_alone(text, kind):
    assert kinds(text) == [kind]


SAFER = {
    "CREATE INDEX i ON t (a)": [NONE, "CREATE INDEX CONCURRENTLY i ON t (a)"],
    "create unique index i on t (a)": [NONE, "create unique index CONCURRENTLY i on t (a)"],
    "REINDEX TABLE t": [NONE, "REINDEX TABLE CONCURRENTLY t"],
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
        NONE,
        "CREATE UNIQUE INDEX CONCURRENTLY t_a_b_key ON t (a, b)",
        TIMEOUT,
        "ALTER TABLE t ADD CONSTRAINT t_a_b_key UNIQUE USING INDEX t_a_b_key",
    ],
    "BEGIN; ALTER TABLE t ADD b int; COMMIT": [TIMEOUT, "ALTER TABLE t ADD b int"],
    "VACUUM FULL t": [NONE, "VACUUM FULL t"],
}


@pytest.mark.parametrize("text", SAFER)
def test_a_safer_form_waits_no_longer_than_half_the_limit_and_never_cancels_concurrently(text):
    found = safer([*split(text)], LIMIT_NS)
    assert found is not None
    assert [each.text for each in split(found)] == SAFER[text]


def test_a_primary_key_is_an_index_first_and_its_columns_are_not_null_before_it():
    found = safer([*split("ALTER TABLE t ADD PRIMARY KEY (a)")], LIMIT_NS) or ""
    assert found.startswith(
        f"{NONE};\nCREATE UNIQUE INDEX CONCURRENTLY t_pkey ON t (a);\n{TIMEOUT}"
    )
    assert found.index("SET NOT NULL") < found.index("PRIMARY KEY USING INDEX t_pkey")


@pytest.mark.parametrize(
    ("text", "name"),
    [("selec 1", "migration-not-parsed"), ("-- nothing", "migration-empty"),
     ("SELECT 1;\n\\i other.sql", "migration-for-psql")],
)  # fmt: skip
def test_a_file_that_is_not_sql_is_an_error(tmp_path, text, name):
    path = tmp_path / "m.sql"
    path.write_text(text)
    with raises(PlanError, name):
        read([str(path)])


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with raises(PlanError, "cannot-read"):
        read([str(tmp_path / "none.sql")])
