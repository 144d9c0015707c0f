"""The curves of a soak as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

MIB = 2**20


def draw(samples: Sequence[dict[str, Any]], place: Path) -> None:
    """Memory, descriptors and threads of each process; tasks; journal and state."""
    minutes = [one["at"] / 60 for one in samples]
    figure, axes = plt.subplots(2, 3, figsize=(15, 7), sharex=True)
    for axis, name, scale in zip(axes.flat, ("pss", "descriptors", "threads"), (MIB, 1, 1), strict=False):
        for process in samples[-1]["processes"]:
            values = [one["processes"].get(process, {}).get(name, float("nan")) / scale for one in samples]
            axis.plot(minutes, values, label=process)
        axis.set_title("PSS, MiB" if name == "pss" else name)
        axis.set_ylim(bottom=0)
    axes[0, 0].legend(fontsize="small")
    more = {"tasks": ("tasks of the busiest loop", 1), "undrained_bytes": ("journal not drained, KiB", 1024)}
    more["state_bytes"] = ("state's memory, MiB", MIB)
    for axis, (name, (title, scale)) in zip(axes[1], more.items(), strict=True):
        axis.plot(minutes, [one[name] / scale for one in samples])
        axis.set_title(title)
        axis.set_xlabel("minutes")
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(place, dpi=110)
    plt.close(figure)
