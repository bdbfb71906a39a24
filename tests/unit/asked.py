"""Three hundred command lines, and the `--dry-run --json` of each.

The lines and their answers are in tests/golden/requests.json; some lines are odd or contradictory.
`python -m tests.unit.asked` writes the answers again after an intended change; a line is added by
hand, as {"line": "pgpaces run ..."}.
"""

import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core.errors import PgpacesError
from pgpaces.server import pooler

FROZEN = Path(__file__).parents[1] / "golden" / "requests.json"
HOME = "{HOME}"
# Whether a pooler is installed must not change what is asked for.
INSTALLED = pooler.PoolerProgram(Path("/usr/sbin/pooler"), "1.18.0")


def lines() -> list[list[str]]:
    """The words of each line."""
    return [shlex.split(each["line"])[1:] for each in json.loads(FROZEN.read_text())]


def asked(words: Sequence[str], home: Path) -> dict[str, Any]:
    """What a command line asks for: the same in all trials, and apart; or an exit code."""
    typed = [word.replace(HOME, str(home)) for word in words]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    places = {"PGPACES_HOME": str(home), "HOME": str(home)}
    with (
        mock.patch.dict(os.environ, clean | places, clear=True),
        mock.patch.object(pooler, "find", return_value=INSTALLED),
    ):
        done = CliRunner().invoke(cli, [*typed, "--dry-run", "--json"])
    if isinstance(done.exception, PgpacesError):
        return {"exit": done.exception.exit_code}
    if done.exit_code:
        return {"exit": done.exit_code}
    document = json.loads(done.stdout.replace(str(home), HOME))
    specs = document.get("specs") or [document["spec"]]
    same = {k: v for k, v in specs[0].items() if all(each.get(k) == v for each in specs)}
    apart = [{k: v for k, v in each.items() if k not in same} for each in specs]
    return {"same": same, "apart": apart} if len(specs) > 1 else {"same": same}


def frozen(home: Path) -> list[dict[str, Any]]:
    """The lines with what they ask for; after the first, what differs from it."""
    first, *others = lines()
    usual = asked(first, home)["same"]
    answers = [{"line": shlex.join(["pgpaces", *first]), "same": usual}]
    for words in others:
        answer = asked(words, home)
        if "same" in answer:
            answer["same"] = _differs(answer["same"], usual, answer.get("apart", ()))
        answers.append({"line": shlex.join(["pgpaces", *words]), **answer})
    return answers


def _differs(
    same: Mapping[str, Any], usual: Mapping[str, Any], apart: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    absent = {k for k in usual if k not in same and not any(k in each for each in apart)}
    return {k: v for k, v in same.items() if usual.get(k) != v} | dict.fromkeys(sorted(absent))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        FROZEN.write_text(json.dumps(frozen(Path(folder)), indent=1, ensure_ascii=False) + "\n")
