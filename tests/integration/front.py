"""A server of two: connections of a load go to the fake server, all others to a real one.

So a whole experiment meets service times that are exact, though the fake server knows no catalogs.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

# What the load's connections call themselves; administrative ones add a word.
LOAD = b"application_name\0pgpaces\0"


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


@contextlib.contextmanager
def front(folder: Path, real: Path, fake: tuple[str, int]) -> Iterator[Path]:
    """The folder of a unix socket with port 5432. real: a socket; fake: host and port."""
    seen = {"load": 0, "other": 0}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            size = await reader.readexactly(4)
            start = size + await reader.readexactly(struct.unpack("!I", size)[0] - 4)
            if LOAD in start:
                seen["load"] += 1
                there, to = await asyncio.open_connection(*fake)
            else:
                seen["other"] += 1
                there, to = await asyncio.open_unix_connection(real)
            to.write(start)
            await asyncio.gather(_copy(reader, to), _copy(there, writer))

    async def listen() -> None:
        server = await asyncio.start_unix_server(serve, folder / ".s.PGSQL.5432", backlog=1000)
        ready.set()
        async with server:
            await over.wait()

    loop, ready = asyncio.new_event_loop(), threading.Event()
    over = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(listen(),))
    thread.start()
    ready.wait()
    try:
        yield folder
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
    assert seen["load"]
    assert seen["other"]
