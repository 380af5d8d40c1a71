# All set-up happens here: a fresh clone needs Python (>= 3.10) and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools

.PHONY: matrix sanitize soak bench train test browser lint types format setup tools clean

# A small capsule network on 5,000 digits that come with the package: about two minutes on two cores.
train: setup
	@$(BIN)/torchcaps train --evaluate

test: lint types browser
	$(BIN)/python -m pytest -n 2 --dist worksteal
	@$(HAS_BROWSER) || $(NO_BROWSER)

# The explorer's page is tested in a real Chromium. Where it can be installed it is; else the tests of the page are skipped.
HAS_BROWSER = $(BIN)/python -c 'import sys; from benchmarks.browser import chromium; sys.exit(chromium() is None)'
NO_BROWSER = printf '\n*** Chromium is not installed: the page of the explorer was NOT tested. ***\n    On Debian: apt-get install chromium\n\n'
browser: tools
	@$(HAS_BROWSER) || { \
	  echo "Installing Chromium for the tests of the explorer's page"; \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1; \
	} || $(NO_BROWSER)

# The kernel under AddressSanitizer and UndefinedBehaviorSanitizer, on odd sizes and on random cases; needs g++. A long soak
# afterwards: ./build/sanitize_avx2 100000. Optimised, these checks take longer to compile and longer to run.
SANITIZE = g++ -std=c++17 -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fopenmp -Icsrc tests/sanitize.cpp
AVX512 = -mavx2 -mfma -mavx512f -mavx512dq -mavx512vl -DVECTOR_BYTES=64
sanitize:
	@mkdir -p build
	$(SANITIZE) -o build/sanitize_portable & portable=$$!; \
	$(SANITIZE) -mavx2 -mfma -DVECTOR_BYTES=32 -o build/sanitize_avx2 || exit 1; wait $$portable
	OMP_WAIT_POLICY=passive ./build/sanitize_portable  # threads that spin while they wait take ten times as long
	OMP_WAIT_POLICY=passive ./build/sanitize_avx2
	@if grep -qw avx512vl /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then \
	  set -ex; $(SANITIZE) $(AVX512) -o build/sanitize_avx512; OMP_WAIT_POLICY=passive ./build/sanitize_avx512; \
	else echo "This processor has no AVX-512: that variant is not tested."; fi

# Hours in a few minutes: a training killed 50 times, 100,000 mutated requests, 100,000 kernel cases under sanitizers.
soak: tools sanitize
	$(BIN)/python -m benchmarks.soak_kills --kills 50
	$(BIN)/python -m benchmarks.soak_requests --requests 100000
	$(BIN)/python -m benchmarks.soak_kernel --cases 100000

# Every transform of torch on every layer and model, ten to twenty minutes on two cores; the table in docs/pytorch.md is made from it.
matrix: tools
	TORCHCAPS_MATRIX=results/pytorch.csv $(BIN)/python -m pytest tests/pytorch -m "long or not long" -n 2 --dist worksteal; \
	  status=$$?; $(BIN)/python scripts/doc_tables.py; exit $$status

bench: tools
	$(BIN)/python -m benchmarks.routing

lint: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: tools
	$(BIN)/mypy

format: tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What training needs, and with it the package itself.
setup: $(READY)

# What its developers need beside that.
tools: $(TOOLS)

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The constraints choose the CPU build of torch; without them pip would fetch gigabytes of CUDA packages.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard csrc/* csrc/*/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.3"
	$(PIP) -c constraints.txt -e ".[train]"
	@touch $@

$(TOOLS): $(READY)
	$(BIN)/python scripts/extras.py > $(VENV)/extras.txt
	$(PIP) -c constraints.txt -r $(VENV)/extras.txt
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
