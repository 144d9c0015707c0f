"""The embedder, struck where it leaves our code: its model runs in a session that a file tells how to fare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.settings.environment import variable

OVERLAY = Path(__file__).parent / "matrix_overlay"
_TOLD = {"killed": "absent", "frozen": "wait", "slow": "1.0", "full": "raise"}


class Embedder:
    """`renew` replaces the workers, so that they load the model again."""

    def __init__(self, switch: Path) -> None:
        self._switch = switch
        self.renew: Callable[[], None] = lambda: None

    @property
    def environment(self) -> Mapping[str, str]:
        """For the gateway: our session stands before the real one."""
        paths = [str(OVERLAY), *filter(None, [variable("PYTHONPATH")])]
        return {"PYTHONPATH": ":".join(paths), "MATRIX_EMBEDDER": str(self._switch)}

    def strike(self, fault: str) -> None:
        new = self._switch.with_suffix(".new")
        new.write_text(_TOLD[fault])
        new.rename(self._switch)
        if fault == "killed":
            self.renew()

    def mend(self, fault: str) -> None:
        self._switch.unlink()
        if fault == "killed":
            self.renew()
