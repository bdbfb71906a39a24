"""The same seed and script give the same SQL as pgbench 15, text for text.

Both run against the fake server, which writes down every statement that comes in. Where we differ
from pgbench on purpose, a test says so.
"""

import dataclasses
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgpaces import _engine
from pgpaces.errors import ScriptError

PGBENCH = Path("/usr/lib/postgresql/15/bin/pgbench")
pytestmark = [
    pytest.mark.usefixtures("clean_client"),
    pytest.mark.skipif(not PGBENCH.exists(), reason=f"skipped: needs {PGBENCH}"),
]
SEEDS = (0, 5432, 18_446_744_073_709_551_615)
Statement = tuple[str, tuple[str | None, ...]]


def bug(why: str) -> pytest.MarkDecorator:
    """What the engine does not do yet; remove the mark with the bug."""
    return pytest.mark.xfail(strict=True, reason=f"engine: {why}")


@dataclass(frozen=True)
class Case:
    """Scripts with their weights, and how both are told to run them."""

    scripts: tuple[tuple[str, int], ...]
    seed: int = 5432
    protocol: str = "simple"
    transactions: int = 5
    clients: int = 1
    variables: tuple[tuple[str, str], ...] = ()


class Bench:
    """Runs a case with pgbench and with us; each gives the statements of its clients in order."""

    def __init__(self, start_fake_server: Callable[..., Any], start_load: Any, tmp: Path) -> None:
        self.server = start_fake_server()
        self.start_load, self.tmp = start_load, tmp
        self.seen = 0

    def _statements(self) -> list[list[Statement]]:
        """What came since we last looked, by connection. Neither logs in with a statement.

        A simple query counts as it came, others when they are executed. pgbench 15 asks nothing
        on connecting: it neither vacuums (-n) nor counts branches (no builtin script).
        """
        recorded = self.server.recorded()
        new, self.seen = recorded[self.seen :], len(recorded)
        by_connection: dict[int, list[Statement]] = {}
        for message in new:
            if message["manner"] == "parse":
                continue
            found = (message["sql"], tuple(message["parameters"]))
            by_connection.setdefault(message["connection"], []).append(found)
        return list(by_connection.values())

    def _texts(self) -> list[str]:
        """Every text that came since we last looked, also of what failed, in order."""
        recorded = self.server.recorded()
        new, self.seen = recorded[self.seen :], len(recorded)
        return [m["sql"] for m in new if m["manner"] != "execute"]

    def pgbench(self, case: Case, *expect: int) -> subprocess.CompletedProcess[str]:
        command = [str(PGBENCH), "-n", "-h", "127.0.0.1", "-p", str(self.server.port), "-U", "u"]
        command += ["-c", str(case.clients), "-j", "1", "-t", str(case.transactions)]
        command += ["-M", case.protocol, f"--random-seed={case.seed}"]
        command += [f"-D{name}={value}" for name, value in case.variables]
        for number, (text, weight) in enumerate(case.scripts):
            path = self.tmp / f"script{number}.sql"
            path.write_text(text)
            command += ["-f", f"{path}@{weight}"]
        done = subprocess.run([*command, "d"], capture_output=True, text=True, check=False)
        assert done.returncode in (expect or (0,)), done.stderr
        return done

    def theirs(self, case: Case) -> list[list[Statement]]:
        """Without the semicolon that ends a command: pgbench sends it, we do not."""
        self.pgbench(case)
        return [[(without_semicolon(sql), values) for sql, values in client]
                for client in self._statements()]  # fmt: skip

    def start(self, case: Case) -> Any:
        scripts = [(f"script{n}", w, text) for n, (text, w) in enumerate(case.scripts)]
        return self.start_load(
            self.server.dsn(), scripts, clients=case.clients, seed=case.seed,
            transactions=case.transactions, protocol=case.protocol,
            variables=list(case.variables),
        )  # fmt: skip

    def ours(self, case: Case) -> list[list[Statement]]:
        self.start(case).finish()
        return self._statements()

    def check(self, case: Case) -> list[Statement]:
        """Both give the same; what it was, of all clients."""
        theirs = self.theirs(case)
        assert self.ours(case) == theirs
        assert len(theirs) == case.clients
        return [statement for client in theirs for statement in client]


def without_semicolon(sql: str) -> str:
    return sql.removesuffix(";").rstrip()


@pytest.fixture
def bench(fake_server: Any, start_load: Any, tmp_path: Path) -> Bench:
    return Bench(fake_server, start_load, tmp_path)


# --- draws ----------------------------------------------------------------------------------

DRAWS = [
    "random(1, 10)",
    "random(1, 1)",
    "random(-5000, 5000)",
    "random(1, 100000 * :scale)",
    "random(0, 9223372036854775806)",
    "random(-4611686018427387904, 4611686018427387902)",
    "random(1, 4294967296)",
    "random(1.5, 9.4)",
    "random_exponential(1, 100, 0.0001)",
    "random_exponential(1, 100, 2.5)",
    "random_exponential(1, 1000000000000, 10)",
    "random_exponential(-10, 10, 50)",
    "random_exponential(7, 7, 1)",
    "random_gaussian(1, 100, 2.0)",
    "random_gaussian(1, 100, 2.5)",
    "random_gaussian(-1000000, 1000000, 10)",
    "random_gaussian(3, 3, 4)",
    "random_zipfian(1, 100, 1.001)",
    "random_zipfian(1, 100, 1.5)",
    "random_zipfian(1, 1000000000, 1.07)",
    "random_zipfian(1, 1000, 3)",
    "random_zipfian(-5, 5, 1000)",
    "random_zipfian(9, 9, 2)",
    "random(1, random(1, random(1, 1000)))",
    "random(1, 9) * 10 + random_zipfian(1, 9, 1.2) - random_gaussian(1, 5, 3) / 2",
    "case when random(0, 1) = 1 then random(1, 100) else random_exponential(1, 9, 2) end",
    "greatest(random(1, 9), random(1, 9), random(1, 9))",
    "random(0, 1) = 1 and random(0, 1) = 1",
    "random(0, 1) = 1 or random(0, 1) = 1",
]
ALL_DRAWS = "".join(f"\\set x{n} {draw}\nSELECT :x{n};\n" for n, draw in enumerate(DRAWS))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("draw", DRAWS)
def test_one_seed_draws_what_pgbench_draws(bench: Bench, draw: str, seed: int) -> None:
    script = f"\\set x {draw}\nSELECT :x;\n"
    drawn = bench.check(Case(((script, 1),), seed=seed, transactions=100))
    assert len(drawn) == 100


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_draws_of_many_kinds_from_one_stream_agree_over_thousands(
    bench: Bench, seed: int, protocol: str
) -> None:
    case = Case(((ALL_DRAWS, 1),), seed=seed, transactions=100, protocol=protocol)
    assert len(bench.check(case)) == 100 * len(DRAWS)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_client_has_the_stream_that_it_has_in_pgbench(bench: Bench, seed: int) -> None:
    script = "\\set x random(1, 1000000000)\nSELECT :client_id, :x;\n"
    drawn = bench.check(Case(((script, 1),), seed=seed, clients=8, transactions=20))
    assert len(set(drawn)) == 160


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "weights", [(3, 1), (1, 1, 1), (1, 0, 5), (1000000, 1), (1,) * 40], ids=str
)
def test_scripts_are_chosen_in_pgbenchs_order(
    bench: Bench, weights: tuple[int, ...], seed: int
) -> None:
    scripts = tuple(
        (f"\\set x random(1, 1000)\nSELECT 'script {n}', :x;\n", weight)
        for n, weight in enumerate(weights)
    )
    bench.check(Case(scripts, seed=seed, transactions=200))


@pytest.mark.parametrize("seed", SEEDS)
def test_automatic_variables_are_pgbenchs(bench: Bench, seed: int) -> None:
    script = "SELECT :scale, :client_id, :random_seed, :default_seed;\n"
    bench.check(Case(((script, 1),), seed=seed, clients=3))
    bench.check(Case(((script, 1),), seed=seed, variables=(("scale", "7"), ("default_seed", "1"))))


def test_a_given_default_seed_moves_the_choice_of_scripts_as_in_pgbench(bench: Bench) -> None:
    scripts = tuple((f"SELECT 'script {n}';\n", 1) for n in range(10))
    bench.check(Case(scripts, transactions=100, variables=(("default_seed", "1"),)))


# --- expressions ----------------------------------------------------------------------------

EXPRESSIONS = [
    line.strip()
    for line in (Path(__file__).with_name("expressions.txt")).read_text().splitlines()
    if line.strip() and not line.startswith("--")
]


def computed(statements: list[Statement]) -> dict[str, str]:
    """Value by expression; the statements end in a comment with its number."""
    found = (re.fullmatch(r"SELECT '(.*)' /\* (\d+) \*/", sql) for sql, _ in statements)
    return {EXPRESSIONS[int(m[2])]: m[1] for m in found if m}


@pytest.fixture
def both_computed(bench: Bench) -> tuple[dict[str, str], dict[str, str]]:
    """The value of every expression as text: theirs and ours."""
    script = "".join(
        f"\\set x {expression}\nSELECT ':x' /* {n} */;\n"
        for n, expression in enumerate(EXPRESSIONS)
    )
    given = (("i", "42"), ("d", "2.5"), ("e", "1e3"), ("t", "yes"), ("f", "off"), ("z", "NULL"),
             ("neg", " -7"))  # fmt: skip
    case = Case(((script, 1),), transactions=1, variables=given)
    [theirs], [ours] = bench.theirs(case), bench.ours(case)
    assert len(computed(theirs)) == len(EXPRESSIONS)
    return computed(theirs), computed(ours)


NOT_FINITE = ("Infinity", "-Infinity", "NaN")


def test_every_expression_has_pgbenchs_value(both_computed: Any) -> None:
    theirs, ours = both_computed
    differences = {
        expression: (value, ours.get(expression))
        for expression, value in theirs.items()
        if value not in NOT_FINITE and ours.get(expression) != value
    }
    assert differences == {}


def test_what_is_not_finite_is_written_as_pgbench_does(both_computed: Any) -> None:
    theirs, ours = both_computed
    expected = {e: value for e, value in theirs.items() if value in NOT_FINITE}
    assert expected
    assert {expression: ours[expression] for expression in expected} == expected


OVERFLOW = bug("the number is not written as %f: 1000000000000000019884624838656.000000")
NAMELESS = bug('the message does not name the variable: undefined variable "nowhere"')


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "1 % 0",
        "mod(1, 0)",
        "9223372036854775807 + 1",
        "-9223372036854775808 - 1",
        "9223372036854775807 * 2",
        "-9223372036854775808 / -1",
        "- (-9223372036854775808)",
        pytest.param("int(1e30)", marks=OVERFLOW),
        pytest.param("int(-1e19)", marks=OVERFLOW),
        "int(0.0 / 0)",
        pytest.param("1e300 % 2", marks=OVERFLOW),
        "not 1",
        "1 and true",
        "true + 1",
        "true < false",
        "sqrt(true)",
        "random(2, 1)",
        "random(-9223372036854775808, 0)",
        "random(true, 2)",
        "random_gaussian(1, 2, 1.999)",
        "random_exponential(1, 2, 0)",
        "random_zipfian(1, 2, 1)",
        "random_zipfian(1, 2, 1001)",
        pytest.param(":nowhere", marks=NAMELESS),
        pytest.param(":text + 1", marks=NAMELESS),
        "greatest(1, true)",
    ],
)
def test_what_pgbench_cannot_compute_we_cannot_either_and_say_it_alike(
    bench: Bench, expression: str
) -> None:
    script = f"\\set x {expression}\nSELECT :x;\n"
    case = Case(((script, 1),), transactions=1, variables=(("text", "twelve"),))
    theirs = bench.pgbench(case, 2).stderr
    with pytest.raises(ScriptError) as caught:
        bench.start(case).finish()
    said = re.sub(r"^script0:1: ", "", caught.value.message)
    assert f"pgbench: error: {said}" in theirs.splitlines()


@pytest.mark.parametrize("expression", ["true = true", "true <> false", "true != true"])
def test_booleans_can_be_compared_which_pgbench_15_cannot(bench: Bench, expression: str) -> None:
    case = Case(((f"\\set x {expression}\nSELECT :x;\n", 1),), transactions=1)
    assert "cannot coerce boolean to int" in bench.pgbench(case, 2).stderr
    bench._statements()
    value = "false" if expression == "true != true" else "true"
    assert bench.ours(case) == [[(f"SELECT {value}", ())]]


@bug("IS NULL behind IS NULL is a syntax error")
@pytest.mark.parametrize("expression", ["1 is null is null", "1 isnull isnull is not true"])
def test_tests_for_null_can_follow_each_other(bench: Bench, expression: str) -> None:
    bench.check(Case(((f"\\set x {expression}\nSELECT :x;\n", 1),)))


TEXTS = [
    *("12", "+12", "-3", " 7", "007", "1.5", "1e3", ".5", "5.", "-.5e-2", "1E+2", "0x10"),
    *("Yes", "y", "true", "TRUE", "t", "tru", "on", "ON", "o", "no", "N", "fal", "off", "of"),
    *("null", "NULL", "nul", "twelve", "12abc", "1.5x", "1 2", "- 3", "--3", " ", " -3 ", "7 "),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400", "1e-400"),
    *("inf", "nan", "Infinity", " 1.5", "1.5 ", " yes", "yes "),
]
TEXT_BUGS = dict.fromkeys((" -3 ", "7 ", "1.5 ", "yes ", " yes"), "spaces are forgiven")
TEXT_BUGS |= dict.fromkeys(("9223372036854775808", "1e400", "1e-400"), "overflow is forgiven")
TEXT_BUGS |= dict.fromkeys(("0x10", "inf", "nan", "Infinity"), "not a number, but to strtod")


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_from_the_command_line_becomes_the_value_that_pgbench_makes_of_it(
    bench: Bench, text: str, request: pytest.FixtureRequest
) -> None:
    if text in TEXT_BUGS:
        request.applymarker(bug(TEXT_BUGS[text]))
    case = Case((("\\set x :v\nSELECT ':x';\n", 1),), transactions=1, variables=(("v", text),))
    if bench.pgbench(case, 0, 2).returncode == 2:
        bench._statements()
        with pytest.raises(ScriptError, match="malformed variable"):
            bench.start(case).finish()
    else:
        [[(theirs, _)]] = bench._statements()
        assert bench.ours(case) == [[(without_semicolon(theirs), ())]]


SAME_WORDS = [
    "\\set x 1 +",
    "\\set",
    "\\set x (1",
    "\\set x 1)",
    "\\set x foo(1)",
    "\\set x random(1)",
    "\\set x random(1, 2, 3)",
    "\\set x greatest()",
    "\\set x pi(1)",
    "\\set x 1 < 2 < 3",
    "\\set x 1 = 2 = 3",
    "\\set x 1e400",
    "\\set x 1;",
    "\\set x 'a'",
    "\\set x case 1 when 1 then 2 end",
    "\\set x case when 1 then 2",
    "\\set x 1 not 2",
    "\\set x not",
    "\\set x :",
    "\\set x 1 2",
    "\\set x 1.5.5",
    "\\set x :a::b",
    "\\sleep",
    "\\sleep 1 h",
    "\\sleep 1 s more",
    "\\nosuch",
]
WORDS_OF_OUR_OWN = ["\\set x", "\\set x 9223372036854775808", "\\sleep x"]
FOUND_BEFORE_THE_RUN = ["\\set 1x 1", "\\set x least(" + ", ".join("1" * 17) + ")"]


def reason_of(script: str) -> str:
    """Why we do not parse the second line of the script."""
    with pytest.raises(ScriptError, match=r":2:\d+: ") as caught:
        _engine.parse_script("script0", script)
    return re.sub(r"^script0:2:\d+: ", "", caught.value.message.splitlines()[0])


@pytest.mark.parametrize("line", SAME_WORDS + WORDS_OF_OUR_OWN + FOUND_BEFORE_THE_RUN)
def test_what_pgbench_does_not_parse_we_do_not_either(bench: Bench, line: str) -> None:
    script = f"SELECT 1;\n{line}\n"
    exit_code = 2 if line in FOUND_BEFORE_THE_RUN else 1
    theirs = bench.pgbench(Case(((script, 1),)), exit_code).stderr
    reason = reason_of(script)
    assert line not in SAME_WORDS or f"script0.sql:2: {reason}" in theirs


# --- text -----------------------------------------------------------------------------------

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
}  # fmt: skip
DIFFERENT = {
    "empty": "commands of nothing but a semicolon are dropped; pgbench sends them",
    "begin atomic": "the semicolons of BEGIN ATOMIC ... END split it",
    "whether defined": ":{?x} is left alone; psql's lexer makes it FALSE",
}
GIVEN = (("n", "0"), ("i", "12"), ("d", "1.50"), ("s", "some text"), ("q", "it''s"))


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_becomes_the_texts_that_pgbench_makes_of_it(
    bench: Bench, name: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    """The server may not like a text: then both stop there."""
    if name in DIFFERENT:
        request.applymarker(bug(DIFFERENT[name]))
    case = Case(((SCRIPTS[name], 1),), protocol=protocol, transactions=1, variables=GIVEN)
    bench.pgbench(case, 0, 2)
    theirs = [without_semicolon(sql) for sql in bench._texts()]
    bench.start(case).finish()
    assert theirs
    assert bench._texts() == theirs


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
@pytest.mark.parametrize(
    "script",
    [
        "\\set n :n + 1\nSELECT :n;\n",
        "\\set n :n * 2 + 1\nSELECT :n, :unset;\n",
        "SELECT :i, :d, :s, :q;\n",
        "\\set x :d\nSELECT :x, :d, :i;\n",
        "\\set t true\n\\set d 0.1 + 0.2\n\\set i -5\nSELECT :t, :d, :i;\n",
        "\\set n :n + 1\nSELECT :n;\nSELECT :n + :n;\nSELECT :i;\n",
    ],
)
def test_values_go_over_as_pgbench_sends_them(bench: Bench, script: str, protocol: str) -> None:
    if protocol == "simple":
        script = script.replace(", :s, :q", "").replace(", :unset", "")
    case = Case(((script, 1),), protocol=protocol, transactions=3, variables=GIVEN)
    assert bench.check(case)


@pytest.mark.parametrize("protocol", ["extended", "prepared"])
def test_null_goes_over_as_null_where_pgbench_sends_the_word(bench: Bench, protocol: str) -> None:
    """On purpose: pgbench binds the text NULL, which no number or date can be."""
    script = "\\set x null\nSELECT :x;\n"
    case = Case(((script, 1),), protocol=protocol, transactions=1)
    assert bench.theirs(case) == [[("SELECT $1", ("NULL",))]]
    assert bench.ours(case) == [[("SELECT $1", (None,))]]


def test_the_names_of_prepared_statements_are_pgbench_16s_and_each_is_prepared_once(
    bench: Bench,
) -> None:
    """pgbench 15 writes P<script>_<command>, 16 and later P_<n>."""
    case = Case((("SELECT 1;\nSELECT 2;\n", 1), ("SELECT 3;\n", 1)), protocol="prepared",
                transactions=20)  # fmt: skip
    bench.start(case).finish()
    parsed = [m for m in bench.server.recorded() if m["manner"] == "parse"]
    assert sorted((m["statement"], m["sql"]) for m in parsed) == [
        ("P_0", "SELECT 1"), ("P_1", "SELECT 2"), ("P_2", "SELECT 3")
    ]  # fmt: skip


def test_the_same_messages_are_sent_with_and_without_describing(
    bench: Bench, start_load: Any
) -> None:
    case = Case(((ALL_DRAWS, 1),), protocol="prepared", transactions=2)
    described = bench.ours(case)
    start_load(
        bench.server.dsn(), [("t", 1, ALL_DRAWS)], clients=1, seed=case.seed,
        transactions=2, protocol="prepared", describe=False,
    ).finish()  # fmt: skip
    assert bench._statements() == described


def test_a_case_that_differs_is_seen(bench: Bench) -> None:
    """The comparison itself can fail."""
    case = Case((("\\set x random(1, 1000000)\nSELECT :x;\n", 1),))
    assert bench.theirs(case) != bench.ours(dataclasses.replace(case, seed=1))
