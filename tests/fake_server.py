"""A server that takes every statement, answers none of it truly, and writes it down."""

import contextlib
import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.folders import ROOT
from tests.servers import quoted

FAKE_SERVER = ROOT / "target/debug/pgpaces-fakeserver"


@dataclass
class FakeServer:
    """A fake server that runs: where it is, and its remote control."""

    host: str
    port: int
    record: Path
    _control: Any
    _read: int = 0

    def dsn(self, **more: object) -> str:
        words = {"host": self.host, "port": self.port, "user": "u", "dbname": "d"}
        return quoted(words | {"sslmode": "disable"} | more)

    def control(self, line: str) -> Any:
        """Give one order; its answer, read from JSON where it is that."""
        self._control.write(f"{line}\n")
        self._control.flush()
        answer = self._control.readline().strip()
        assert not answer.startswith("error"), answer
        return answer if answer == "ok" else json.loads(answer)

    def new(self) -> list[dict[str, Any]]:
        """Every message with SQL that came since this was last called."""
        self.control("thaw")  # whoever answers has written what came before
        with self.record.open("rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines()
            self._read = file.tell()
        return [json.loads(line) for line in lines]


@contextlib.contextmanager
def running_fake_server(program: Path, folder: Path, *options: object) -> Iterator[FakeServer]:
    """A fake server with options; it ends with this, or with us."""
    record = Path(tempfile.mkdtemp(dir=folder)) / "record"
    words = (program, "--control", "127.0.0.1:0", "--record", record, *options)
    process = subprocess.Popen(
        [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    _, host, port = process.stdout.readline().split()
    _, control_host, control_port = process.stdout.readline().split()
    with (
        socket.create_connection((control_host, int(control_port))) as wire,
        wire.makefile("rw") as control,
    ):
        yield FakeServer(host, int(port), record, control)
    process.communicate()
