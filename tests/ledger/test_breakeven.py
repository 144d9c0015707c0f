"""The utilisation needed is the one at which both cost the same, and the table's machines have their sources."""

from __future__ import annotations

from decimal import Decimal

from gateway.domain.backend import Backend, PriceEntry
from gateway.ledger.reports.breakeven import (
    Comparison,
    Load,
    Machine,
    Student,
    as_object,
    compare,
    hardware,
    loads,
    owned,
)
from gateway.state.sql.database import Database
from tests.ledger.booked import HOUR, JANUARY, USD, book, row

MACHINE = Machine("gpu", "8b", 2 * USD, Decimal(1000), "test")


def test_at_the_utilisation_needed_both_cost_the_same() -> None:
    load = Load("gpt", 1, Decimal(3_600_000), 4 * USD, Decimal(3_600_000))
    one = Comparison(load, MACHINE, Decimal(1))
    assert (one.needed, one.utilisation, one.machines) == (Decimal("0.5"), 1, 1)
    assert one.pays
    half = Comparison(Load("gpt", 1, Decimal(1_800_000), 2 * USD, Decimal(1_800_000)), MACHINE, Decimal(1))
    assert half.needed == half.utilisation
    assert half.self_host_pico == half.load.cost_pico
    assert not half.pays


def test_the_busiest_hour_says_how_many_machines_are_paid_for_all_hours() -> None:
    load = Load("gpt", 1, Decimal(10_000_000), 9 * USD, Decimal(7_200_001))
    one = Comparison(load, MACHINE, Decimal(10))
    assert (one.machines, one.self_host_pico) == (3, 60 * USD)


def test_the_load_is_what_hosted_models_were_paid_for(any_database: Database) -> None:
    book(any_database, row(), row(at=JANUARY + HOUR, input_tokens=1000, output_tokens=100, cost_pico=5))
    book(any_database, row(tier="small"), row(cost_pico=None), row(team="chat", model="other", cost_pico=1))
    book(any_database, row(kind="idle", attempt=0), row(simulated=True), row(at=JANUARY - 1))
    with any_database.read() as connection:
        big, other = loads(connection, JANUARY, JANUARY + 2 * HOUR)
        (named,) = loads(connection, JANUARY, JANUARY + 2 * HOUR, pattern="OTH")
        assert loads(connection, JANUARY, JANUARY + HOUR, team="nobody") == []
    assert (big.model, big.requests, big.cost_pico) == ("big", 2, 50_500_005)
    assert (big.tokens, big.busiest) == (Decimal("222.0"), Decimal("200.5"))
    assert named == other


def test_json_has_exact_money_and_the_method() -> None:
    load = Load("gpt", 7, Decimal(3_600_000), 4 * USD, Decimal(3_600_000))
    told = as_object(compare([load], [MACHINE], JANUARY, JANUARY + 7200))
    (one,) = told["rows"]
    assert (one["api_usd"], one["self_host_usd"], one["utilisation_needed"]) == ("4", "4", "0.5000")
    assert (one["hours"], one["utilisation"], one["pays"]) == ("2.00", "0.5000", False)
    assert told["method"]


def test_a_student_saves_on_its_share_of_the_load_and_pays_back_its_training() -> None:
    student = Student(Decimal("0.5"), 30 * USD)
    load = student.of(Load("gpt", 7, Decimal(7_200_000), 240 * USD, Decimal(3_600_000)))
    assert load == Load("gpt", 3, Decimal(3_600_000), 120 * USD, Decimal(1_800_000))
    two_days = compare([load], [MACHINE], JANUARY, JANUARY + 48 * HOUR)
    assert two_days[0].self_host_pico == 96 * USD
    assert as_object(two_days, student)["rows"][0]["days_until_paid"] == "2.5"  # 12 USD a day
    too_dear = compare([load], [MACHINE], JANUARY, JANUARY + 60 * HOUR)
    assert as_object(too_dear, student)["rows"][0]["days_until_paid"] is None
    assert "days_until_paid" not in as_object(two_days)["rows"][0]


def test_the_packaged_table_has_a_source_and_a_date_for_everything() -> None:
    table = list(hardware("on_demand"))
    assert len(table) >= 5
    for machine in table:
        assert machine.hour_pico > 0
        assert machine.tokens_per_second > 0
        assert machine.source.count("https://") >= 2
        assert machine.source.count("(2026-") == 2
    for billing in ("spot", "reserved"):
        cheaper = {(machine.name, machine.size): machine.hour_pico for machine in hardware(billing)}
        assert all(cheaper[machine.name, machine.size] < machine.hour_pico for machine in table)


def test_ones_own_machines_have_their_measured_throughput() -> None:
    price = PriceEntry(machine_hour_usd=Decimal("2.1"))
    gpu = Backend(name="gpu", kind="openai", base_url="http://127.0.0.1:9/v1", model="qwen", price=price)
    assumed, measured = (next(owned([gpu], rates)) for rates in ({}, {"gpu": Decimal(7)}))
    assert (assumed.tokens_per_second, measured.tokens_per_second) == (1000, 7)
    assert measured.source == "gateway.yaml, throughput measured"
    assert list(owned([gpu.model_copy(update={"price": None})], {})) == []
