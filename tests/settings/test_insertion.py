"""A new item keeps the rest of the file: comments, order, spelling, line ends."""

from __future__ import annotations

import pytest
import yaml

from gateway.settings.insertion import with_items

ITEM, FLOW = "- name: new\n  model: m", "{name: new, model: m}"
NEW = {"name": "new", "model": "m"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "listen: {port: 1}   # no end of line",
        "backends: []  # none yet\nlisten: {port: 1}\n",
        "backends: [{name: a}, {name: b}]   # two\n",
        "backends: [\n  {name: a},  # first\n  {name: b}  # last\n]  # end\n",
        "backends:\n  - name: a  # the first\n    model: x\n\n# about the next section\nlisten: {port: 1}\n",
        "backends:\n- {name: a, model: x}\n- {name: b,\n   model: y}   # two lines\n# the end\n",
        "backends:\n    - name: a\n      price:\n        input: 1\n        output: 2\n\n\nlisten:\n  port: 1\n",
        "backends:\n  - name: a\n    teams:\n      - x\n      - y",
        "backends:\n  - name: |\n      a\n    model: >-\n      x\n      y\nlisten: {port: 1}\n",
        "listen:\r\n  port: 1\r\nbackends:\r\n  - name: a\r\n# end\r\n",
    ],
)
def test_a_new_item_is_last_and_every_old_line_stays(text: str) -> None:
    found = with_items(text, "backends", [ITEM], [FLOW])
    before = yaml.safe_load(text) or {}
    assert yaml.safe_load(found) == {**before, "backends": [*before.get("backends", []), NEW]}
    for comment in (line.partition("#")[2].strip() for line in text.splitlines() if "#" in line):
        assert comment in found
    assert found.count("\r\n") == (found.count("\n") if "\r\n" in text else 0)
    rest = iter(found)
    assert all(letter in rest for letter in text), "the old text is not in the new one in its order"


@pytest.mark.parametrize("text", ["backends: null\n", "backends: {a: 1}\n", "{listen: {port: 1}}\n", "- a\n"])
def test_a_file_without_place_for_an_item_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        with_items(text, "backends", [ITEM], [FLOW])
