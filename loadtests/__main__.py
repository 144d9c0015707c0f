"""`python -m loadtests` is `thriftgate loadtest`.

Others are `budget`, `bytecodes`, `day`, `dialects`, `index`, `drift`, `scaling`, `shortcuts`, `stalls`, `verify` and
`--against`.
"""

import sys

from gateway.cli.develop.loadtest import loadtest

if __name__ == "__main__":
    if sys.argv[1:2] == ["budget"] and "--mix" in sys.argv:
        from loadtests import budget_hard

        sys.exit(budget_hard.main(sys.argv[2:]))
    if sys.argv[1:2] == ["budget"]:
        from loadtests import budget

        sys.exit(budget.main(sys.argv[2:]))
    if sys.argv[1:2] == ["bytecodes"]:
        from loadtests import bytecodes

        sys.exit(bytecodes.main(sys.argv[2:]))
    if sys.argv[1:2] == ["day"]:
        from loadtests import day

        sys.exit(day.main(sys.argv[2:]))
    if sys.argv[1:2] == ["dialects"]:
        from loadtests import dialects

        sys.exit(dialects.main(sys.argv[2:]))
    if any(word.split("=")[0] == "--against" for word in sys.argv[1:]):
        from loadtests import against

        sys.exit(against.main(sys.argv[1:]))
    if sys.argv[1:2] == ["index"]:
        from loadtests import index_scale

        sys.exit(index_scale.main(sys.argv[2:]))
    if sys.argv[1:2] == ["drift"]:
        from loadtests import drift

        sys.exit(drift.main(sys.argv[2:]))
    if sys.argv[1:2] == ["scaling"]:
        from loadtests import scaling

        sys.exit(scaling.main(sys.argv[2:]))
    if sys.argv[1:2] == ["shortcuts"]:
        from loadtests import shortcuts

        sys.exit(shortcuts.main(sys.argv[2:]))
    if sys.argv[1:2] == ["stalls"]:
        from loadtests import stalls

        sys.exit(stalls.main(sys.argv[2:]))
    if sys.argv[1:2] == ["verify"]:
        from loadtests import verify

        sys.exit(verify.main(sys.argv[2:]))
    loadtest(prog_name="python -m loadtests")
