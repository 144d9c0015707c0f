"""The differences between the chat APIs of other vendors and OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class ChatRules:
    """The fields that a vendor's chat API refuses, or that have another name in it. Two instances are equal only if
    they are the same object."""

    leaves_out: frozenset[str] = frozenset()
    """Fields that the API refuses and that are not needed for the answer. They are not sent."""
    refuses: frozenset[str] = frozenset()
    """Fields that the API refuses and that are needed for the answer. A request that uses one gets 400."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """OpenAI's name of a field → the vendor's name."""
    of_role: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Role of a message → the only fields that the API accepts in such messages. Roles that are missing accept all."""
    not_in_messages: frozenset[str] = frozenset()
    """Fields that the API refuses in messages of every role."""
    keeps_signatures: bool = False
    """Whether the API needs Google's signatures of calls, in `extra_content`. Other strict APIs refuse the field."""
    call_id: str = ""
    """A pattern that the ids of tool calls must match. Empty: any id is accepted."""

    @property
    def changes_messages(self) -> bool:
        return bool(self.of_role or self.not_in_messages or self.call_id)


NO_RULES = ChatRules()
"""The rules of OpenAI's own API."""
