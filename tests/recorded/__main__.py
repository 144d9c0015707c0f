"""`python -m tests.recorded --write` records all exchanges anew; without it they are replayed and compared."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.recorded.cases import all_cases
from tests.recorded.compare import report
from tests.recorded.recorder import FIXTURE, record, recorded, written


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, prog="python -m tests.recorded")
    options.add_argument("--write", action="store_true", help="overwrite the fixture with what is recorded now")
    options.add_argument("--only", default="", help="only the cases whose names contain this text")
    given = options.parse_args()
    if given.write and given.only:
        options.error("--write records all cases: leave --only out")
    rows = asyncio.run(record([case for case in all_cases() if given.only in case.name]))
    if given.write:
        FIXTURE.write_bytes(written(rows))
        print(f"{len(rows)} exchanges in {FIXTURE}")
        return 0
    found = report([row for row in recorded() if given.only in row["name"]], rows)
    print(found or f"{len(rows)} exchanges as recorded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
