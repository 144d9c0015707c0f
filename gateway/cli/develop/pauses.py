"""Pauses between the chapters of the tour, until the user presses Enter."""

from __future__ import annotations

import asyncio
import os
import sys

from rich.console import Console

from gateway.settings.environment import variable


class Pauses:
    """Waits for Enter. Does not wait if standard input or output is not a terminal, or if the environment variable TOUR
    is `fast`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wanted = console.is_terminal and sys.stdin.isatty() and variable("TOUR") != "fast"

    async def wait(self) -> None:
        """Wait for Enter. The event loop is not blocked, so Ctrl-C ends the wait."""
        if not self._wanted:
            return
        self._console.print("[dim]Enter continues; Ctrl-C ends.[/]", markup=True, end=" ")
        loop, pressed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(0, pressed.set)
        try:
            await pressed.wait()
        finally:
            loop.remove_reader(0)
            self._console.print()
        if not await asyncio.to_thread(os.read, 0, 4096):  # the end of the input: nobody presses Enter any more
            self._wanted = False
