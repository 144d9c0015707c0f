"""Free ports on 127.0.0.1 that no other process of load tests and tests gets."""

from __future__ import annotations

import secrets
import socket


def free_port(lowest: int = 10_000, highest: int = 19_999) -> int:
    """A port that nothing listens on, reserved for this process until the process ends.

    Both limits are below the ports that the system gives to clients (from 32768), so no outgoing connection takes the
    port before something listens on it. The reservation is a UDP socket on the same number, which stays open.
    """
    while True:
        port = lowest + secrets.randbelow(highest - lowest + 1)
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        reservation.detach()  # leaves the descriptor open
        return port
