"""Messages over the socket between a process and one that it has started: the length, then the bytes."""

import socket
import struct

LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes | None:
    """None: the other process has closed the connection or ended."""
    if (header := _exactly(connection, LENGTH.size)) is None:
        return None
    [length] = LENGTH.unpack(header)
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)
