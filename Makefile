# pgpaces: every task of the project. `make` prints this list.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
FUZZ_SECONDS ?= 60
FUZZED ?= script wire stored
# The toolchain for fuzzing and AddressSanitizer.
NIGHTLY ?= nightly
# The major versions of PostgreSQL that `make test-versions` tries.
VERSIONS ?= 14 15 16 17 18
# How often `make faults` injects each fault.
TIMES ?= 20
# The parts of `make test`: PART=unit has the tests in Rust too. Files begin in this order: those that
# take minutes first, so that no process is left with one of them while the others have ended.
PART_unit := tests/browser tests/unit
PART_servers := tests/integration
PART_faults := tests/faults
PART_conformance := tests/conformance
PART ?= conformance servers faults unit
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Also in a shell where another environment is active: what is built goes to ours.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
# Tests run thousands of commands: where bytecode is not kept, each compiles all of our modules.
export PYTHONDONTWRITEBYTECODE :=
# Nor does each need threads for algebra, which begin with a spin.
export OPENBLAS_NUM_THREADS := 1
READY := $(VENV)/.ready
# What builds and checks wheels is large, and in an environment of its own.
PACKERS := target/packaging
MACHINES := x86_64 aarch64
# So is what builds the site.
SITE := target/mkdocs
MANUAL := packaging/data/data/share/man/man1
BUILT := $(VENV)/.built
RUST := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
# What else Rust's tests read.
RUST_DATA := $(shell find crates fuzz/corpus) fuzz/targets.rs docs/internals/figures.md .config/nextest.toml
RUST_TESTED := $(VENV)/.rust-tested
RUST_LINTED := $(VENV)/.rust-linted
STUBS_TESTED := $(VENV)/.stubs-tested

.DEFAULT_GOAL := help
.PHONY: help map packages build compiled run t check test test-slow test-versions faults asan test-arm conformance fuzz lint format bench bench-check docs site outputs pictures commands lock man wheel wheels clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

map: ## Print every file of the program with its first line
	@git ls-files 'crates/*/src/*.rs' 'python/pgpaces/*.py' | xargs awk 'FNR == 1 { \
		sub(/^("""|\/\/! )/, ""); sub(/"""$$/, ""); printf "%-48s %s\n", FILENAME, $$0 }'

# uv takes 4 to 12 s where pip takes 75, but it does not know what pip is configured to use.
$(READY): requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pgpaces needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV) || { echo "Debian: apt install python3-venv"; exit 1; }
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.txt
	UV_HTTP_TIMEOUT=20 $(BIN)/uv pip install --quiet --require-hashes -r requirements.lock || \
		$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	touch $@

$(BUILT): $(READY) $(RUST) pyproject.toml
	maturin develop --uv --release --locked --quiet
	touch $@

# Rust's tests are built without Python, so `make -j 2` does it while that is installed.
compiled:
	cargo test --workspace --locked --no-run --quiet

# They run if something has changed since they passed. The last part of a build of the engine is one
# process, which leaves room for them.
$(RUST_TESTED): $(RUST) $(RUST_DATA) | $(READY)
	PROPTEST_RNG_SEED=20261122 PROPTEST_CASES=128 cargo nextest run --workspace --locked
	touch $@

# Tests that need one of the packages are left out if it cannot be installed.
packages: ## Install the Debian packages that are missing, as root or with sudo
	@.ci/packages || true

build: $(BUILT) ## Build the engine and install pgpaces into .venv

run: build ## From nothing to a first answer: eight users of a reporting database
	pgpaces run reporting --scale 1 --users 8 --pace 1/s -L 500ms --allow-fail
	@pgpaces runs --limit 5

# Python is run from python/, so the engine is built anew only where Rust or its dependencies changed.
t: build ## Some tests: make t T=tests/unit/test_volume.py
	$(if $(T),,$(error say which tests: make t T=tests/unit/test_volume.py))pytest -q $(T)

# What needs no PostgreSQL server; four at a time, as some of these tests wait for processes.
check: lint $(RUST_TESTED) ## Lint, types and all tests that need no server
	pytest -q -n 4 --dist worksteal --hypothesis-seed=20261122 -m 'not slow and not postgres' tests

# One seed for all random cases: whoever runs this sees what the next one sees. `test-slow` looks
# for what nobody has seen yet, with more cases. Four at a time, as those of servers wait more than
# they work.
test: packages build $(if $(filter unit,$(PART)),$(RUST_TESTED)) ## All tests but the slow ones; PART=unit for less; the last lines say which were left out
	pytest -q -n 4 --dist loadfile --no-loadscope-reorder --hypothesis-seed=20261122 $(foreach part,$(PART),$(PART_$(part)))

test-slow: build test-versions ## The slow tests, and random cases that are new each time
	PROPTEST_CASES=4000 cargo nextest run --workspace --locked --cargo-profile release
	pytest -q -m 'slow or hypothesis' --hypothesis-profile=many

test-versions: build ## Tests of run, sweep, and settings on each version of PostgreSQL; VERSIONS="16 18" for less
	for version in $(VERSIONS); do \
		PGPACES_TEST_SERVER=pypi:$$version pytest -q $(addprefix tests/integration/test_,run.py sweep.py settings.py) || exit 1; \
	done

faults: packages build ## Each fault of tests/faults, TIMES times (20); takes hours
	TIMES=$(TIMES) pytest -q -m 'slow or not slow' tests/faults

asan: ## The io_uring code under AddressSanitizer; needs nightly Rust with its source
	RUSTFLAGS=-Zsanitizer=address cargo +$(NIGHTLY) test -Zbuild-std --target x86_64-unknown-linux-gnu \
		--locked --package pgpaces-engine --test all poll::

conformance: build ## PostgreSQL's own test suites of pgbench, run with us in its place; needs Debian
	python tests/conformance/suites.py

test-arm: ## The engine and the wheel of aarch64, in an emulated Debian; needs root and cross tools
	packaging/test-arm.sh

fuzz: ## Feed scripts, servers and stored results to what reads them, each for FUZZ_SECONDS (60); needs nightly Rust
	cargo fuzz --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-fuzz
	mkdir -p $(FUZZED:%=fuzz/found/%)
	for target in $(FUZZED); do \
		cargo +$(NIGHTLY) fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
			-print_final_stats=1 $$(ls fuzz/$$target.dict 2>/dev/null | sed s/^/-dict=/) || exit 1; \
	done

lint: build $(STUBS_TESTED) $(RUST_LINTED) ## Every check that is not a test
	ruff check python tests docs bench packaging
	ruff format --check python tests docs bench packaging
	mypy
	lint-imports
	python bench/house.py --check
	if cargo deny fetch db >/dev/null 2>&1; then cargo deny --offline check advisories; \
	else echo "advisories: not checked, their database cannot be reached"; fi

$(STUBS_TESTED): $(BUILT) python/pgpaces/_engine.pyi .ci/stubs.ini
	cd python && stubtest --mypy-config-file ../.ci/stubs.ini pgpaces._engine
	touch $@

$(RUST_LINTED): $(RUST) fuzz/targets.rs clippy.toml deny.toml rustfmt.toml | $(READY)
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo deny check licenses bans sources
	touch $@

format: $(READY) ## Format all code
	cargo fmt
	ruff format python tests docs bench packaging
	ruff check --fix python tests docs bench packaging

# Without ARGS what is measured goes to the page of the documentation.
bench: build ## Side by side with pgbench and other tools; ARGS="--quick cpu" for less
	cargo build --release --locked --quiet --package pgpaces-fakeserver
	cargo build --release --locked --quiet --package pgpaces-engine --example bare
	python bench/bench.py $(or $(ARGS),--page docs/internals/cost.md)

bench-check: build ## Gates: instructions and system calls against bench/baseline.json
	python bench/bench.py --check

docs: build ## Write the generated parts of docs/
	-cargo nextest run --locked --no-fail-fast --package pgpaces-engine --test all figures::
	python docs/generate.py

# With VERSION=0.1.0 mike adds it as that version, and as `latest`, to the branch gh-pages.
site: $(SITE)/.ready ## Build docs/ as a site into target/site, links checked; VERSION=0.1.0 commits it to gh-pages
	export PATH="$(CURDIR)/$(SITE)/bin:$$PATH" NO_MKDOCS_2_WARNING=1; $(if $(VERSION),export SITE_VERSIONS=mike; \
		mike deploy --update-aliases $(VERSION) latest && mike set-default latest,mkdocs build)

# Some of them: PAGES=docs/tutorial. All take about 40 minutes; what they show depends on the machine.
outputs: build ## Run the commands whose output docs/ shows, and put it there
	python docs/outputs.py $(PAGES)

pictures: build ## Take pictures of pages that README and docs/ show, of real runs; ARGS=report for less
	python docs/pictures.py $(ARGS)

# Some of them: PAGES=docs/tutorial. Ctrl-C ends what takes longer than 40 s (CUT=40) in its load.
commands: build ## Run every command of README and docs/ as printed, in a lab of its own
	CUT=$(CUT) python docs/commands.py $(PAGES)

lock: $(READY) ## Choose all Python dependencies anew
	uv pip compile pyproject.toml --all-extras --group build --group test --group lint --universal \
		--generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements.lock
	uv pip compile --group wheels --universal --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --quiet --output-file packaging/requirements.lock
	uv pip compile --group site --universal --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --quiet --output-file docs/requirements.lock

man: build ## Write the manual pages that the wheels have
	python packaging/man.py $$(pgpaces --version | sed 's/.* //')

wheel: $(READY) ## Build the wheel of this machine into dist/
	maturin build --release --locked --out dist

$(PACKERS)/.ready: packaging/requirements.lock
$(SITE)/.ready: docs/requirements.lock
$(PACKERS)/.ready $(SITE)/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

# Any Linux with the GNU C library from 2.17 on: zig has those of all versions and machines.
wheels: man $(PACKERS)/.ready ## Build and check the wheels of x86_64 and aarch64 and the source distribution
	rm -f dist/pgpaces-*
	rustup target add $(MACHINES:%=%-unknown-linux-gnu)
	export PATH="$(CURDIR)/$(PACKERS)/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/$(PACKERS)"; \
	for machine in $(MACHINES); do \
		maturin build --release --locked --zig --compatibility manylinux2014 \
			--target $$machine-unknown-linux-gnu --out dist || exit 1; \
	done; \
	maturin sdist --out dist && python packaging/check.py dist

clean: ## Remove what was built here
	rm -rf target fuzz/target dist $(MANUAL) $(VENV)
