"""A TCP proxy that tests make silent, slow or cruel while a load goes through it.

Of our own, because none that is maintained does this: what PyPI has can delay and drop, but neither
reset a connection nor leave it half open, and what can (toxiproxy) is a program of another world.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST, and forgets what was not sent


class _Link:
    """One connection through the proxy: its two ends, and the tasks that carry bytes."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server


class Proxy:
    """From a port of its own to a server. Used as a context; its methods are for any thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = 0
        self.accepted = 0
        self._links: set[_Link] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._drips = False
        self._delay_s = 0.0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._flowing.set()
        self._do(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self._do(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def silence(self) -> None:
        """Pass nothing on any more; nobody is told. What comes waits."""
        self._call(self._flowing.clear)

    def speak(self) -> None:
        """Pass on what waits, and go on."""
        self._call(self._flowing.set)

    def drip(self) -> None:
        """Pass on one byte at a time, each in a packet of its own."""
        self._drips = True

    def delay(self, seconds: float) -> None:
        """Hold back everything so long, each way."""
        self._delay_s = seconds

    def reset(self) -> None:
        """Break every connection with RST, towards both sides."""
        self._call(self._reset)

    def half_open(self) -> None:
        """End every connection towards the server; the clients hear nothing of it."""
        self._call(self._half_open)

    def refuse(self) -> None:
        """Listen no more; connections that stand go on."""
        self._do(self._end)

    def accept(self) -> None:
        """Listen again at the same port."""
        self._do(self._listen)

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._do(call)

    def _do(self, function: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(function(), self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, server = await asyncio.open_connection(*self._target)
        except OSError:
            client.transport.abort()
            return
        link = _Link(client, server)
        self._links.add(link)
        for writer in (client, server):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(self._carry(reader, server), self._carry(from_server, client, link))
        if link in self._links:
            self._links.discard(link)
            for writer in (client, server):
                writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link | None = None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                for piece in [data[i : i + 1] for i in range(len(data))] if self._drips else [data]:
                    writer.write(piece)
                    await writer.drain()
            # The end waits its turn as data does; who is half open never hears of it.
            await self._flowing.wait()
            if writer.can_write_eof() and (link is None or link in self._links):
                writer.write_eof()

    def _reset(self) -> None:
        for link in self._links:
            for writer in (link.client, link.server):
                end = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
        self._links.clear()

    def _half_open(self) -> None:
        for link in self._links:
            link.server.transport.abort()
        self._links.clear()
