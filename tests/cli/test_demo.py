"""The tour as a newcomer sees it: `thriftgate serve --demo` with the real local model, and nothing else installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

from tests.support import prepared
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(90)]

REPOSITORY = Path(__file__).parents[2]
GGUF = "smollm2-135m-instruct-q4_1.gguf"


def thriftgate(*words: str) -> list[str]:
    return [sys.executable, "-m", "gateway.cli.main", *words]


class Demo:
    """A gateway started with --demo, in a folder without any file of ours."""

    def __init__(self, home: Path) -> None:
        self.home, self.data = home, home / "data"
        models = self.data / "models"
        models.mkdir(parents=True)
        weights = REPOSITORY / ".models" / GGUF
        assert weights.is_file(), "the local model is missing; `make test` fetches it"
        (models / GGUF).symlink_to(weights)
        bare = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        self.environment = {**bare, "TOUR": "1", "PYTHONPATH": str(REPOSITORY), "COLUMNS": "80"}
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                thriftgate("serve", "--demo", "--port", "0", "--data-dir", str(self.data)),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=home,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What the terminal shows."""
        return (self.home / "log").read_text(errors="replace")

    @property
    def gateway_log(self) -> str:
        return (self.data / "gateway.log").read_text(errors="replace")

    def until(self, true: Callable[[], object], within_s: float) -> None:
        def so() -> bool:
            assert self.process.poll() is None, self.log
            return bool(true())

        wait_until(so, within_s)

    def json(self, *words: str) -> Any:
        done = prepared.run([*words, "--json", "--data-dir", str(self.data)], self.environment, self.home)
        assert done.returncode == 0, done.stderr
        return orjson.loads(done.stdout)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Its first tour is over."""
    demo = Demo(tmp_path_factory.mktemp("demo"))
    try:
        demo.until(lambda: "Still serving on" in demo.log, within_s=60)
        yield demo
    finally:
        assert demo.end() == 0, demo.log


@pytest.fixture(scope="module")
def rows(demo: Demo) -> list[dict[str, Any]]:
    """A second tour, told as JSON. The first one has killed the local model; on a busy machine it takes a while."""
    base = re.search(r"Base URL\s+(http://127\.0\.0\.1:\d+)/v1", demo.log)
    assert base
    admin = {"authorization": f"Bearer {demo.json('keys', 'create', '--team', 'ops', '--scope', 'admin')['key']}"}

    def is_back() -> bool:
        try:
            with urlopen(Request(f"{base[1]}/metrics", headers=admin), timeout=5) as reply:
                return b'thriftgate_backend_available{backend="local-smollm2"} 1' in reply.read()
        except HTTPError as error:  # the key is too new
            with error:
                return False

    demo.until(is_back, within_s=60)
    told: list[dict[str, Any]] = demo.json("demo")
    return told


def row(rows: list[dict[str, Any]], ask: str, nth: int = 0) -> dict[str, Any]:
    return [each for each in rows if ask in each["ask"]][nth]


def test_the_first_tour_is_played_and_summed_up(demo: Demo) -> None:
    assert re.search(r"requests\s\s+20, of which answered 20 ", demo.log)
    assert int(re.search(r"from cache\s\s+(\d+)", demo.log)[1]) >= 4  # type: ignore[index]
    assert re.search(r"alert received at the webhook: Team demo-\w+ has spent", demo.log)
    for text in ("Traceback", "ERROR", "did not load the tour's policy"):
        assert text not in demo.log + demo.gateway_log


def test_the_terminal_shows_a_legend_the_answers_and_what_to_do_next_and_no_log(demo: Demo) -> None:
    assert "is a 135M toy on this machine" in demo.log
    assert re.search(r"asks How many days are in a week\?\n +gets .*7", demo.log)
    assert re.search(r"gets \[simulated\] No model was asked", demo.log)
    assert "".join(re.findall(r"(\d) of 5: ", demo.log)) == "12345"
    for command in ("logs -f", "savings --team demo-", "connect claude-code"):
        assert f"thriftgate {command}" in demo.log
    assert '{"at":' not in demo.log
    assert " INFO " not in demo.log
    assert "Enter continues" not in demo.log, "no terminal, so nobody can press it"
    lines = demo.log.partition("of 5: ")[2].partition("Ask it yourself")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert '"team":"demo-' in (demo.data / "access.log").read_text()
    assert "faiss" not in demo.gateway_log


def test_the_toy_answers_the_tours_questions_correctly_and_nothing_that_auto_is_asked(
    rows: list[dict[str, Any]], demo: Demo
) -> None:
    right = {"days": "7", "meow": "cat", "opposite": "cold", "first month": "January", "legs": ("4", "four")}
    toys = [each for each in rows if each["backend"] == "local-smollm2"]
    assert len(toys) >= 5
    for each in toys:
        (words,) = [words for part, words in right.items() if part in each["ask"]]
        assert any(word in each["answer"] for word in ([words] if isinstance(words, str) else words)), each
    found = re.search(r"Demo key\s+(tg-[A-Za-z0-9_-]{32,})", demo.log)
    base = re.search(r"Base URL\s+(http://127\.0\.0\.1:\d+/v1)", demo.log)
    assert found
    assert base
    stranger = demo.json("keys", "create", "--team", "strangers")["key"]
    for key in (found[1], stranger):
        body = orjson.dumps(
            {"model": "auto", "messages": [{"role": "user", "content": "What is Australia's capital?"}]}
        )
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        with urlopen(Request(f"{base[1]}/chat/completions", body, headers), timeout=20) as reply:
            assert reply.headers["x-thriftgate-backend"] == "simulated-large"
            assert b"[simulated]" in reply.read()


def test_the_tours_sum_is_the_ledgers_with_background_checks_in_it(demo: Demo) -> None:
    team = re.search(r"alert received at the webhook: Team (demo-\w+) has spent", demo.log)
    assert team
    total = demo.json("usage", "--team", team[1])["total"]
    spent, checks, calls = (
        re.search(r"spent\s\s+\$([\d.]+)", demo.log),
        *(
            re.search(rf"of which background checks\s\s+{what}", demo.log)
            for what in (r"\$([\d.]+)", r"\$[\d.]+, (\d+) calls")
        ),
    )
    assert spent
    assert checks
    assert calls
    assert float(spent[1]) == pytest.approx(float(total["cost_usd"]), abs=1e-6)
    assert float(checks[1]) == pytest.approx(float(total["checks_usd"]), abs=1e-6)
    assert int(calls[1]) == total["checks"]


def test_what_to_paste_is_shown_and_works(demo: Demo) -> None:
    found = re.search(r"Demo key\s+(tg-[A-Za-z0-9_-]{32,})", demo.log)
    base = re.search(r"Base URL\s+(http://127\.0\.0\.1:\d+/v1)", demo.log)
    assert found
    assert base
    assert f"curl {base[1]}/chat/completions" in demo.log
    assert f'OpenAI(base_url="{base[1]}", api_key="{found[1]}")' in demo.log
    with urlopen(Request(f"{base[1]}/models", headers={"authorization": f"Bearer {found[1]}"}), timeout=5) as reply:
        names = {model["id"] for model in orjson.loads(reply.read())["data"]}
    assert {"auto", "local-smollm2", "simulated-large"} <= names


def test_every_request_of_the_tour_is_answered(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 20
    assert [each["status"] for each in rows] == [200] * 20
    assert all(each["answer"].strip() for each in rows)


def test_repeats_and_paraphrases_come_from_the_cache(rows: list[dict[str, Any]]) -> None:
    assert row(rows, "How many days are in a week?", 1)["cache"] == "exact"
    assert row(rows, "How many days are there in a week?")["cache"] == "semantic"
    assert row(rows, "opposite of hot", 1)["cache"] == "exact"
    assert row(rows, "Please, how do I turn on")["cache"] == "semantic"
    assert sum(each["cache"] in ("exact", "semantic") for each in rows) >= 4


def test_a_replayed_stream_says_what_the_first_one_said(rows: list[dict[str, Any]]) -> None:
    assert row(rows, "opposite of hot", 0)["answer"] == row(rows, "opposite of hot", 1)["answer"]


def test_one_word_or_another_team_is_a_miss(rows: list[dict[str, Any]]) -> None:
    assert row(rows, "turn off the guest network")["cache"] == "miss"
    neighbour = next(each for each in rows if each["look"].startswith("another team"))
    assert neighbour["cache"] == "miss"


def test_bypass_asks_a_backend_again(rows: list[dict[str, Any]]) -> None:
    again = row(rows, "Which animal says meow?", 1)
    assert (again["cache"], again["backend"]) == ("bypass", "local-smollm2")


def test_an_answer_from_the_cache_has_a_saving(rows: list[dict[str, Any]]) -> None:
    hits = [each for each in rows if each["cache"] in ("exact", "semantic")]
    assert hits
    assert all(float(each["saved_usd"]) > 0 for each in hits)


def test_both_tiers_serve_and_an_unsure_answer_is_escalated(rows: list[dict[str, Any]]) -> None:
    assert {"local-smollm2", "simulated-large"} <= {each["backend"] for each in rows}
    assert row(rows, "finite group")["backend"] == "simulated-large"
    (escalated,) = [each for each in rows if each["escalated"]]
    assert escalated["backend"] == "simulated-large"
    assert escalated["answer"].startswith("[simulated]")
    assert float(escalated["cost_usd"]) > 0, "the weak answer cost something"


def test_a_long_conversation_is_trimmed(rows: list[dict[str, Any]]) -> None:
    trimmed = row(rows, "wrong address")
    assert trimmed["trimmed_tokens"] > 0
    assert trimmed["input_tokens"] <= 600


def test_the_answer_comes_while_the_local_model_is_dead(rows: list[dict[str, Any]], demo: Demo) -> None:
    assert rows[-1]["look"].startswith("the local model's process was just killed")
    assert rows[-1]["status"] == 200
    assert "ended by SIGKILL" in demo.gateway_log


def test_simulated_answers_are_labelled_and_in_no_total(rows: list[dict[str, Any]], demo: Demo) -> None:
    simulated = [each for each in rows if each["backend"] == "simulated-large"]
    assert all(each["answer"].startswith("[simulated]") for each in simulated)
    assert all(each["saved_usd"] is None for each in simulated)
    report = demo.json("usage", "--by", "model")
    models = {line["model"]: line for line in report["rows"]}
    assert "smollm2-135m-instruct" in models
    assert not any("simulated" in name for name in models)
    assert [line["model"] for line in report["simulated"]] == ["simulated-large"]
    assert report["simulated"][0]["requests"] >= 2 * (len(simulated) - 1)
    assert report["total"]["requests"] == sum(line["requests"] for line in report["rows"])
    assert report["total"]["output_tokens"] == sum(line["output_tokens"] for line in report["rows"])
    spent = sum(float(each["cost_usd"] or 0) for each in rows)
    assert float(report["total"]["cost_usd"]) >= spent > 0
    assert report["total"]["unpriced"] == 0


def test_the_tours_keys_end_with_it(rows: list[dict[str, Any]], demo: Demo) -> None:
    listed = demo.json("keys", "list")
    tour = [key for key in listed if key["name"] == "tour"]
    assert len(tour) >= 4
    assert all(key["revoked_at"] for key in tour)


def test_ctrl_c_while_it_starts_ends_quietly(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.until(lambda: "Starting" in demo.log, within_s=30)
    assert demo.end() in (0, -signal.SIGINT)
    assert "Traceback" not in demo.log + demo.gateway_log
    assert "Aborted" not in demo.log
