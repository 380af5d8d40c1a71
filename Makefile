# All set-up happens here: a fresh clone needs Python (>= 3.10) and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: sanitize bench train test browser lint types format setup clean

# A small capsule network on 5,000 digits that come with the package: about two minutes on two cores.
train: setup
	@$(BIN)/torchcaps train --evaluate

test: lint types browser
	$(BIN)/python -m pytest -n 2 --dist worksteal
	@$(HAS_BROWSER) || $(NO_BROWSER)

# The explorer's page is tested in a real Chromium. Where it can be installed it is; else the tests of the page are skipped.
HAS_BROWSER = $(BIN)/python -c 'import sys; from benchmarks.browser import chromium; sys.exit(chromium() is None)'
NO_BROWSER = printf '\n*** Chromium is not installed: the page of the explorer was NOT tested. ***\n    On Debian: apt-get install chromium\n\n'
browser: setup
	@$(HAS_BROWSER) || { \
	  echo "Installing Chromium for the tests of the explorer's page"; \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1; \
	} || $(NO_BROWSER)

# The kernel under AddressSanitizer and UndefinedBehaviorSanitizer, on odd sizes; needs g++.
sanitize:
	@mkdir -p build
	g++ -std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fopenmp -Icsrc tests/sanitize.cpp -o build/sanitize_portable
	./build/sanitize_portable
	g++ -std=c++17 -O1 -g -mavx2 -mfma -DVECTOR_BYTES=32 -fsanitize=address,undefined -fno-sanitize-recover=all -fopenmp -Icsrc tests/sanitize.cpp -o build/sanitize_avx2
	./build/sanitize_avx2

bench: setup
	$(BIN)/python -m benchmarks.routing

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(READY)

# The constraints choose the CPU build of torch; without them pip would fetch gigabytes of CUDA packages.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard csrc/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
