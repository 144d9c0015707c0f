"""`thriftgate router refit`: from a team's kept samples to a plan on trial."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.quality.outcomes import append
from gateway.learning.plans import plan_trials
from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from tests.cli.test_compare import serving
from tests.fakes.provider import Provider, Reply

pytestmark = pytest.mark.timeout(120)

CONFIG = """\
backends:
  - {{name: large, kind: openai, base_url: "{a}", model: m-large, strength: large, price: {{input: 2, output: 8}}}}
  - {{name: small, kind: openai, base_url: "{b}", model: m-small, strength: small, price: {{input: 1, output: 1}}}}
"""
POLICY = """\
team: search
models: {auto: {candidates: [small, large], baseline: large}}
learning: {share: 10%, cap_usd: 5}
data: {store_samples: 30d}
"""


@pytest.fixture(autouse=True)
def may_block(no_blocking_calls: BlockBuster) -> None:
    """A command serves nobody while it reads its files."""
    no_blocking_calls.deactivate()


@pytest.fixture
def providers(tmp_path: Path) -> Iterator[tuple[Provider, Provider]]:
    a, b = Provider(default=Reply(text="The answer is 3.")), Provider(default=Reply(text="The answer is 3."))
    with serving(a, b):
        (tmp_path / "gateway.yaml").write_text(CONFIG.format(a=a.url, b=b.url))
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "search.yaml").write_text(POLICY)
        yield a, b


def open_database(folder: Path) -> Database:
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    database.upgrade()
    return database


def keep(folder: Path, count: int, more: str = "") -> None:
    database, now = open_database(folder), time.time()
    with database.begin() as connection:
        for number in range(count):
            asked = {
                "messages": [{"role": "user", "content": f"How much is {number} plus {number % 7}, in words?{more}"}]
            }
            sample = KeptSample(f"r{number}", "en/text/opening", asked, [], "agreement", 1.0)
            samples.keep(connection, "search", sample, now, now + 1000)
    database.close()


def run(folder: Path, *words: str) -> Result:
    places = [("--config", "gateway.yaml"), ("--data-dir", "data"), ("--policies", "policies")]
    asked = ["router", "refit", *words, "--json", *(x for name, to in places for x in (name, str(folder / to)))]
    return CliRunner().invoke(cli, asked)


def test_enough_samples_put_a_plan_on_trial_and_another_one_waits(
    tmp_path: Path, providers: tuple[Provider, Provider], lowered: list[int]
) -> None:
    keep(tmp_path, 200)
    providers[1].script(*[Reply(text="The answer is 4.")] * 60)
    told = orjson.loads(run(tmp_path).stdout)
    assert lowered == [10]
    assert (told["measured"], told["rows"], told["pool"]) == ({"search": 200}, 200, ["large", "small"])
    database = open_database(tmp_path)
    with database.read() as connection:
        assert [(one.id, one.state) for one in plan_trials.known(connection)] == [(told["plan"], "shadow")]
    database.close()
    again = orjson.loads(run(tmp_path).stdout)
    assert (again["plan"], again["measured"]) == (None, {})
    assert "is on trial" in again["notes"][0]


def test_a_run_measures_only_new_samples_and_forgets_deleted_ones(
    tmp_path: Path, providers: tuple[Provider, Provider]
) -> None:
    keep(tmp_path, 3)
    assert orjson.loads(run(tmp_path).stdout)["measured"] == {"search": 3}
    database = open_database(tmp_path)
    with database.begin() as connection:
        samples.forget(connection, "search")
    database.close()
    keep(tmp_path, 2)
    (out,) = (tmp_path / "data" / "refit").glob("search-*.jsonl")
    out.write_bytes(out.read_bytes()[:-10])  # as a process leaves it that is killed while it writes
    asked = len(providers[0].exchanges)
    told = orjson.loads(run(tmp_path).stdout)
    ids = {orjson.loads(line)["id"] for line in out.read_bytes().splitlines()}
    assert (told["measured"], ids, told["plan"]) == ({"search": 2}, {"r0", "r1"}, None)
    assert len(providers[0].exchanges) - asked <= 1


def test_a_file_without_outcomes_is_named_and_stays(tmp_path: Path, providers: tuple[Provider, Provider]) -> None:
    keep(tmp_path, 1)
    run(tmp_path)
    (out,) = (tmp_path / "data" / "refit").glob("search-*.jsonl")
    out.write_text("nonsense\n")
    result = run(tmp_path)
    assert (result.exit_code, out.read_text()) == (1, "nonsense\n")
    assert out.name in result.stderr


FULL = ("free disk space in the data directory", "cannot be used")
"""What is said where the outcomes do not fit on the disk, and where the database does not."""


@pytest.mark.parametrize("size", [90_000, 140_000])
def test_a_run_that_a_full_disk_ends_fails_and_the_next_one_asks_only_the_rest(
    tmp_path: Path, providers: tuple[Provider, Provider], size: int
) -> None:
    keep(tmp_path, 120, " Please." * 100)  # too few for a plan, which would take time
    with files_end_at(size):
        failed = run(tmp_path)
    assert failed.exit_code == 1
    assert any(said in failed.stderr for said in FULL), (failed.output, failed.exc_info)
    known = [path.read_bytes().count(b"\n") for path in (tmp_path / "data" / "refit").glob("search-*.jsonl")]
    asked = len(providers[0].exchanges)
    told = orjson.loads(run(tmp_path).stdout)
    assert told["measured"] == {"search": 120}
    assert len(providers[0].exchanges) - asked == 120 - sum(known) > 0


def test_a_team_without_samples_is_told_so(tmp_path: Path, providers: tuple[Provider, Provider]) -> None:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "policies" / "search.yaml").write_text(POLICY.replace("data: {store_samples: 30d}", ""))
    told = orjson.loads(run(tmp_path, "--team", "search").stdout)
    assert told["notes"] == ["search keeps no samples (data.store_samples in its policy)."]


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Inside, no file can grow beyond `size` bytes, as on a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_line_in_part(tmp_path: Path) -> None:
    with (tmp_path / "out.jsonl").open("ab", buffering=0) as file:
        append(file, b"whole\n")
        with files_end_at(10), pytest.raises(OSError, match=r"space|large"):
            append(file, b"too long\n")
    assert (tmp_path / "out.jsonl").read_bytes() == b"whole\n"
