"""py-spy's raw stacks, summed up."""

from __future__ import annotations

from loadtests.profiles import Profile, summarised

RAW = """\
<module> (/x/gateway/app.py:9);run (/v/site-packages/uvicorn/server.py:4);serve (/x/gateway/pipeline.py:50) 3
<module> (/x/gateway/app.py:9);serve (/x/gateway/pipeline.py:50);dumps (/v/site-packages/orjson/__init__.py:1) 4
<module> (/x/gateway/app.py:9);hold (/x/gateway/admission/budgets.py:7) 2
run (/v/site-packages/uvloop/loop.py:4);read (/usr/lib/python3.11/socket.py:9) 1
_bootstrap (/usr/lib/python3.11/threading.py:1);_worker (/usr/lib/python3.11/concurrent/futures/thread.py:81) 90
"""


def test_samples_belong_to_the_innermost_room_and_waiting_threads_to_nobody() -> None:
    profile = summarised(Profile("1k-c1"), RAW)
    assert profile.samples == 10
    assert profile.rooms == {"gateway/pipeline.py": 0.7, "gateway/admission": 0.2, "uvloop": 0.1}


def test_functions_are_named_without_the_way_to_them() -> None:
    profile = summarised(Profile("1k-c1"), RAW)
    assert profile.functions == {
        "dumps (orjson/__init__.py)": 0.4,
        "serve (gateway/pipeline.py)": 0.3,
        "hold (gateway/admission/budgets.py)": 0.2,
        "read (python3.11/socket.py)": 0.1,
    }


def test_nothing_sampled_is_nothing_told() -> None:
    assert summarised(Profile("1k-c1"), "").rooms == {}


def test_the_compiled_event_loop_is_told_apart_from_the_file_that_started_it() -> None:
    raw = "<module> (/x/gateway/app.py:9);Runner.run (/usr/lib/python3.11/asyncio/runners.py:118) 5\n"
    assert summarised(Profile("1k-c1"), raw).rooms == {"event loop, or waiting": 1.0}
