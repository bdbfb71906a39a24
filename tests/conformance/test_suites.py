"""What differs from pgbench on purpose is little, and the documentation has each."""

import re
from pathlib import Path

from tests.conformance import suites

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pgbench.md"


def test_at_most_five_cases_of_pgbenchs_own_tests_differ_on_purpose():
    assert 1 <= len(suites.ON_PURPOSE) <= 5


def test_each_of_them_stands_in_the_documentation():
    for case in suites.ON_PURPOSE:
        message = re.search(r"\(\?\^:(.+)\)/", case)
        assert message is not None
        assert f"`{message[1]}`" in PAGE.read_text()
