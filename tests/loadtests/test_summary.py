"""From figures to verdicts: ratios of the same round, medians, bars, and when nothing is judged."""

from __future__ import annotations

import io
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from loadtests import bars, plot, report, summary
from loadtests.cells import Cell, chosen
from loadtests.client import Outcome
from loadtests.footprint import MIB, Extent, Footprint
from loadtests.measure import Figure
from loadtests.processes import Cores
from loadtests.profiles import Profile
from loadtests.rounds import Plan, Results

CELL = chosen("1k", (1,))[0]


def figure(entry: str, number: int, cpu_us: float | None, cell: Cell = CELL, **more: object) -> Figure:
    """1000 right answers."""
    latency = {"mean": more.pop("mean", 1.0), "p50": more.pop("p50", 1.0), "p99": more.pop("p99", 2.0)}
    outcome = Outcome(right=1000, seconds=1.0, latency_ms=latency, transit_ms=more.pop("transit", {}))  # type: ignore[arg-type]
    counted = {"state_calls": 500.0, "embedder_embedded": 0.0} if entry not in ("direct", "nginx") else {}
    found = Figure(cell.name, entry, entry, number, outcome, None if cpu_us is None else cpu_us / 1000, counted=counted)
    found.void = str(more.get("void", ""))
    return found


def results(figures: list[Figure], *cells: Cell, load: float = 0.5) -> Results:
    return Results(Plan(cells=cells or (CELL,)), Cores(0, 1), load_before=load, figures=figures)


THREE = [
    *(figure("direct", number, None) for number in (1, 2, 3)),
    *(figure("nginx", number, cpu) for number, cpu in ((1, 10.0), (2, 20.0), (3, 10.0))),
    *(figure("thriftgate", number, cpu, p50=1.2) for number, cpu in ((1, 50.0), (2, 80.0), (3, 70.0))),
]


def test_a_ratio_is_of_one_round_and_the_row_has_their_median() -> None:
    row = summary.row(CELL, "thriftgate", THREE)
    assert row.ratio is not None
    assert row.cpu_us is not None
    assert (row.ratio.median, row.ratio.least, row.ratio.most) == pytest.approx((5, 4, 7))
    assert (row.cpu_us.median, row.cpu_us.least, row.cpu_us.most) == pytest.approx((70, 50, 80))
    assert row.state_calls == 0.5
    assert row.requests == 3000


def test_verdicts_name_the_furthest_column_that_is_reached() -> None:
    bar = bars.Bar(12, 6, 3)
    assert [bar.verdict(value) for value in (3, 5.9, 12, 12.1)] == ["moonshot", "good", "must", "MISSED"]


def test_each_bar_of_the_cell_is_judged() -> None:
    found = {each.what: each for each in report.verdicts(results(THREE))}
    assert found["1k-c1 thriftgate: CPU ÷ nginx"].verdict == "good"
    assert found["1k-c1: p50 over nginx"].value == pytest.approx(0.2)
    assert found["1k-c1: p50 over nginx"].verdict == "good"
    assert found["wrong or lost answers, and runs whose ledger differs"].verdict == "none"


def test_on_a_busy_machine_only_ratios_are_judged() -> None:
    found = {each.what: each.verdict for each in report.verdicts(results(THREE, load=1.5))}
    assert found["1k-c1: p50 over nginx"] == "not judged: load average 1.50"
    assert found["1k-c1 thriftgate: CPU ÷ nginx"] == "good"


def test_one_void_round_voids_the_row_and_fails_the_run() -> None:
    spoilt = results([*THREE, figure("thriftgate", 4, 40.0, void="ledger: 999 rows")])
    found = {each.what: each.verdict for each in report.verdicts(spoilt)}
    assert found["1k-c1 thriftgate: CPU ÷ nginx"] == "VOID: ledger: 999 rows"
    assert found["wrong or lost answers, and runs whose ledger differs"] == "MISSED"
    assert report.failed(spoilt)
    assert not report.failed(results(THREE))


def test_a_void_base_is_no_measure() -> None:
    figures = [figure("nginx", 1, 10.0, void="wrong"), figure("thriftgate", 1, 50.0)]
    assert summary.row(CELL, "thriftgate", figures).ratio is None


def test_a_missed_bar_fails_the_run() -> None:
    assert report.failed(results([figure("nginx", 1, 10.0), figure("thriftgate", 1, 121.0)]))


def test_transit_is_judged_over_direct() -> None:
    cell = chosen("paced", (16,))[0]
    figures = [
        figure("direct", 1, None, cell, transit={"p50": 0.1}),
        figure("thriftgate", 1, 50.0, cell, transit={"p50": 0.4}),
    ]
    found = {each.what: each for each in report.verdicts(results(figures, cell))}
    assert found["paced-c16: chunk transit p50 over direct"].value == pytest.approx(0.3)


def test_what_a_session_takes_longer_than_in_the_same_round_over_nginx_is_judged() -> None:
    cell = chosen("session", (16,))[0]
    means = {"direct": (0.1, 0.2, 0.1), "nginx": (0.2, 0.9, 0.3), "thriftgate": (0.6, 1.5, 0.9)}
    figures = [
        figure(entry, number, None if entry == "direct" else 10.0, cell, mean=mean)
        for entry, each in means.items()
        for number, mean in enumerate(each)
    ]
    row = summary.row(cell, "thriftgate", figures)
    assert row.session_ms is not None
    assert row.session_ms.median == pytest.approx(30 * 0.9)
    found = {each.what: each for each in report.verdicts(results(figures, cell))}["session-c1: a session over nginx"]
    assert found.value == pytest.approx(30 * 0.6)
    assert found.verdict == "must"
    assert summary.row(CELL, "thriftgate", THREE).session_ms is None


def test_what_is_not_the_embeddings_cpu_is_held_against_it() -> None:
    cell = chosen("new", (4,))[0]
    own = figure("everything", 1, 1000.0, cell)
    own.counted["embedder_embedded"], own.embedding_s = 1000.0, 0.8
    found = {each.what: each for each in report.verdicts(results([own], cell))}
    judged = found["new-c4: CPU beside the embedding's ÷ the embedding's"]
    assert judged.value == pytest.approx(0.25)
    assert judged.verdict == "MISSED"


def footprint(growing: int) -> Footprint:
    return Footprint(
        Extent(growing=growing), {"python 1": 40 * MIB, "valkey-server 2": 5 * MIB}, {"python 1": 50 * MIB},
        {"python 1": 54 * MIB}, [0.9, 0.8, 1.4],
    )  # fmt: skip


def test_the_footprint_is_of_the_whole_tree_and_growth_only_judged_over_enough_requests() -> None:
    idle, grown, start = footprint(100_000).verdicts()
    assert (idle.value, idle.verdict) == (45, "moonshot")
    assert (grown.value, grown.verdict) == (4, "good")
    assert (start.value, start.verdict) == (0.9, "must")
    assert footprint(1000).verdicts()[1].verdict == "not judged: too few requests"


def printed(made: Results) -> str:
    out = io.StringIO()
    report.show(made, Console(file=out, width=160))
    return out.getvalue()


def test_a_target_that_is_missing_is_told_as_not_run_and_passes_nothing() -> None:
    made = results([figure("direct", 1, None), figure("thriftgate", 1, 50.0)])
    made.missing["nginx"] = "there is no apt-get"
    text = printed(made)
    assert "not run nginx: there is no apt-get" in text
    assert all("nginx" not in each.what for each in report.verdicts(made))


def test_the_report_has_everything_and_its_json_too() -> None:
    made = results([*THREE, figure("thriftgate", 4, 40.0, void="ledger: 999 rows")], *chosen("1k", (1, 64)))
    made.footprint, made.unfinished = footprint(1000), ["1k-c64"]
    made.profiles = [
        Profile("1k-c1", 10, {"gateway/api": 0.5}, {"f (gateway/api/x.py)": 0.25}),
        Profile("x", missing="?"),
    ]
    made.printed = {"thriftgate": {"gateway.yaml": "telemetry: {access_log: [bold]false}"}}
    text = printed(made)
    for part in ("VOID", "999 rows", "no time for 1k-c64", "gateway/api", "valkey-server 2", "access_log: [bold]false"):
        assert part in text
    read = orjson.loads(orjson.dumps(report.as_json(made)))
    assert len(read["figures"]) == 10
    assert read["figures"][-1]["cpu_us"] == pytest.approx(40.0)
    assert read["files"] == made.printed
    assert {"must", "good", "moonshot"} == set(read["verdicts"][0]["bar"])


@pytest.mark.heavy  # matplotlib
@pytest.mark.filterwarnings("ignore")
def test_the_picture_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    written = plot.draw(results(THREE), tmp_path)
    assert [path.suffix for path in written] == [".png", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in written)
    assert plot.draw(results([]), tmp_path) == []
