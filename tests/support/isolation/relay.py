"""Forwards a port inside a network namespace to the host, so that containers reach a cell on the host."""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
_PIECE_BYTES = 65536


@contextlib.contextmanager
def relay_into(namespace: str, port: int) -> Iterator[None]:
    """While the block runs, forward the port in the namespace to 127.0.0.1:port of the host."""
    listener = _listen_in(namespace, port)
    thread = threading.Thread(target=_accept, args=(listener, port), name="relay", daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _listen_in(namespace: str, port: int) -> socket.socket:
    """Create a listener in a namespace. A temporary thread enters it; the socket stays in that namespace."""
    created: list[socket.socket] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        opened = os.open(namespace, os.O_RDONLY)
        try:
            if libc.setns(opened, CLONE_NEWNET) == 0:
                created.append(socket.create_server(("", port)))
        finally:
            os.close(opened)

    thread = threading.Thread(target=enter, name="enter namespace")
    thread.start()
    thread.join()
    assert created, f"{namespace} cannot be entered"
    return created[0]


def _accept(listener: socket.socket, port: int) -> None:
    while True:
        try:
            inner, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=forward_connection, args=(inner, port), name="relay connection", daemon=True).start()


def forward_connection(inner: socket.socket, port: int) -> None:
    """Copy data in both directions until either end is closed."""
    with inner, socket.create_connection(("127.0.0.1", port)) as outer:
        back = threading.Thread(target=_copy, args=(outer, inner), name="relay answer", daemon=True)
        back.start()
        _copy(inner, outer)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
