"""A cage for commands, of which everything is searched for a password."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# The password's beginning as it is, percent-encoded, and behind any number of backslashes; what
# follows the blank in it.
CANARY = re.compile(rb"s3(:|%3a|\\+:)cr|%27' \xc3\xbc|%2527%27|\\u00fc", re.IGNORECASE)
# Runs in every Python of ours before anything else: writes down each child that is started, with
# its arguments and its environment, and makes the program fail in its middle if that is asked.
# The supervisor runs no code of others, so its children are written down as they are ordered.
SITE = """
import json, os, sys
def write(event, words, environment):
    text = json.dumps([event, [os.fsdecode(w) for w in words], dict(environment)])
    with open(os.environ["CANARY_CHILDREN"], "a") as file:
        file.write(text + "\\n")
def hook(event, given):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        words, environment = (given[1], given[3]) if event == "subprocess.Popen" else given[1:3]
        write(event, words, os.environ if environment is None else environment)
        if any(os.fsdecode(word).endswith("supervisor_program.py") for word in words):
            overhear(sys.modules["pgpaces.server.supervisor"].Supervisor, environment)
def overhear(kind, inherited):
    if "unheard" in vars(kind):
        return
    kind.unheard = kind.send
    def send(self, order):
        if not isinstance(order, str):
            environment = inherited if order.variables is None else order.variables
            write("supervisor", map(str, order.words), environment)
        self.unheard(order)
    kind.send = send
sys.addaudithook(hook)
if os.environ.get("CANARY_BREAK"):
    import pgpaces.trial.trial, pgpaces.database.copies
    def broken(*words, **more):
        raise RuntimeError("broken on purpose")
    places = {"trial": pgpaces.trial.trial,
              "copies": pgpaces.database.copies}
    where, name = os.environ["CANARY_BREAK"].split(".")
    setattr(places[where], name, broken)
"""


@dataclass
class Ended:
    """A command that ended, and whether the canary was seen."""

    code: int
    out: bytes
    err: bytes
    children: list[tuple[list[str], dict[str, str]]]


@dataclass
class Cage:
    """Runs commands in a folder of which everything is searched afterwards, but for `given`."""

    home: Path
    kept: Path
    given: Path

    def __call__(self, *words: object, stdin: str = "", **variables: str) -> Ended:
        return self.run(["-m", "pgpaces", *map(str, words)], stdin, **variables)

    def well(self, *words: object, stdin: str = "", **variables: str) -> Ended:
        """Runs a command that must not fail."""
        allowed = ("--allow-fail",) if words[0] in ("run", "load", "sweep", "capacity") else ()
        ended = self(*words, *allowed, stdin=stdin, **variables)
        assert ended.code == 0, ended.err
        return ended

    def run(self, words: list[str], stdin: str = "", **variables: str) -> Ended:
        """Runs Python with these words."""
        children = self.kept / "children"
        children.unlink(missing_ok=True)
        mine = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "PYTEST"))} | {
            "PGPACES_HOME": str(self.home),
            "PGPACES_STORE": str(self.kept / "results.db"),
            "PYTHONPATH": str(self.given),
            "TMPDIR": str(self.kept),
            "HOME": str(self.kept),
            "CANARY_CHILDREN": str(children),
        }
        done = subprocess.run(
            [sys.executable, *words],
            env=mine | variables, input=stdin.encode(), capture_output=True, cwd=self.kept,
            timeout=120, check=False, start_new_session=True,
        )  # fmt: skip
        started = children.read_text().splitlines() if children.exists() else []
        found = [json.loads(line) for line in started]
        ended = Ended(done.returncode, done.stdout, done.stderr, [(w, e) for _, w, e in found])
        for where, text in (("stdout", done.stdout), ("stderr", done.stderr)):
            assert not CANARY.search(text), (where, text)
        for _, argv, environment in found:
            # A child that inherits our variables has them from its owner; ours must not.
            assert not CANARY.search(json.dumps(argv, ensure_ascii=False).encode()), argv
            shown = json.dumps(environment, ensure_ascii=False).encode()
            assert not CANARY.search(shown), (argv, environment)
        for path in [p for p in self.kept.rglob("*") if p.is_file()]:
            assert not CANARY.search(path.read_bytes()), path
        return ended
