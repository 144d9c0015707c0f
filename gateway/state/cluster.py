"""The way into a Redis or Valkey cluster: which node has which slot, and one link to each."""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.domain.tasks import Tasks
from gateway.errors import StateUnavailable
from gateway.state.address import Address
from gateway.state.link import Command, Link, dial

log = logging.getLogger(__name__)

Node = tuple[str, int]

SLOTS = 16384
HOPS = 3
"""Redirections followed for one command, enough for a slot on the move."""
REST_S = 0.3
"""A node that could not be reached is left alone for this long."""
_KEY_AT = {"EVAL": 3, "EVALSHA": 3, "XINFO": 2, "OBJECT": 2, "PING": 0, "ECHO": 0, "SCRIPT": 0, "INFO": 0}
"""Where a command's first key stands, if not at 1; 0: it has none, any node will do."""


class Cluster:
    """Implements Door. Keys of one command must share a hash tag; a pipeline may span nodes."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._slots: list[Node | None] = [None] * SLOTS
        self._links: dict[Node, Link] = {}
        self._locks: dict[Node, asyncio.Lock] = {}
        self._resting: dict[Node, float] = {}
        self._tasks = Tasks()
        self.alive = True

    @classmethod
    async def open(cls, address: Address, timeout_s: float) -> Cluster:
        """Learn the topology from the first seed that answers. Raises StateUnavailable."""
        cluster = cls(address, timeout_s)
        try:
            await cluster._learn()
        except BaseException:
            await cluster.aclose()
            raise
        return cluster

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        groups: dict[Node, list[int]] = {}
        for number, command in enumerate(commands):
            groups.setdefault(self._place(command), []).append(number)
        replies: list[Any] = [None] * len(commands)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(
                    *(self._ask(node, commands, numbers, replies, timeout_s) for node, numbers in groups.items())
                )
                for number, reply in enumerate(replies):
                    if isinstance(reply, Exception):
                        replies[number] = await self._follow(commands[number], reply, timeout_s)
        except TimeoutError as error:
            raise StateUnavailable(f"{self._address}: no reply in time") from error
        return replies

    async def aclose(self) -> None:
        self.alive = False
        await self._tasks.aclose()
        for link in self._links.values():
            await link.aclose()

    async def _ask(
        self, node: Node, commands: Sequence[Command], numbers: list[int], replies: list[Any], timeout_s: float
    ) -> None:
        link = await self._link(node)
        answered = await link.exchange([commands[number] for number in numbers], timeout_s)
        for number, reply in zip(numbers, answered, strict=True):
            replies[number] = reply

    async def _follow(self, command: Command, reply: Any, timeout_s: float) -> Any:
        """Where MOVED and ASK lead; other error replies stay what they are."""
        for _ in range(HOPS):
            kind, _, rest = str(reply).partition(" ")
            if not isinstance(reply, Exception) or kind not in ("MOVED", "ASK"):
                break
            slot, _, place = rest.partition(" ")
            host, _, port = place.rpartition(":")
            node = (host or self._address.hosts[0][0], int(port))
            if kind == "MOVED":
                self._slots[int(slot)] = node
                self._refresh()
            asking: list[Command] = [("ASKING",)] if kind == "ASK" else []
            reply = (await (await self._link(node)).exchange([*asking, command], timeout_s))[-1]
        return reply

    def _place(self, command: Command) -> Node:
        name = str(command[0]).upper()
        at = _KEY_AT.get(name, 1)
        if name == "XREAD":
            at = list(command).index("STREAMS") + 1
        node = self._slots[slot_of(command[at])] if at else next(filter(None, self._slots), None)
        if node is None:
            raise StateUnavailable(f"{self._address}: no node has the key's slot")
        return node

    async def _link(self, node: Node) -> Link:
        link = self._links.get(node)
        if link is not None and link.alive:
            return link
        loop = asyncio.get_running_loop()
        async with self._locks.setdefault(node, asyncio.Lock()):
            link = self._links.get(node)
            if link is not None and link.alive:
                return link
            if self._resting.get(node, 0.0) > loop.time():
                raise StateUnavailable(f"{node[0]}:{node[1]}: could not be reached a moment ago")
            try:
                link = self._links[node] = await dial(
                    replace(self._address, kind="tcp", hosts=(node,)), self._timeout_s
                )
            except BaseException:
                self._resting[node] = loop.time() + REST_S
                self._refresh()
                raise
            self._links[node] = link
            return link

    async def _dial(self, node: Node) -> Link:
        return await dial(replace(self._address, kind="tcp", hosts=(node,)), self._timeout_s)

    def _refresh(self) -> None:
        """Ask again who has what, once at a time."""
        if not len(self._tasks) and self.alive:
            self._tasks.spawn(self._relearn(), "cluster topology")

    async def _relearn(self) -> None:
        try:
            await self._learn()
        except StateUnavailable as error:
            log.warning("the cluster's topology is not to be had: %s", error)
        await asyncio.sleep(REST_S)

    async def _learn(self) -> None:
        reasons = []
        for seed in dict.fromkeys((*self._links, *self._address.hosts)):
            try:
                link = await self._dial(seed)
                try:
                    (ranges,) = await link.exchange((("CLUSTER", "SLOTS"),), self._timeout_s)
                finally:
                    await link.aclose()
            except StateUnavailable as error:
                reasons.append(str(error))
                continue
            if isinstance(ranges, list) and ranges:
                self._slots = _map(ranges, seed[0])
                return
            reasons.append(f"{seed[0]}:{seed[1]}: {ranges or 'no slots are assigned'}")
        raise StateUnavailable("; ".join(reasons))


def slot_of(key: str | bytes | int | float) -> int:
    """The slot of a key: of what stands between its first braces, if anything does."""
    data = key if isinstance(key, bytes) else str(key).encode()
    _, opened, rest = data.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return binascii.crc_hqx(tag if opened and closed and tag else data, 0) % SLOTS


def _map(ranges: list[Any], asked: str) -> list[Node | None]:
    """CLUSTER SLOTS → node per slot; a node without a name is the one that was asked."""
    slots: list[Node | None] = [None] * SLOTS
    for first, last, master, *_ in ranges:
        node = ((master[0] or b"").decode() or asked, int(master[1]))
        slots[first : last + 1] = [node] * (last + 1 - first)
    return slots
