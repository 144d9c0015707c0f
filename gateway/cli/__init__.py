"""The `thriftgate` command."""

import signal
import sys

if sys.argv[:1] and sys.argv[0].endswith(("thriftgate", "-m")):
    # As a program: Ctrl-C during the imports ends it without a traceback. `main` restores Python's handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
