"""Stands before the package of this name when its folder leads PYTHONPATH: the same weights, in a session that obeys.

The file that MATRIX_EMBEDDER names says how inference fares: `raise`, `wait` (until the file says otherwise), a number
of seconds more; `absent` hides the weights from whoever loads them next. Without the file everything is as it is.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import onnxruntime

_SWITCH = Path(os.environ["MATRIX_EMBEDDER"])  # noqa: TID251 - not part of the gateway
_LOOK_S = 0.02


def _switch_state() -> str:
    try:
        return _SWITCH.read_text()
    except FileNotFoundError:
        return ""


def _real() -> Any:
    here = str(Path(__file__).parents[1])
    spec = PathFinder.find_spec(__name__, [place for place in sys.path if place != here])
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Session(onnxruntime.InferenceSession):  # type: ignore[misc]
    def run(self, *args: Any, **kwargs: Any) -> Any:
        while (told := _switch_state()) == "wait":
            time.sleep(_LOOK_S)
        if told == "raise":
            raise RuntimeError("Failed to allocate memory for requested buffer")
        if told not in ("", "absent"):
            time.sleep(float(told))
        return super().run(*args, **kwargs)


onnxruntime.InferenceSession = _Session
_package = _real()


def model_path() -> Path:
    found: Path = _package.model_path()
    return found.with_name("there-is-no-such-file.onnx") if _switch_state() == "absent" else found
