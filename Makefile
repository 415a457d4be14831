# make demo   build a datastore, serve it, decode with it, print the comparison with plain decoding
# make test   all tests        make lint    ruff        make types    mypy, strict
# Everything sets itself up in .venv from constraints.txt; PYTHON=python3.12 takes another interpreter.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
NATIVE := $(shell find csrc -name '*.cc' -o -name '*.h' 2>/dev/null) CMakeLists.txt setup.py

.PHONY: demo test lint types clean
demo: .venv/ready
	.venv/bin/python -m demo $(DEMO_ARGS)

test: .venv/ready
	.venv/bin/python -m pytest $(TEST_ARGS)

lint: .venv/ready
	.venv/bin/ruff check . && .venv/bin/ruff format --check .

types: .venv/ready
	.venv/bin/mypy

.venv/ready: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) --editable '.[dev,bench,parquet,demo]'
	touch .venv/ready

clean:
	rm -rf build dist .venv/ready *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis datastore/_native*.so

# The C++ core's own tests, plain and under the address, undefined-behaviour and thread sanitizers.
.PHONY: sanitize
sanitize:
	for kind in address,undefined thread; do \
	  cmake -S . -B build/$$kind -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSUFFOLK_PYTHON=OFF -DSUFFOLK_DEVELOPER=ON -DSUFFOLK_SANITIZE=$$kind && \
	  cmake --build build/$$kind && build/$$kind/csrc/tests/core_test || exit 1; \
	done

# Commands killed at KILLS random times: the old or the new generation stands, and the work goes on.
.PHONY: kills
KILLS ?= 300
kills: .venv/ready
	.venv/bin/python -m tests.crash.kill_many --kills $(KILLS)
