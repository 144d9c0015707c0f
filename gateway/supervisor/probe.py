"""Sends one GET request to a local server, without a client library."""

from __future__ import annotations

import asyncio


async def status_of(host: str, port: int, path: str, timeout_s: float) -> int:
    """The HTTP status of `GET path`; 0 if no answer arrives in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
