"""`python -m tests.recorded --write` records all exchanges anew; without it they are replayed and compared."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.recorded.cases import all_cases
from tests.recorded.compare import readable, report
from tests.recorded.recorder import FIXTURE, record, recorded, written


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, prog="python -m tests.recorded")
    options.add_argument("--write", action="store_true", help="overwrite the fixture, and tell what is different in it")
    options.add_argument("--show", metavar="TEXT", help="print the recorded exchanges whose names contain TEXT")
    options.add_argument("--only", metavar="TEXT", default="", help="replay only the cases whose names contain TEXT")
    given = options.parse_args()
    if given.show is not None:
        print("\n".join(readable(row) for row in recorded() if given.show in row["name"]))
        return 0
    if given.write and given.only:
        options.error("--write records all cases: leave --only out")
    before = [row for row in recorded() if given.only in row["name"]] if FIXTURE.exists() else []
    rows = asyncio.run(record([case for case in all_cases() if given.only in case.name]))
    found = report(before, rows, most=len(rows) if given.write else 8)
    print(found or f"{len(rows)} exchanges as recorded")
    if given.write and before != rows:
        FIXTURE.write_bytes(written(rows))
        print(f"{len(rows)} exchanges written to {FIXTURE}")
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
