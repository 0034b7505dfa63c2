"""One side of a ping-pong over TCP, run as a script on a host: `serve|call ADDRESS BYTES ROUNDS wait|spin`.

See launch.round_trip. The caller prints the seconds of every round as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import time

PORT = 5202
WARM_UP = 200


def exchange(connection: socket.socket, size_bytes: int, rounds: int, calls: bool, spins: bool) -> list[float]:
    """Run the rounds of one side and return the seconds of each, warm-up left out."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    flags = socket.MSG_DONTWAIT if spins else 0
    message = b"x" * size_bytes
    view = memoryview(bytearray(size_bytes))

    def receive() -> None:
        got = 0
        while got < size_bytes:
            try:
                count = connection.recv_into(view[got:], 0, flags)
            except BlockingIOError:
                continue
            if count == 0:
                raise EOFError("the other side closed the connection")
            got += count

    times = []
    for _ in range(WARM_UP + rounds):
        began = time.perf_counter()
        if calls:
            connection.sendall(message)
            receive()
        else:
            receive()
            connection.sendall(message)
        times.append(time.perf_counter() - began)
    return times[WARM_UP:]


def main() -> None:
    """Serve one caller, or call."""
    role, address = sys.argv[1:3]
    size_bytes, rounds = map(int, sys.argv[3:5])
    spins = sys.argv[5] == "spin"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if role == "serve":
        with socket.create_server((address, PORT), family=family) as listener:
            connection, _ = listener.accept()
            exchange(connection, size_bytes, rounds, calls=False, spins=spins)
    else:
        with socket.create_connection((address, PORT)) as connection:
            print(json.dumps(exchange(connection, size_bytes, rounds, calls=True, spins=spins)))


if __name__ == "__main__":
    main()
