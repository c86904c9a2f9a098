# make demo     generate a sphere and a bundle adjustment scene, optimize both, draw them into demo/
# make test     formatting, lint, types, C++ warnings as errors; the wheel, tried in an empty environment; the tests
#               against the installed wheel, with the libraries they compare with
# make nightly  the tests that take long, then make coverage and make sanitize
# make coverage lines and branches that the quick tests execute; fails where a line of the solvers is left
# make sanitize tests of the native code, watched by sanitizers for addresses, undefined behaviour and threads
#               (both: of TESTS="tests/linear ..." alone)
# make docs     the documentation into site/: notebooks run, links checked
# make wheels   wheels for PYTHONS="python3.10 python3.11 ..." into dist/
#
# They install what they need: Debian packages (with sudo unless root), a virtual environment in .venv, the
# package itself. Running them again does only what changed.

SYSTEM_PACKAGES = python3-venv python3-dev g++ cmake ninja-build libeigen3-dev libmetis-dev
GPU_PACKAGES = libvulkan-dev glslang-dev glslang-tools spirv-tools
# a software driver, the layer that finds wrong use of Vulkan, and a browser that opens the pages of graphopt view
TEST_PACKAGES = mesa-vulkan-drivers vulkan-validationlayers chromium
# to build Kompute's Python package, which is optional for users and tested here
KOMPUTE_PACKAGES = libfmt-dev

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml CMakeLists.txt README.md $(shell find graphopt slam_bridge datasets native shaders cmake -type f \
  ! -name '*.so' ! -name '*.pyc' 2>/dev/null)

.PHONY: demo test nightly coverage sanitize docs gallery wheels check format bench dev clean

demo: $(VENV)/.installed
	$(BIN)/python tools/demo.py demo

# As many processes as there are cores, which take over tests from each other at the end; in a folder without the source tree,
# so that processes which tests start find the installed package too. A test that hangs ends, with the stacks of its threads.
# Matplotlib's list of fonts is written once before, in a folder of this build: processes that write it at the same
# time report each other's lock on stderr, and one that was killed leaves its lock in the user's folder for ever.
export MPLCONFIGDIR := $(CURDIR)/build/matplotlib
PYTEST = mkdir -p build/run && rm -f build/matplotlib/*.matplotlib-lock && \
  $(BIN)/python -c "import matplotlib.font_manager" && cd build/run && GRAPHOPT_TEST_INSTALLED=1 $(CURDIR)/$(BIN)/pytest \
  -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) -q -n auto --dist worksteal --durations 30 --timeout-method thread

# The checks use one core: they run beside the tests, and their output follows.
test: tested
	@tools/check.sh $(BIN) >build/check.log 2>&1 & check=$$!; status=0; \
	  ($(PYTEST) --timeout 300 -m "not slow and not nightly" $(CURDIR)/tests) || status=$$?; \
	  wait $$check || status=$$?; cat build/check.log; exit $$status

# The wheel, and beside its compilers what the tests use.
.PHONY: tested
tested:
	+$(MAKE) --no-print-directory -j2 $(VENV)/.installed-strict $(VENV)/.kompute

nightly: tested
	$(PYTEST) --timeout 3600 -m "slow or nightly" $(CURDIR)/tests
	+$(MAKE) --no-print-directory coverage sanitize

coverage: tested
	$(BIN)/python tools/executed_lines.py $(TESTS)

sanitize: tested
	$(BIN)/python tools/watch_tests.py address $(TESTS)
	$(BIN)/python tools/watch_tests.py thread $(TESTS)

docs: $(VENV)/.installed-strict gallery
	$(BIN)/python tools/build_docs.py site

# Pictures of the examples for docs/gallery.md.
gallery: $(VENV)/.installed-strict
	$(BIN)/python tools/gallery.py docs/gallery

PYTHONS ?= $(PYTHON)
wheels: $(VENV)/.test-system
	tools/build_wheels.sh $(PYTHONS)

check: $(VENV)/.installed-strict
	tools/check.sh $(BIN)

format: $(VENV)/.packages
	tools/format.sh $(BIN)

# Run from a folder without graphopt's source tree, so that the installed package is measured.
bench: $(VENV)/.bench
	mkdir -p build/bench && cd build/bench && ../../$(BIN)/python ../../benchmarks --output record.json

dev:
	tools/dev_build.sh

clean:
	rm -rf $(VENV) build demo dist site

$(VENV)/.system: Makefile tools/install_system_packages.sh
	tools/install_system_packages.sh $(SYSTEM_PACKAGES) $(GPU_PACKAGES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.test-system: $(VENV)/.system
	tools/install_system_packages.sh $(TEST_PACKAGES) $(KOMPUTE_PACKAGES)
	touch $@

# A demo needs the code for this processor only, tests need all variants.
# The build requirements live in the environment, so that rebuilding after a change is incremental.
$(VENV)/.build-requirements: $(VENV)/.system
	$(PIP) install "scikit-build-core>=0.11" "pybind11>=2.12" "numpy>=1.24" "lazy_loader>=0.4"
	touch $@

$(VENV)/.installed: $(VENV)/.build-requirements $(SOURCES)
	$(PIP) install --no-build-isolation \
	  --config-settings=cmake.define.GRAPHOPT_CPU_ISAS=$$(tools/native_isa.sh) ".[plot]"
	touch $@

# The wheel that users get is the one that is tested; dist/ holds the source distribution beside it.
# TESTED: what cannot be read from the wheel, so that pip takes it also where the version is the same.
$(VENV)/.wheel: $(VENV)/.test-system $(SOURCES) $(wildcard tools/*wheel*)
	GRAPHOPT_CMAKE_ARGS=--config-settings=cmake.define.GRAPHOPT_WERROR=ON tools/build_wheels.sh $(BIN)/python
	touch $@

TESTED = $$(ls dist/graphopt-*-$$($(BIN)/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')-*.whl)

$(VENV)/.installed-strict: $(VENV)/.packages $(VENV)/.wheel
	$(PIP) install --force-reinstall --no-deps $(TESTED)
	touch $(VENV)/.installed $@

# What the package and its extras need.
$(VENV)/.packages: $(VENV)/.build-requirements tools/requirements.py pyproject.toml
	$(BIN)/python tools/requirements.py test oracle docs >$(VENV)/requirements.txt
	$(PIP) install -r $(VENV)/requirements.txt
	touch $@

$(VENV)/.kompute: $(VENV)/.packages $(VENV)/.test-system tools/install_kompute.sh
	tools/install_kompute.sh $(VENV)
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) install --no-build-isolation \
	  --config-settings=cmake.define.GRAPHOPT_CPU_ISAS=$$(tools/native_isa.sh) ".[bench]"
	touch $@
