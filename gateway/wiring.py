"""Builds, opens and closes all parts of one worker."""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from threading import current_thread, main_thread
from typing import Protocol, TypeVar

import orjson
from sqlalchemy.exc import SQLAlchemyError

from gateway.admission.budgets import Budgets
from gateway.admission.load_shedding import LoadShedder
from gateway.admission.pacing import Pacer
from gateway.admission.rate_limits import RateLimits
from gateway.admission.tool_loops import ToolLoops
from gateway.alerts.detect.tool_loops import ToolLoopAlerts
from gateway.api.auth import Authenticator
from gateway.api.idempotency.idempotency import Idempotency
from gateway.api.routes.service import backend_health
from gateway.api.routes.usage import UsageFigures
from gateway.api.server.shutdown import ShutdownFlag
from gateway.backends.fleet import KINDS, MAY_LEAD_BACK, Fleet
from gateway.backends.providers.base import Kind
from gateway.backends.providers.discover import backends_of, found_text
from gateway.backends.providers.litellm.process import OwnProcess, Supervised
from gateway.backends.providers.litellm.provider import ViaLitellm
from gateway.backends.providers.litellm_proxy import LitellmProxy
from gateway.backends.providers.thriftgate import Thriftgate
from gateway.backends.resilience.drain import BackendDrains
from gateway.batches.files import Files
from gateway.batches.jobs import Jobs
from gateway.batches.message_jobs import MessageJobs
from gateway.batches.runner import Runner
from gateway.cache.cache import Cache
from gateway.cache.semantic.built import BuiltEmbedder, is_built
from gateway.cache.semantic.embedder import ModelEmbedder, OnnxEmbedder
from gateway.cache.semantic.sentence_transformers import SentenceTransformerEmbedder
from gateway.cache.store.snapshot import SnapshotWriter
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.context.strategies.flagged_turns import FlaggedTurns
from gateway.context.strategies.flags import Flags
from gateway.context.strategies.load_out import LoadOut
from gateway.context.strategies.relevance import Relevance
from gateway.context.strategies.repeated_errors import RepeatedErrors
from gateway.context.strategies.shared_memory import SharedMemory
from gateway.context.strategies.strategy import InTurn
from gateway.dashboard.page import Dashboard
from gateway.domain.backend import Backend
from gateway.errors import GatewayError, StateUnavailable
from gateway.keep_alive.keep_alive import KeepAlives
from gateway.learning.cache_check import FreshAnswers
from gateway.learning.class_trials import LiveTrials
from gateway.learning.cut_switch import CutSwitch
from gateway.learning.evidence import Learning
from gateway.learning.feedback import Feedback
from gateway.learning.plans.live_plans import PlanTrials
from gateway.learning.shadow.holdout import Holdout
from gateway.learning.shadow.shadow import Shadows
from gateway.learning.spend_cap import SpendCap
from gateway.ledger.journal.writer import Journal
from gateway.ledger.prices import commitments
from gateway.ledger.prices.model_names import grouped
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.throughput import follow
from gateway.ledger.reports.idle import Idle
from gateway.ledger.spent import Spending
from gateway.ledger.store.archive import Archive
from gateway.ledger.store.end_users import EndUsers
from gateway.ledger.store.writer import Writer
from gateway.old_turns.old_turns import SummarizedTurns
from gateway.pipeline import Pipeline
from gateway.policy.keys import Keys
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.responses.memory import StoredContext
from gateway.responses.store import Responses
from gateway.routing.affinity.continuity import Affinity
from gateway.routing.loading import followed, packaged
from gateway.routing.router import Router
from gateway.runtime.garbage_collection import give_back
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.settings.gateway import EmbedderSettings, Settings
from gateway.state.leases.leases import Leases
from gateway.state.leases.orphans import Orphans
from gateway.state.leases.worker_names import own_name
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog
from gateway.state.sql.database import Database
from gateway.telemetry.observe import Telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Worker:
    """The settings and facts from which one worker is started."""

    settings: Settings
    redis_url: str
    local_model_url: str | None = None
    simulate: bool = False
    number: int = 0
    workers: int = 1
    fd: int | None = None
    litellm_socket: str | None = None
    """The socket of litellm's process. None: no supervisor runs, so the worker starts the process itself."""
    monotonic: Callable[[], float] = time.monotonic
    """The clock, in seconds, with which the ages of prompts in providers' caches are measured. A replay has a simulated
    clock."""


DECODING_THREADS = 2
"""Maximum request bodies that one worker decodes at the same time, each in a thread. Decoders release the interpreter's
lock."""
FIRST_TEAMS = 4
"""Maximum number of teams whose budgets a worker reads before their first request."""
FIRST_AFTER_S = 0.5
"""Seconds from the first read of the keys until these budgets are read. Teams that send requests at once read their own
budgets, and do not wait for the others."""
MOST_CACHED = 50_000
"""Maximum entries in the log of the cache's index. An entry has a prompt and its vector, about 1.2 kB."""


def fingerprint(backends: Sequence[Backend]) -> str:
    """A digest of the backends' names and models. If the digest changes, earlier cache entries are no longer used."""
    identities = [(each.name, each.kind, each.base_url, each.sent_model) for each in backends]
    return blake2b(orjson.dumps(identities), digest_size=8).hexdigest()


def embedder(settings: EmbedderSettings) -> ModelEmbedder:
    """The packaged embedder, or the embedder model that the operator chose. Reads a small file. Raises
    EmbedderUnavailable."""
    if settings.model is None:
        return OnnxEmbedder()
    if is_built(settings.model):
        return BuiltEmbedder(settings.model)
    return SentenceTransformerEmbedder(
        settings.model, device=settings.device, dimensions=settings.dimensions, max_tokens=settings.max_tokens
    )


class Opens(Protocol):
    async def open(self) -> None: ...
    async def aclose(self) -> None: ...


Opened = TypeVar("Opened", bound=Opens)


class Watched(Protocol):
    def stats(self) -> Mapping[str, int | float | str]: ...


class Wiring:
    """All parts of a worker. Each part is opened after the parts that it needs, and closed before them. If a part fails
    to open, all opened parts are closed."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.drain = ShutdownFlag()
        self._exits = AsyncExitStack()
        self._tasks = Tasks()
        self._budgets_begun = False

    async def open(self) -> None:
        try:
            await self._open_state()
            await self._open_path()
            await self._open_sides()
        except BaseException:
            await self.aclose()
            raise
        if current_thread() is main_thread():  # inside another application it may be any thread
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, lambda: self._tasks.spawn(self.policies.reload(), "reload"))
        self.ring.on_change(self._begin)
        self.policies.on_change(self._begin)
        self._begin()

    def _begin(self) -> None:
        """Start to load in the background what requests need: the budgets of a few teams, the embedder, and the
        classifier. The last two are loaded only if a team that has an API key uses them in its policy.
        """
        if not self._budgets_begun and (keys := self.ring.newest(FIRST_TEAMS)):
            self._budgets_begun = True
            self._tasks.spawn(self._read_budgets(keys), "first budgets")
        policies = [self.policies.current.find(team)[0] for team in self.ring.teams]
        if any(policy.cache.enabled and policy.cache.semantic.enabled for policy in policies):
            self.cache.begin_by_meaning()
        if any(policy.context.long_documents != "keep" for policy in policies):
            self.embedder.begin()
        if any(policy.context.flagged_turns != "keep" for policy in policies):
            self.flags.begin()
        if self.router.wants(policies):
            self._tasks.spawn(self.router.load(), "classifier")

    async def _read_budgets(self, keys: Sequence[str]) -> None:
        """Read the budgets of `keys` (lineages). Otherwise, the first request of a team would wait until its spend is
        read from the ledger. If this fails, requests read the budgets.
        """
        await asyncio.sleep(FIRST_AFTER_S)
        for lineage in keys:
            try:
                await self.budgets.read_ahead(self.tenants.of_key(lineage))
            except (StateUnavailable, GatewayError) as error:
                log.debug("budgets are read when they are needed: %s", error)
        give_back()  # the compilation of the queries and of the classifier's modules has left 0.8 MiB free

    async def _open_state(self) -> None:
        """Connect to the state server and the database, and load the keys and policies."""
        settings, config = self.worker.settings, self.worker.settings.config
        self.state = await self._enter(State(self.worker.redis_url, timeout_s=config.state.timeout))
        self.database = await asyncio.to_thread(Database, settings.database_url)
        self._exits.push_async_callback(asyncio.to_thread, self.database.close)  # waits for running statements
        self._exits.push_async_callback(self._tasks.aclose)
        if self.worker.fd is None:
            await self._migrate()
        self.policies = await asyncio.to_thread(
            Policies, settings.policies, config.ceilings, None if self.worker.fd is None else settings.paths.policies
        )
        self.ring = Keys(self.database)
        self.tenants = Tenants(self.ring, self.policies, config.closed_to, kept_in=settings.keys_in)
        self._tasks.spawn(self.ring.follow(), "keys")
        self._tasks.spawn(self.policies.watch(), "policies")
        board = None if self.worker.fd is None else settings.paths.figures
        archive = Archive(self.database)
        self.telemetry = await self._enter(
            Telemetry(config.telemetry, self.state, archive=archive, board=board, worker=self.worker.number)
        )
        self._watch(state=self.state, keys=self.ring, policies=self.policies, telemetry=self.telemetry)

    async def _migrate(self) -> None:
        """Migrate the database, unless a supervisor does it. An error is only logged; the worker then does not become
        ready."""
        try:
            await asyncio.to_thread(self.database.upgrade)
        except SQLAlchemyError as error:
            log.error("the tables of the ledger database cannot be migrated: %s", error)

    async def _open_path(self) -> None:
        """Open the parts through which a request passes. Each part is opened after the parts that it needs, so the
        pipeline is opened last.
        """
        await self._open_backends()
        await self._open_admission()
        await self._open_cache()
        await self._open_routing()
        await self._open_pipeline()

    async def _open_backends(self) -> None:
        """Open the prices and the backends."""
        self.prices = await asyncio.to_thread(PriceBook.of, self.worker.settings)
        backends = await self._backends()
        self.off_loop = OffLoop()
        self._exits.callback(self.off_loop.close)
        self.decoding = OffLoop(DECODING_THREADS, "decoding")
        self._exits.callback(self.decoding.close)
        litellm = Supervised(self.worker.litellm_socket) if self.worker.litellm_socket else self._own_litellm()
        kinds: dict[str, Callable[[Backend], Kind]] = {
            **KINDS,
            **{kind: partial(each, hop=self.instance) for kind, each in MAY_LEAD_BACK.items()},
            "litellm": partial(ViaLitellm, process=litellm),
            "thriftgate": partial(Thriftgate, instance=self.instance),
            "litellm_proxy": partial(LitellmProxy, instance=self.instance),
        }
        drains = BackendDrains(self.state)
        self.fleet = await self._enter(Fleet(backends, kinds=kinds, drains=drains, off_loop=self.off_loop))
        if not backends:
            log.error("no backend is configured, so the gateway is not ready; `thriftgate doctor` shows what to do")
        for each in backends:
            price = "priced" if self.prices.price(each) else "no price known"
            nature = "simulated, not a real model" if each.simulated else price
            log.info("backend %s: %s tier, %s (%s)", each.name, each.tier, each.model, nature)
            if self.worker.settings.config.backends is None and (assumed := found_text(each)):
                log.info("found %s", assumed)
        self._watch(fleet=self.fleet)

    @property
    def instance(self) -> str:
        """The id by which other gateways recognise this gateway. It is equal for all workers with the same data
        directory."""
        place = f"{platform.node()}:{self.worker.settings.paths.data.absolute()}"
        return blake2b(place.encode(), digest_size=6).hexdigest()

    def _own_litellm(self) -> OwnProcess:
        """The LiteLLM process of this worker. It starts when it is first needed."""
        process = OwnProcess()
        self._exits.push_async_callback(process.aclose)
        return process

    async def _open_admission(self) -> None:
        """Open the journal, the budgets and the limits. The budgets restore their leases from the journal."""
        settings, config, workers = self.worker.settings, self.worker.settings.config, self.worker.workers
        name = own_name()
        number = str(self.worker.number)
        self.journal = Journal(settings.paths.journal, prices=self.prices, worker=number, leases_as=name)
        self._exits.push_async_callback(self.journal.aclose)
        await self.journal.start()
        requests = config.requests
        self.overload = await self._enter(LoadShedder(concurrent=requests.concurrent, lag_s=requests.lag))
        self.limits = await self._enter(RateLimits(self.state, workers=workers))
        spending = Spending(settings.paths.journal, self.database)
        above = {name: organisation.budget for name, organisation in config.organisations.items()}
        self.orphans = Orphans(self.database, name)
        leases = Leases(self.state, workers=workers, worker=name, dead=self.orphans)
        self.budgets = await self._enter(Budgets(self.state, self.prices, spending, leases=leases, organisations=above))
        self.pacer = await self._enter(Pacer(self.budgets))
        self._watch(journal=self.journal, limits=self.limits, budgets=self.budgets, overload=self.overload)

    async def _open_cache(self) -> None:
        settings, config = self.worker.settings, self.worker.settings.config
        self.embedder = vectors = await self._enter(await asyncio.to_thread(embedder, config.embedder))
        self.cache = await self._enter(
            Cache(
                self.state,
                IndexLog(self.state, "cache", max_length=MOST_CACHED),
                vectors,
                revision=fingerprint(self.fleet.backends),
                peers=settings.paths.joins if self.worker.workers > 1 else None,
                checks=config.trials.cache_checks,
                keep=SnapshotWriter(settings.paths.index, writes=self.worker.number == 0),
                off_loop=self.off_loop,
            )
        )
        self._watch(embedder=vectors, cache=self.cache)

    async def _open_routing(self) -> None:
        """Open the router, and the stored judgements from which it learns."""
        config = self.worker.settings.config
        self.learning = await self._enter(Learning(self.database))
        self.spend_cap = SpendCap(self.database, config.trials)
        holdout = Holdout(config.trials.holdout)
        trials = await self._enter(LiveTrials(self.database))
        self.shadows = Shadows(self.database, self.prices, self.spend_cap, self.learning, holdout, trials)
        self.router = Router(
            packaged,
            self.prices,
            self.fleet,
            self.fleet.backends,
            sampler=self.shadows,
            evidence=self.learning,
            trials=trials,
            pressures=self.pacer.pressures,
            plans=await asyncio.to_thread(followed, config.routing.artefact),
            continuity=Affinity(
                self.fleet.backends, self.fleet, overload=config.replicas.overload, on_demand=config.replicas.on_demand
            ),
        )
        self._watch(
            class_trials=trials, learning=self.learning, purse=self.spend_cap, routing=self.router, trials=self.shadows
        )

    async def _open_pipeline(self) -> None:
        """Open the pipeline, and the background parts that send requests through it."""
        self.counter = Counter()
        switch = await self._enter(CutSwitch(self.database))
        self.flags = Flags(self.state)
        self._exits.push_async_callback(self.flags.aclose)
        relevance = Relevance(self.embedder, self.off_loop, switch.is_off)
        keep_alives = KeepAlives(
            self.state,
            self.prices,
            self.tenants.of_key,
            switched_off=switch.is_off,
            leaving=lambda: self.drain.draining,
            off_loop=self.off_loop,
        )
        notes = SummarizedTurns(
            self.state,
            self.prices,
            self.tenants.of_key,
            switched_off=switch.is_off,
            leaving=lambda: self.drain.draining,
            off_loop=self.off_loop,
        )
        contexts = Contexts(
            self.counter,
            off_loop=self.off_loop,
            switched_off=switch.is_off,
            strategy=InTurn(relevance, RepeatedErrors(switch.is_off), FlaggedTurns(self.flags, switch.is_off)),
            keep_alive=keep_alives,
            load_out=LoadOut(SharedMemory(self.state), self.off_loop, switch.is_off),
            old_turns=notes,
            monotonic=self.worker.monotonic,
        )
        self._exits.callback(contexts.close)
        reports = ToolLoopAlerts(self.database, lambda team: self.policies.current.find(team)[0], self._tasks, time)
        loops = ToolLoops(reports.report)
        self.pipeline = Pipeline(
            limits=self.limits,
            budgets=self.budgets,
            contexts=contexts,
            counter=self.counter,
            cache=self.cache,
            router=self.router,
            fleet=self.fleet,
            books=self.journal,
            end_users=await self._enter(EndUsers(self.worker.settings.paths.pseudonyms, self.database)),
            telemetry=self.telemetry,
            sampler=self.shadows,
            loops=loops,
            off_loop=self.off_loop,
            answered=self.flags.answered,
        )
        self._exits.push_async_callback(self.shadows.aclose)
        keep_alives.open(self.pipeline)
        self._exits.push_async_callback(keep_alives.aclose)
        notes.open(self.pipeline)
        self._exits.push_async_callback(notes.aclose)
        plans = await self._enter(PlanTrials(self.database, self.router, self.fleet))
        await self.shadows.open(self.pipeline, plans)
        fresh = FreshAnswers(self.pipeline, self.spend_cap, self.prices)
        self.cache.check_with(fresh)
        self.cache.measure_in(self.database)
        self._watch(context=contexts, cuts=switch, plans=plans, fresh=fresh, tool_loops=loops, keep_alive=keep_alives)
        self._watch(old_turns=notes)

    async def _open_sides(self) -> None:
        """Open the parts that completions do not need: feedback, the dashboard, batches. Without a supervisor, also
        open a writer of the ledger."""
        settings, config = self.worker.settings, self.worker.settings.config
        self.authenticator = Authenticator(self.tenants)
        self.idempotency = Idempotency(self.state, patience_s=config.requests.deadline)
        self._exits.push_async_callback(self.idempotency.aclose)
        self.feedback = Feedback(self.database, self.learning)
        self.spend = UsageFigures(
            self.database,
            self.prices,
            policy_of=lambda team: self.policies.current.find(team)[0],
            backends=lambda: self.fleet.backends,
            organisations={name: organisation.budget for name, organisation in config.organisations.items()},
            terms=config.prices,
        )
        self.dashboard = Dashboard(
            needs=self.authenticator.needs,
            database=self.database,
            policies=self.policies,
            prices=self.prices,
            backends=lambda: self.fleet.backends,
            feedback=self.feedback,
            errors=self.cache.team_errors,
            flight=self.telemetry.flight,
            health=lambda tenant: backend_health(tenant, self.fleet),
        )
        self._exits.push_async_callback(self.dashboard.aclose)
        self.responses = await self._enter(Responses(self.database))
        self.files = await self._enter(Files(settings.paths.files, self.database))
        most = {"max_line_bytes": config.requests.max_body_bytes, "max_line_items": config.requests.max_items}
        self.jobs = Jobs(self.database, self.files, **most)
        self.message_jobs = MessageJobs(self.database, self.files, **most)
        self.memory = StoredContext(self.responses, config.requests.max_items, self.off_loop)
        batches = await self._enter(
            Runner(
                self.jobs,
                self.files,
                self.pipeline,
                self.tenants,
                self.overload,
                self.memory,
                deadline_s=config.requests.deadline,
            )
        )
        self._watch(responses=self.responses)
        self._watch(idempotency=self.idempotency, feedback=self.feedback, dashboard=self.dashboard, batches=batches)
        if credits := [each for each in config.prices.credits if each.preferred]:
            follows = commitments.follow(self.database, credits, self.fleet.backends, self.prices, time)
            self._tasks.spawn(follows, "commitments")
        machines = [each for each in self.fleet.backends if each.price and each.price.machine_hour_usd]
        if machines:
            self._tasks.spawn(follow(self.database, machines, self.prices, time), "throughput of machines")
        if machines and self.worker.number == 0:
            self._tasks.spawn(Idle(settings.paths.journal, self.database, machines).run(), "idle machine time")
        if self.worker.fd is None:
            writer = Writer(settings.paths.journal, self.database, keep_days=config.ledger.keep_days)
            self._exits.push_async_callback(writer.aclose)
            self._tasks.spawn(writer.run(), "ledger writer")

    async def _enter(self, part: Opened) -> Opened:
        """Open `part` and return it. It is closed when the worker ends, even if opening it fails."""
        self._exits.push_async_callback(part.aclose)
        await part.open()
        return part

    def _watch(self, **parts: Watched) -> None:
        """Export the figures of the parts as metrics. The keyword under which a part is passed becomes the label of its
        metrics."""
        for name, part in parts.items():
            self.telemetry.watch(name, part.stats)

    async def _backends(self) -> Sequence[Backend]:
        """Return the backends in gateway.yaml. If gateway.yaml has no list of backends, return the backends that run
        on this machine. The price list supplies missing facts.
        """
        worker = self.worker
        found = await backends_of(worker.settings.config, worker.local_model_url, worker.simulate)
        return grouped([self.prices.complete(backend) for backend in found], worker.settings.config.model_groups)

    async def aclose(self) -> None:
        await self._exits.aclose()
