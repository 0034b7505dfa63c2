# Every command of the project. Each does all its own set-up (scripts/system-packages, .venv, pinned dependencies, the
# build) and does it once: a second call takes seconds. `make help` lists them.

# A pip index with CPU builds of torch, for instance: make test TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Parallel compilations, and what the soak test runs for.
JOBS ?= $(shell nproc)
SOAK_MINUTES ?= 60
PYTEST_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
EXT := build/ext
NATIVE := build/native
STAMPS := $(VENV)/.collectives
# Containers run as root; Open MPI asks for this to be said twice.
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
# The programs of the environment (cmake, ninja, mpirun) come before the system's.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Let ccache, where there is one, recognise the same source in another checkout.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test build lint format test-cpp test-python test-hosts test-sanitizers test-torch soak soak-hosts \
    bench docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 26

demo: build  ## train on MovieLens-100k with gloo and with collectives, and compare
	$(PY) examples/movielens.py

test: test-cpp build  ## every test: C++, then Python
	$(PY) -m pytest $(PYTEST_ARGS)

test-python: build  ## the Python tests alone
	$(PY) -m pytest $(PYTEST_ARGS)

test-hosts: build  ## the tests on several hosts (as root; docs/hosts.md)
	$(PY) -m pytest tests/hosts $(PYTEST_ARGS)

# ---- set-up, each step stamped -------------------------------------------------------------------------------------

$(STAMPS)/system: scripts/system-packages
	@scripts/system-packages
	@python=$$(scripts/system-packages --python) && { test -x $(PY) || "$$python" -m venv $(VENV); }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/system
	$(PY) -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r requirements/torch.txt
	@touch $@

$(STAMPS)/dependencies: $(addprefix requirements/,build.txt dev.txt bench.txt mpi.txt) $(STAMPS)/torch
	$(PY) -m pip install --quiet $(addprefix -r requirements/,build.txt dev.txt bench.txt mpi.txt)
	@touch $@

# Editable: Python edits need no step at all, C++ edits the incremental one below.
$(STAMPS)/editable: pyproject.toml CMakeLists.txt $(wildcard cmake/*) $(STAMPS)/dependencies
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PY) -m pip install --quiet --no-build-isolation --no-deps \
	    --config-settings=build-dir=$(EXT) --editable .
	@touch $@

# A changed file is renamed into place: a process that runs the old one keeps it.
build: $(STAMPS)/editable  ## .venv with the pinned dependencies, and the extension built into it
	@cmake --build $(EXT) --parallel $(JOBS)
	@cmake --install $(EXT) --component python --prefix $(EXT)/installed >/dev/null
	@site=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/collectives; \
	for file in $(EXT)/installed/collectives/*; do \
	    name=$${file##*/}; \
	    cmp -s $$file $$site/$$name || { cp $$file $$site/.$$name.new && mv $$site/.$$name.new $$site/$$name; }; \
	done

# ---- tests ---------------------------------------------------------------------------------------------------------

# $(call native,FOLDER,SANITIZERS): configure and build the C++ tests there, without torch or Python.
define native
cmake -S . -B $(1) -G Ninja -DCOLLECTIVES_PYTHON=OFF -DCOLLECTIVES_TESTS=ON -DCOLLECTIVES_SANITIZE="$(2)" >/dev/null
cmake --build $(1) --parallel $(JOBS)
endef

test-cpp: $(STAMPS)/dependencies  ## the C++ tests
	$(call native,$(NATIVE),)
	ctest --test-dir $(NATIVE) --output-on-failure

# Without address-space randomisation: older ThreadSanitizers cannot map their shadow memory under the newer kernels' 32
# bits of it.
test-sanitizers: $(STAMPS)/dependencies  ## the C++ tests under ASan and UBSan, then under TSan
	$(call native,build/asan,address;undefined)
	ctest --test-dir build/asan --output-on-failure
	$(call native,build/tsan,thread)
	setarch -R ctest --test-dir build/tsan --output-on-failure

test-torch: build  ## the torch wheel's own distributed_test over this backend
	$(PY) tests/torch/run_distributed_test.py --report

soak: build  ## random operations and faults for SOAK_MINUTES
	$(PY) tests/soak/run.py --minutes $(SOAK_MINUTES)
	$(call native,$(NATIVE),)
	$(NATIVE)/tests/cpp/collectives_simulation --minutes $(SOAK_MINUTES) --first $$(date +%s)

soak-hosts: build  ## 10,000 random operations on four hosts that lose packets (as root; docs/hosts.md)
	$(PY) -m tests.soak.hosts --operations 10000

lint: build  ## ruff, mypy and clang-format, as the tidy tests run them
	$(PY) -m pytest tests/tidy -q

format: $(STAMPS)/dependencies  ## rewrite the sources in the project's style
	ruff check --fix --quiet . || true
	ruff format --quiet .
	git ls-files -- '*.cc' '*.h' '*.cu' | xargs -r clang-format -i

# ---- the rest ------------------------------------------------------------------------------------------------------

bench: build  ## the benchmark table, 2 ranks, against gloo and MPI
	mpirun -n 2 $(PY) bench/run.py $(BENCH_ARGS)

docs: build  ## the pages that are generated
	$(PY) -m collectives.config > docs/configuration.md

clean:  ## remove what was built (not .venv)
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(STAMPS)/editable
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
