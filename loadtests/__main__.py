"""`python -m loadtests` is `thriftgate loadtest`."""

from gateway.cli.loadtest import loadtest

if __name__ == "__main__":
    loadtest(prog_name="python -m loadtests")
