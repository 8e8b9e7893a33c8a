# Every target makes the environment it needs in .venv; a stamp per set of packages makes repeated calls instant.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.DELETE_ON_ERROR:
.PHONY: help demo test test-all attack lint bench bench-all docs dist clean distclean

help:
	@echo "make demo      a simulation with its certificate and picture, in out/demo"
	@echo "make test      the tests, without the slow ones"
	@echo "make test-all  every test, with types checked in every package; ORDER=text draws the order of the tests from a text,"
	@echo "               LIMIT=seconds starts no test after that time and lists those left"
	@echo "make attack    random damage, forgeries, kills and odd functions; SEED=text, MINUTES=number"
	@echo "make lint      ruff and pyright"
	@echo "make bench     speed: figures with their goals, pass or miss, in a few minutes"
	@echo "make bench-all all scripts of benchmarks/, with the peers they compare with"
	@echo "make docs      the documentation, in out/docs"
	@echo "make dist      wheel and sdist, in dist/"
	@echo "make clean     remove what these made, except .venv (make distclean removes that too)"

$(VENV)/.stamp-base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("holonomix needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else 0'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.stamp-%: $(VENV)/.stamp-base
	@$(PIP) -e '.[$*]'
	@touch $@

demo: $(VENV)/.stamp-base
	$(PY) examples/demo.py --out out/demo

test: $(VENV)/.stamp-test
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: $(VENV)/.stamp-test
	XLA_FLAGS="$(XLA_FLAGS)" $(PY) -m pytest -n $(WORKERS) --dist worksteal --jaxtyping-packages=holonomix,beartype.beartype \
		$(if $(ORDER),--order-seed=$(ORDER)) $(if $(LIMIT),--time-limit=$(LIMIT))

SEED ?= 0
MINUTES ?= 3
attack: $(VENV)/.stamp-test
	$(PY) -m tests.attacks --seed $(SEED) --minutes $(MINUTES)

# pyright has to see what the tests use beside the base packages (cloudpickle)
lint: $(VENV)/.stamp-lint $(VENV)/.stamp-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) tools/import_graph.py --check
	$(PY) -m pyright

bench: $(VENV)/.stamp-bench
	$(PY) -m holonomix bench table kernels

bench-all: $(VENV)/.stamp-bench
	$(PY) -m holonomix bench

docs: $(VENV)/.stamp-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --site-dir out/docs

dist: $(VENV)/.stamp-base
	@$(PIP) build
	$(PY) -m build --outdir dist .

clean:
	rm -rf build dist out .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
