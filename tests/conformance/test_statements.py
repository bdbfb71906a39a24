"""Scripts become the texts and values that pgbench sends, byte for byte."""

import pytest
from tests.conformance.side_by_side import Case, compare, one

PROTOCOLS = ("simple", "extended", "prepared")
# ruff: noqa: E501 (a script is best read in one line)

SCRIPTS = {
    "quotes and comments": "\\set x 7\nSELECT ':x', \":x\", $$:x$$ /* :x */ -- :x\n;\n",
    "casts": "\\set x 7\nSELECT :x::int, '1'::int, :x::text, a::x, :::x, ::::x;\n",
    "unset": "\\set x 7\nSELECT ':unset', ':x:unset:x', ':unset:x', ': x', ':1', ':';\n",
    "adjacent": "\\set a 1\n\\set ab 2\nSELECT :a:ab, :ab:a, :a.:ab, :a_:a;\n",
    "names": "\\set Ä 3\n\\set _x9 4\nSELECT ':Ä', ':_x9', ':_x', ':Äb';\n",
    "values": "\\set n null\n\\set t true\n\\set d 0.1 + 0.2\n\\set i -5\nSELECT :n, :t, :d, :i;\n",
    "given": "SELECT :i, ':d', ':s', ':q';\n",
    "many lines": "SELECT 1,\n  2\n\n  , 3\n;\n\n\n  SELECT 4  ;SELECT 5;SELECT 6\n",
    "empty": "SELECT 5;;  ;SELECT 6\n",
    "split": "SELECT ';', \";\", $$;$$, $a$;$$;$a$, E'\\';', (1;2) /* ; */ -- ;\n;SELECT 2;\n",
    "nested comments": "/* a /* ; */ ; */ SELECT 1; /* only */ ; SELECT 2 -- end",
    "leading comment": "-- first\n  -- second\n/* third */\nSELECT 1 -- fourth\n;\n-- fifth\n",
    "no end": "\\set x 1\nSELECT :x + 1",  # pgbench 15 sends garbage for a name at the very end
    "meta ends": "SELECT 1\n\\set x 5\nSELECT :x;\nSELECT 2 \\set x 6\nSELECT :x\n",
    "continued": "\\set x 1 + \\\n  2 * \\\n3\nSELECT :x;\n",
    "case": "\\SET x 1\n\\Set y Random(1, 9) + ABS(-1)\nSELECT :x, :y;\n",
    "windows": "\\set x 1\r\nSELECT :x;\r\nSELECT 2,\r\n3;\r\n",
    "begin atomic": "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3;\n",
    "create rule": "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);\nSELECT 3;\n",
    "compound": "SELECT 1 \\; SELECT 2 \\;\nSELECT 3;\n",
    "block": "BEGIN;\nUPDATE t SET v = v + :i;\nEND;\n",
    "strings": "SELECT U&'\\0041;', N';', B'1', X'F;', e'\\';' ;\nSELECT 'a'\n';b';\nSELECT 2;\n",
    "dollars": "SELECT a$1;SELECT $1$;\nSELECT $ü$;$ü$;\n",
    "operators": "SELECT 1 - -1, 2--1\n, 3 /- 4, 5 */ 6;\nSELECT 7;\n",
    "psql variables": "\\set x 7\nSELECT :'x', :\"x\";\n",
    "whether defined": "\\set x 7\nSELECT :{?x};\n",
    "time": "SELECT to_char(now(), 'HH24:MI:SS');\n",
    "tabs": "\t\\set\tx\t1\t+\t2\t\n\tSELECT\t:x\t;\n",
    "several in one line": "SELECT 1; SELECT 2;SELECT 3",
    "white space at the end": "SELECT 1   \n\n;\nSELECT 2  \n\n",
    "nothing but comments": "-- a\n  -- b\n;/* c */;-- d\n/* e */",
    "comment up to a carriage return": "-- a\rSELECT 1;\nSELECT 2 -- b\r;\n",
    "comments at the start": "/* a */ -- b\n SELECT 1;\n -- c\n /* d */ SELECT 2;\n",
    "slash stars": "SELECT 1 /*/ ; */; SELECT 2 /***/; SELECT 3 /* /* ; **/ ; */; SELECT 4;",
    "unterminated comment": "SELECT 1; /* SELECT 2; /* */",
    "unterminated quote": "SELECT 1; SELECT '2; SELECT 3;",
    "unterminated dollar quote": "SELECT 1; SELECT $a$2; $b$ SELECT 3;",
    "dollars in names": "SELECT a$b$;SELECT 1$b$;$b$;SELECT 1a$b$;SELECT $b c$;\nSELECT $1$;",
    "dollar quotes in dollar quotes": "SELECT $a$ $b$ ; $a $$ $a$; SELECT $$ $a$ ; $$;",
    "a variable before a dollar quote": "SELECT :x$a$;$a$;\nSELECT ::x$a$;\nSELECT 2;",
    "escapes": "SELECT e'\\\\'; SELECT E'\\''; SELECT xe'\\'; SELECT 1e'\\';SELECT 2;",
    "escapes continued": "SELECT E'a'\n'b\\';'; SELECT E'a' 'b\\'; SELECT E'a' -- c\n 'b\\';';",
    "unfinished escape": "SELECT 1; SELECT E'\\",
    "identifiers": 'SELECT U&"a;""b;" , U&\'a;\' , N\'a;\'\'\' ;SELECT 2;',
    "backslash colon": "\\set x 5\nSELECT 1 \\: 2, \\:x;\nSELECT '\\:x', '\\;';\n",
    "a compound of nothing": "\\;\\; SELECT 1;\nSELECT 2 \\;",
    "a lone backslash": "SELECT 1 \\\n SELECT 2;\n\\\nSELECT 3;",
    "parentheses stay open": "SELECT (1 \\set x 1\n SELECT 2; SELECT 3); SELECT 4; SELECT 5);SELECT 6;",
    "quotes and names of psql": "SELECT :'x;y', :\"x;y\";SELECT :'x' 'y;';SELECT :{?x;y};SELECT :{?};",
    "whether defined, not": "SELECT ':{?x}', $$:{?x}$$, \":{?x}\", ::{?x}; SELECT 1::{?x};",
    "two functions": "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END; SELECT 2;"
    "CREATE OR REPLACE PROCEDURE p() begin atomic SELECT CASE WHEN 1 THEN 2 END; SELECT 3; END;SELECT 4;",
    "no function": "CREATE TABLE f(); BEGIN; SELECT 1; END; CREATE VIEW v BEGIN; SELECT 2;",
    "begin in parentheses": "CREATE FUNCTION f(begin int) RETURNS int AS $$;$$; SELECT 1;",
    "function behind a compound": "SELECT 1\\;CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END; SELECT 2;",
    "function not first": "EXPLAIN CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END; SELECT 2;",
    "function with a body open": "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; SELECT 2;",
    "function and meta": "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; \\set x 1\nEND; SELECT 2;",
    "operators and comments": "SELECT 1+--;\n2; SELECT 3*/*;*/4; SELECT @-- ;\n5;",
    "vertical tabs": "\v\f SELECT\v1\f;\v\n\\set\vx\f1\nSELECT :x;",
    "not UTF-8 in its names": "\\set Ä 1\n\\set ÄÖ_1 2\nSELECT :Ä, :ÄÖ_1, ':Ö';",
    "long": "SELECT " + "'0123456789', " * 200 + "1;",
    "meta in the middle of lines": "SELECT 1 \\set x 3 \nSELECT :x; \\set x 4\n\t\\set y :x\n SELECT :y \\sleep 1us\n",
    "continued words": "\\sleep\\\n1\\\n us\\\n\nSELECT 1;\\sleep 1us\\\r\n\r\nSELECT 2;",
}  # fmt: skip
GIVEN = (("n", "0"), ("i", "12"), ("d", "1.50"), ("s", "some text"), ("q", "it''s"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_script_becomes_the_texts_that_pgbench_makes_of_it(bench, protocol):
    """The server may not like a text: then pgbench stops there, and we are compared up to there."""
    theirs, ours = {}, {}
    for name, script in SCRIPTS.items():
        case = one(script, protocol=protocol, variables=GIVEN)
        stopped = bench.pgbench(case, 0, 2).returncode == 2
        theirs[name] = bench.texts()
        assert theirs[name], name
        bench.start(case).finish()
        ours[name] = bench.texts()[: len(theirs[name]) if stopped else None]
    compare(theirs, ours)


VALUES = [
    "\\set n :n + 1\nSELECT :n;\n",
    "\\set n :n * 2 + 1\nSELECT :n, :unset;\n",
    "SELECT :i, :d, :s, :q;\n",
    "\\set x :d\nSELECT :x, :d, :i;\n",
    "\\set t true\n\\set d 0.1 + 0.2\n\\set i -5\nSELECT :t, :d, :i;\n",
    "\\set n :n + 1\nSELECT :n;\nSELECT :n + :n;\nSELECT :i;\n",
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_go_over_as_pgbench_sends_them(bench, protocol):
    scripts = VALUES
    if protocol == "simple":
        scripts = [s.replace(", :s, :q", "").replace(", :unset", "") for s in VALUES]
    named = {script: script for script in scripts}
    bench.check_each(named, protocol=protocol, transactions=3, variables=GIVEN)


@pytest.mark.parametrize("protocol", ["extended", "prepared"])
def test_null_goes_over_as_null_where_pgbench_sends_the_word(bench, protocol):
    """On purpose: pgbench binds the text NULL, which no number or date can be."""
    script = "\\set x null\nSELECT :x;\n"
    case = one(script, protocol=protocol)
    assert bench.theirs(case) == [[("SELECT $1;", ("NULL",))]]
    assert bench.ours(case) == [[("SELECT $1;", (None,))]]


def test_the_names_of_prepared_statements_are_pgbench_16s_and_each_is_prepared_once(
    bench, pgbench_version
):
    """pgbench 15 writes P<script>_<command>, 16 and later P_<n>."""
    case = Case((("SELECT 1;\nSELECT 2;\n", 1), ("SELECT 3;\n", 1)), protocol="prepared",
                transactions=20)  # fmt: skip

    def prepared() -> list[tuple[str, str]]:
        parsed = [m for m in bench.server.new() if m["manner"] == "parse"]
        return sorted((m["statement"], m["sql"]) for m in parsed)

    bench.start(case).finish()
    ours = prepared()
    assert ours == [("P_0", "SELECT 1;"), ("P_1", "SELECT 2;"), ("P_2", "SELECT 3;")]
    if pgbench_version != "15":
        bench.pgbench(case)
        assert prepared() == ours
