"""`python -m tests.docs.reference --write`: make the generated blocks of docs/reference anew."""

from __future__ import annotations

import argparse
import sys

from tests.docs.markdown import ROOT
from tests.docs.reference.blocks import regenerated


def main() -> int:
    """Exit status: 1 when a page differs from the code and --write is not given."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.reference", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the pages; without, only name those that differ.")
    write = parser.parse_args().write
    stale = 0
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = regenerated(text)
        if made == text:
            continue
        print(f"{page.relative_to(ROOT)}: {'written' if write else 'differs from the code'}")
        if write:
            page.write_text(made, encoding="utf-8")
        else:
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
