"""The same seed gives the same numbers, the same choice of scripts and the same automatic variables
as pgbench, text for text.
"""

import pytest
from msgspec.structs import replace
from tests.conformance.side_by_side import Case

SEEDS = (0, 5432, 18_446_744_073_709_551_615)

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
    "random(1, 9) > random(1, 9) * random(1, 9)",
    "(random(1, 9) >= random(1, 9)) and random(1, 9) <> 3",
    "null + random(1, 9) is null",
    "greatest(null, random(1, 9), random_gaussian(1, 9, 2)) is null",
    "case when random(0, 3) > 1 then random(1, 9) when random(0, 1) = 1 then 7 else 8 end",
    "hash(random(1, 1000))",
    "hash_fnv1a(random(1, 1000), random(1, 9))",
    "permute(random(0, 999), 1000)",
    "abs(hash(random_zipfian(1, 1000, 1.2))) % 1000",
]
ALL_DRAWS = "".join(f"\\set x{n} {draw}\nSELECT :x{n};\n" for n, draw in enumerate(DRAWS))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_draws_what_pgbench_draws(bench, seed):
    scripts = {draw: f"\\set x {draw}\nSELECT :x;\n" for draw in DRAWS}
    drawn = bench.check_each(scripts, seed=seed, transactions=100)
    assert {len(statements) for statements in drawn.values()} == {200}


# Each seed with one protocol; with all of them in the slow tests.
TOGETHER = [
    pytest.param(seed, protocol, marks=() if n == m else pytest.mark.slow)
    for n, seed in enumerate(SEEDS)
    for m, protocol in enumerate(("simple", "extended", "prepared"))
]


@pytest.mark.parametrize(("seed", "protocol"), TOGETHER)
def test_draws_of_many_kinds_from_one_stream_agree_over_thousands(bench, seed, protocol):
    case = Case(((ALL_DRAWS, 1),), seed=seed, transactions=100, protocol=protocol)
    assert len(bench.check(case)) == 100 * len(DRAWS)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_client_has_the_stream_that_it_has_in_pgbench(bench, seed):
    script = "\\set x random(1, 1000000000)\nSELECT :client_id, :x;\n"
    drawn = bench.check(Case(((script, 1),), seed=seed, clients=8, transactions=20))
    assert len(set(drawn)) == 160


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "weights", [(3, 1), (1, 1, 1), (1, 0, 5), (1000000, 1), (1,) * 40], ids=str
)
def test_scripts_are_chosen_in_pgbenchs_order(bench, weights, seed):
    scripts = tuple(
        (f"\\set x random(1, 1000)\nSELECT 'script {n}', :x;\n", weight)
        for n, weight in enumerate(weights)
    )
    bench.check(Case(scripts, seed=seed, transactions=200))


@pytest.mark.parametrize("seed", SEEDS)
def test_automatic_variables_are_pgbenchs(bench, seed):
    script = "SELECT :scale, :client_id, :random_seed, :default_seed;\n"
    bench.check(Case(((script, 1),), seed=seed, clients=3))
    bench.check(Case(((script, 1),), seed=seed, variables=(("scale", "7"), ("default_seed", "1"))))


def test_a_given_default_seed_moves_the_choice_of_scripts_as_in_pgbench(bench):
    scripts = tuple((f"SELECT 'script {n}';\n", 1) for n in range(10))
    bench.check(Case(scripts, transactions=100, variables=(("default_seed", "1"),)))


def test_the_same_messages_are_sent_with_and_without_describing(bench, start_load):
    case = Case(((ALL_DRAWS, 1),), protocol="prepared", transactions=2)
    described = bench.ours(case)
    start_load(
        bench.server.dsn(), [("t", 1, ALL_DRAWS)], clients=1, seed=case.seed,
        transactions=2, protocol="prepared", describe=False,
    ).finish()  # fmt: skip
    assert bench.statements() == described


def test_a_case_that_differs_is_seen(bench):
    """The comparison itself can fail."""
    case = Case((("\\set x random(1, 1000000)\nSELECT :x;\n", 1),))
    assert bench.theirs(case) != bench.ours(replace(case, seed=1))
