"""`python -m loadtests` is `thriftgate loadtest`; `python -m loadtests budget` is the budget experiment."""

import sys

from gateway.cli.loadtest import loadtest

if __name__ == "__main__":
    if sys.argv[1:2] == ["budget"]:
        from loadtests import budget

        sys.exit(budget.main(sys.argv[2:]))
    loadtest(prog_name="python -m loadtests")
