"""Escapes control characters and invisible characters in stored text, for terminals and logs."""

from __future__ import annotations

import re

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
"""Control characters, and characters that change the text direction or have no width. Joiners inside words are not
included."""
_IN_TEXT, _IN_LINE = re.compile(f"[{_HIDDEN}]"), re.compile(f"[{_HIDDEN}\t\n]")


def visible(text: str, *, lines: bool = False) -> str:
    """Escape control and invisible characters in `text`, as `\\x1b` or `\\u202e`. `lines`: whether to leave line ends
    and tabs as they are."""
    return (_IN_TEXT if lines else _IN_LINE).sub(_written, text)


def visible_json(text: str) -> str:
    """Escape control and invisible characters in a JSON text. The result is JSON with the same values."""
    return _IN_TEXT.sub(_escaped, text)


def _written(found: re.Match[str]) -> str:
    return {"\n": "\\n", "\t": "\\t"}.get(found[0]) or found[0].encode("unicode_escape", "surrogatepass").decode()


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
