"""Servers that are no PostgreSQL: one that talks as told, and a man in the middle of TLS."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def frame(tag: bytes, body: bytes = b"") -> bytes:
    """A message of the protocol."""
    return tag + struct.pack(">I", len(body) + 4) + body


@contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that talks so to everybody who connects."""

    def serve() -> None:
        while True:
            try:
                wire, _ = listener.accept()
            except OSError:
                return
            with wire:
                try:
                    talk(wire)
                    while wire.recv(4096):
                        pass
                except OSError:
                    pass

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def man_in_the_middle(port: int, certificates: Any) -> Iterator[int]:
    """The port of a proxy that decrypts with a certificate of its own and encrypts again."""
    inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    inside.load_cert_chain(certificates.crt("wrong_name"), certificates.key("wrong_name"))
    outside = ssl.create_default_context()
    outside.check_hostname, outside.verify_mode = False, ssl.CERT_NONE

    def pump(source: ssl.SSLSocket, sink: ssl.SSLSocket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for wire in (source, sink):
                with suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)

    def talk(wire: socket.socket) -> None:
        assert wire.recv(8) == SSL_REQUEST
        wire.sendall(b"S")
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(SSL_REQUEST)
            assert plain.recv(1) == b"S"
            client = inside.wrap_socket(wire.dup(), server_side=True)
            with closing(client), closing(outside.wrap_socket(plain)) as server:
                back = threading.Thread(target=pump, args=(server, client), daemon=True)
                back.start()
                pump(client, server)
                back.join()

    with answering(talk) as own_port:
        yield own_port
