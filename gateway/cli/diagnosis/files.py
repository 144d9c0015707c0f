"""Finds mistakes in gateway.yaml and the policies. Some of them prevent a start of the gateway. The start does not
notice the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator

from gateway.backends.providers.discover import backends_of
from gateway.cli.diagnosis import ceilings, locations
from gateway.cli.diagnosis.backends import one_model
from gateway.domain.backend import RANK, Backend
from gateway.domain.notify import Notify
from gateway.domain.policy import Policy
from gateway.domain.receiver_kinds import KINDS
from gateway.domain.section import Section
from gateway.domain.units import parse_delay, parse_duration
from gateway.learning.judges import JUDGES
from gateway.ledger.prices.model_names import grouped
from gateway.ledger.prices.price_book import PriceBook
from gateway.policy.effective import places
from gateway.policy.load import PolicySet, reload_policies
from gateway.policy.partial import partial_policies
from gateway.policy.sources import read_sources
from gateway.routing.loading import fitted
from gateway.settings.environment import default_data_dir, receiver
from gateway.settings.files import ConfigError, Document, read_document
from gateway.settings.gateway import GatewayConfig, Paths, Settings, load_settings
from gateway.settings.receivers import Addresses, ReceiverRefused
from gateway.settings.remedies import did_you_mean
from gateway.settings.renamed_keys import GATEWAY, POLICY, KeyPath, MovedKey, RenamedKey

Place = Callable[[str, KeyPath], str]
"""(Team, path) → beginning of an error message."""
CONFIG, OVERLOOKED, POLICIES = Path("gateway.yaml"), Path("gateway.yml"), Path("policies")


@dataclass(slots=True)
class Checked:
    """The results of checking all files."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    teams: list[str] = field(default_factory=list)
    policies: tuple[Path, ...] = ()
    config: Path | None = None
    unread: bool = False
    """Whether a mistake in gateway.yaml hides its receivers and backends."""

    @property
    def files(self) -> str:
        """The names of the checked files, as text for people."""
        named = [str(path) for path in (self.config, *self.policies) if path is not None]
        return " and ".join(named) or "the built-in defaults (no gateway.yaml and no policies here)"


def check_files(config: Path | None, folders: Sequence[Path]) -> Checked:
    """Check all files, and return all their mistakes and notes at once. Notes do not prevent a start. For example, a
    receiver whose environment variable is not set here gets a note, because the gateway may run in another environment.
    """
    found = Checked()
    if config is None and OVERLOOKED.is_file() and not CONFIG.is_file():
        found.problems.append(f"{OVERLOOKED}:1: is not read; rename it to {CONFIG}, or give --config {OVERLOOKED}")
    config = config or (CONFIG if CONFIG.is_file() else None)
    settings = _settings(config, folders, found)
    found.policies, found.config = settings.policies, config
    policies, problems = reload_policies(settings.policies, settings.config.ceilings, PolicySet())
    found.problems += problems
    found.teams = sorted(policies.policies)
    if problems:
        partial = partial_policies(settings.policies, policies)
        policies = replace(policies, policies={**policies.policies, **partial})
    place = places(settings.policies)
    _check_names(settings, policies, place, found)
    _check_receivers(settings, policies, place, found)
    if config is not None:
        found.problems += _plan(settings, config)
        found.problems += _missing_extras(settings, config)
    found.notes += [each.line for each in (*settings.old_names, *chain.from_iterable(policies.old_names.values()))]
    found.notes += _without_units(config, settings.policies)
    found.notes += locations.notes(
        settings.config.backends or (), list(policies.policies.values()), _place_of_backend(config)
    )
    found.notes += ceilings.notes(settings.config.backends or (), policies.policies, PriceBook.of(settings))
    return found


def _place_of_backend(config: Path | None) -> Callable[[int], str]:
    """Returns a function from the number of a backend in the file to the backend's place, such as `gateway.yaml:3: `.
    If the file cannot be read, the function returns an empty text."""
    with suppress(ConfigError):
        if config is not None:
            file = read_document(config)
            return lambda number: file.place(("backends", number)).partition(": ")[0] + ": "
    return lambda number: ""


def _settings(config: Path | None, folders: Sequence[Path], found: Checked) -> Settings:
    """Load the settings in gateway.yaml. If the file has a mistake, the mistake is added to `found`. Then settings
    without backends are returned, so that the policies can be checked too."""
    try:
        return load_settings(config, None, folders, keys=True)
    except ConfigError as error:
        found.problems += error.problems
    with suppress(ConfigError):
        return load_settings(config, None, folders, keys=False)
    found.unread = True
    known = folders or ([POLICIES] if POLICIES.is_dir() else [])
    present = tuple(folder for folder in known if folder.is_dir())
    return Settings(GatewayConfig(backends=()), Paths(default_data_dir().absolute()), present)


def _check_names(settings: Settings, policies: PolicySet, place: Place, found: Checked) -> None:
    listed = settings.config.backends
    if listed:
        listed = tuple(grouped(listed, settings.config.model_groups))
        found.notes += one_model(listed)
        found.problems += unknown_names(listed, policies, place)
    elif listed is None:
        present = asyncio.run(backends_of(settings.config, None))
        here = "; that is so on this machine, where gateway.yaml lists no backends"
        if not present:
            here = "; gateway.yaml lists no backends, and none was found on this machine"
        found.notes += [problem + here for problem in unknown_names(present, policies, place)]


def unknown_names(backends: Sequence[Backend], policies: PolicySet, place: Place) -> list[str]:
    """Mistakes in policies: names that are not the name of any backend. `place`: (team, path of a key) → beginning of
    an error message."""
    groups = {backend.model_group for backend in backends if backend.model_group}
    names = {backend.name for backend in backends} | groups | set(RANK)
    models = {backend.model for backend in backends}
    judges = {*JUDGES, *(backend.name for backend in backends)}
    problems = []
    for team, policy in policies.policies.items():
        wanted = [
            *_of_models(policy, names, models),
            *(
                (("allowed_models", number), "backend, model or tier", name, names | models)
                for number, name in enumerate(policy.allowed_models or ())
            ),
            (("trials", "judge"), "judge or backend", policy.trials.judge, judges),
        ]
        problems += [
            f"{place(team, path)}there is no {what} called {name!r}; "
            f"{did_you_mean(name, sorted(known), '')} there are {', '.join(sorted(known))}".replace(";  ", "; ")
            for path, what, name, known in wanted
            if name not in known
        ]
    return problems


def _of_models(policy: Policy, names: set[str], models: set[str]) -> Iterator[tuple[KeyPath, str, str, set[str]]]:
    for model, entry in policy.models.items():
        if isinstance(entry, str):
            yield ("models", model), "backend or tier", entry, names | models | {"auto", *policy.models}
            continue
        for number, name in enumerate(entry.candidates):
            yield ("models", model, "candidates", number), "backend or tier", name, names
        if entry.reference:
            yield ("models", model, "reference"), "backend or tier", entry.reference, names


def _check_receivers(settings: Settings, policies: PolicySet, place: Place, found: Checked) -> None:
    addresses = Addresses(lambda: settings.known_receivers)
    for team, policy in policies.policies.items():
        for path, notify in _receivers(policy):
            try:
                _, reference = addresses.kind_and_reference(notify.target)
            except ReceiverRefused as error:
                if found.unread:
                    continue
                found.problems.append(f"{place(team, path)}{error}")
                continue
            if not receiver(reference):
                found.notes.append(f"{place(team, path)}{reference} is not set here; export it for the gateway")


def _receivers(policy: Policy) -> Iterator[tuple[KeyPath, Notify]]:
    for number, budget in enumerate(policy.budget):
        yield from ((("budget", number, "notify", at), each) for at, each in enumerate(budget.notify))
    for key in ("notify", "escalate_to", "weekly_report"):
        yield from ((("alerts", key, at), each) for at, each in enumerate(getattr(policy.alerts, key)))


def _missing_extras(settings: Settings, config: Path) -> Iterator[str]:
    """Yield a mistake for each receiver whose kind needs an optional package that is not installed."""
    entries = settings.config.receivers or {}
    file = read_document(config) if entries else None
    for name, entry in entries.items():
        kind, _ = entry.kind_and_reference
        if file is not None and (extra := KINDS[kind].extra) and find_spec(extra) is None:
            yield f"{file.place(('receivers', name, kind))}needs {extra}; pip install 'thriftgate[{extra}]'"


def _plan(settings: Settings, config: Path) -> list[str]:
    found = []
    for plan in settings.config.routing.artefact:
        try:
            fitted(plan)
        except (OSError, ValueError) as error:
            file = read_document(config)
            key = "plan_file" if "plan_file" in file.data.get("routing", {}) else "artefact"
            place = file.place(("routing", key))
            why = (
                f"{plan}: {error.strerror}; `thriftgate router fit` writes one" if isinstance(error, OSError) else error
            )
            found.append(f"{place}{why}")
    return found


def _without_units(config: Path | None, folders: Sequence[Path]) -> Iterator[str]:
    """Yield a note for each duration that is written without a unit. The gateway reads such a number as seconds, but
    the author may have meant another unit."""
    keys = _duration_keys()
    documents = [part.document for _, part in read_sources(folders, ()).teams]
    if config is not None:
        with suppress(ConfigError):
            documents.append(read_document(config))
    for document in documents:
        yield from _numbers(document, document.data, (), keys)


def _numbers(document: Document, data: Any, path: KeyPath, keys: frozenset[str]) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key in keys and type(value) in (int, float) and value > 0:
                place = document.place((*path, key))
                yield f"{place}{value} means {value} seconds; write {value}s, or {value}h for hours"
            yield from _numbers(document, value, (*path, key), keys)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _numbers(document, value, (*path, number), keys)


def _duration_keys() -> frozenset[str]:
    """The names of all keys, in any section, whose value is a duration."""
    durations: set[str] = set()
    others: set[str] = set()
    for model in _subclasses(Section):
        for name, field_ in model.model_fields.items():
            is_duration = any(
                isinstance(each, BeforeValidator) and each.func in (parse_duration, parse_delay)
                for each in field_.metadata
            )
            (durations if is_duration else others).add(name)
    for row in (*GATEWAY, *POLICY):
        if isinstance(row, RenamedKey | MovedKey) and {row.old, row.new} & durations:
            durations |= {row.old, row.new}
    return frozenset(durations - others)


def _subclasses(model: type[Section]) -> Iterator[type[Section]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses(each)
