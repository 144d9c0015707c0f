"""Commands that are forked from a process with the gateway's modules behave as programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import prepared


def test_output_and_exit_status_are_the_commands_own(tmp_path: Path) -> None:
    done = prepared.run(["--version"], os.environ, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("thriftgate")
    wrong = prepared.run(["olny"], os.environ, tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "olny" in wrong.stderr


def scripted(folder: Path, text: str, output: int, **environment: str) -> prepared.PreparedProcess:
    script = folder / f"script{len(list(folder.iterdir()))}.py"
    script.write_text(text)
    return prepared.start(["word"], environment, output, folder=folder, script=script)


def test_a_script_has_its_arguments_environment_folder_and_session(tmp_path: Path) -> None:
    text = "import os, sys\nprint(sys.argv[1], os.environ['ONLY'], len(os.environ), os.getcwd(), os.getsid(0))\n"
    with (tmp_path / "out").open("wb") as output:
        process = scripted(tmp_path, text, output.fileno(), ONLY="one")
    assert process.wait(30) == 0
    assert (tmp_path / "out").read_text().split() == ["word", "one", "1", str(tmp_path), str(process.pid)]


def test_an_exception_is_told_and_ends_it_with_1(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        assert scripted(tmp_path, "raise ValueError('wrong')\n", output.fileno()).wait(30) == 1
    assert "ValueError: wrong" in (tmp_path / "out").read_text()


def test_it_is_waited_for_and_killed_as_a_program(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        process = scripted(tmp_path, "import time\ntime.sleep(600)\n", output.fileno())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    assert process.poll() is None
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    process.terminate()  # nobody else is signalled
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_many_run_at_once_and_each_tells_its_own_status(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        text = "import os, sys\nsys.exit(int(os.environ['CODE']))\n"
        running = [scripted(tmp_path, text, output.fileno(), CODE=str(code)) for code in range(8)]
    assert [process.wait(30) for process in running] == list(range(8))
