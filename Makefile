# Everything here works from a fresh clone with Python 3.11, git and make; each target sets up what it needs.
# The system's Python where it can make a virtual environment: Debian builds it with optimizations (`make test` takes
# a seventh less processor time), and jobs of other users can read it, unlike a Python inside somebody's home.
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
# Some machines tell Python not to keep compiled modules. Without them every start of a process takes twice as long.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
NEWEST := .venv-newest
NEWEST_STAMP := $(NEWEST)/.installed
FREEZER := .venv-freeze
FREEZER_STAMP := $(FREEZER)/.installed
FREEZE_PYTHON ?= /usr/bin/python3
FROZEN := build/remuda-agent-linux-$(shell uname -m)
# More than processors: tests wait for something half of the time. The long ones keep the processors busier.
WORKERS ?= 6
LONG_WORKERS ?= 3
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
BUILD_SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
# Scripts of jobs in tests call python3: that of the virtual environment, not a shim that starts a shell first.
PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest
# What is built for users. The time of the last commit is the time of all files in it, so that builds are the same.
DIST := dist
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/remuda/__init__.py)
SUITES := bookworm:3.11 noble:3.12 trixie:3.13
IMAGE = $(DIST)/remuda-$(VERSION)-image-amd64.tar
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1767225600)
UV_COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --universal --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-newest unit system interop lint docs format bench frozen packages packages-wheel packages-deb \
	packages-oci release protos requirements clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the pinned dependencies and the remuda command

$(STAMP): pyproject.toml requirements/dev.txt requirements/uv.txt $(PLUGINS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Remuda needs Python 3.11 or newer; this is %d.%d. Name another one: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "1/4 creating $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "2/4 installing uv, which installs the rest"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@echo "3/4 installing $$(grep -c '^[a-z]' requirements/dev.txt) pinned packages: seconds if uv has them, otherwise about 80 MB to fetch"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements/dev.txt
	@echo "4/4 installing remuda and the plugins of this clone"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . $(PLUGINS:%=-e ./%)
	@touch $(STAMP)
	@echo "done: $(BIN)/remuda"

# Programs of others that tests work with; what they need would not go together with what we need.
$(PEERS_STAMP): requirements/peers.txt $(STAMP)
	$(PYTHON) -m venv --clear $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python --require-hashes -r requirements/peers.txt
	@touch $(PEERS_STAMP)

# With the system's own Python: what is built for a path of its own, as pyenv does, cannot be frozen.
$(FREEZER_STAMP): requirements/freeze.txt $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(FREEZE_PYTHON) $(FREEZER)
	$(BIN)/uv pip install --quiet --python $(FREEZER)/bin/python --require-hashes -r requirements/freeze.txt
	@touch $(FREEZER_STAMP)

$(FROZEN): $(FREEZER_STAMP) tools/freeze $(shell find src/remuda/steps src/remuda/stdsteps src/remuda/lib src/remuda/wire -name '*.py' -o -name '*.yml')
	tools/freeze $(FROZEN)

demo: setup ## run the example pipelines end to end on the embedded defaults
	@for example in hello build-test-package calculator; do \
		echo; echo "== remuda run examples/$$example"; $(BIN)/remuda run --follow examples/$$example || exit 1; \
	done
	@echo; echo "== remuda run examples/failing (this one is meant to fail and to show why)"
	@$(BIN)/remuda run examples/failing; test $$? -eq 1
	@echo; echo "All examples did what they should. Next: $(BIN)/remuda run in a repository of yours, or $(BIN)/remuda up."

test: setup packages $(PEERS_STAMP) ## lint and unit tests, then the contract and integration tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint unit
	$(PYTEST) tests/contract tests/integration tests/interop/test_pipeline_corpus.py plugins -m "not long" -q -n $(WORKERS) --dist worksteal

# Empty if this machine has none that is newer than PYTHON.
NEWEST_PYTHON ?= $(shell tools/newest_python "$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')")

test-newest: setup packages ## the unit and contract tests with the newest Python of this machine; NEWEST_PYTHON names another
	@newest="$(NEWEST_PYTHON)"; if [ -z "$$newest" ]; then \
		echo "skipped: this machine has no Python that is newer than $(PYTHON); NEWEST_PYTHON=... names one"; \
	else $(MAKE) --no-print-directory NEWEST_PYTHON="$$newest" $(NEWEST_STAMP) && \
		"$$newest" -V && PATH="$(CURDIR)/$(NEWEST)/bin:$$PATH" $(NEWEST)/bin/pytest tests/unit tests/contract -q -n $(LONG_WORKERS) --dist worksteal; \
	fi

$(NEWEST_STAMP): $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(NEWEST_PYTHON) $(NEWEST)
	$(BIN)/uv pip install --quiet --python $(NEWEST)/bin/python --require-hashes --compile-bytecode -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(NEWEST)/bin/python --no-deps --no-build-isolation -e . $(PLUGINS:%=-e ./%)
	@touch $(NEWEST_STAMP)

unit: setup ## the unit tests
	$(PYTEST) tests/unit -q -n 2 --dist worksteal

frozen: $(FROZEN) ## the agent as one executable for machines without Python: build/remuda-agent-linux-*

system: setup packages $(PEERS_STAMP) frozen ## long runs: whole systems with faults, and single tests that take long
	$(PYTEST) tests/system tests/integration plugins -m long -q -n $(LONG_WORKERS) --dist worksteal

interop: setup packages ## real peers: gitlab-runner against a cell, the step runner's client against the agent, API clients ...; needs Go and Node
	cd tests/interop/gitlab-runner && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/gitlab-runner gitlab.com/gitlab-org/gitlab-runner
	cd tests/interop/step-client && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/step-client .
	cd tests/interop/environment-plugin && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/environment-plugin .
	cd tests/interop/fleeting && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/fleeting-host ./host
	cd tests/interop/fleeting && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/fleeting-taskscaler ./taskscaler
	cd tests/interop/fleeting && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/fleeting-plugin-ports ./plugin
	cd tests/interop/fleeting && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/fleeting-plugin-dummy gitlab.com/gitlab-org/fleeting/fleeting/plugin/fleeting-plugin-dummy/cmd/fleeting-plugin-dummy
	cd tests/interop/fleeting-artifact && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/fleeting-artifact gitlab.com/gitlab-org/fleeting/fleeting-artifact/cmd/fleeting-artifact
	cd tests/interop/docker-machine && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/docker-machine github.com/docker/machine/cmd/docker-machine
	cd tests/interop/step-runner && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/step-runner gitlab.com/gitlab-org/step-runner
	cd tests/interop/versitygw && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/versitygw github.com/versity/versitygw/cmd/versitygw
	cd tests/interop/git-lfs && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/git-lfs github.com/git-lfs/git-lfs/v3
	cd tests/interop/client-go && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/client-go .
	cd tests/interop/opentofu && CGO_ENABLED=0 go build -mod=mod -p 2 -ldflags '-s -w' -o $(CURDIR)/build/interop/tofu github.com/opentofu/opentofu/cmd/tofu
	cd tests/interop/terraform-provider && CGO_ENABLED=0 go build -mod=mod -p 2 -o $(CURDIR)/build/interop/terraform-provider-gitlab github.com/terraform-providers/terraform-provider-gitlab
	tests/interop/glab/fetch $(CURDIR)/build/interop/glab
	mkdir -p build/interop/gitbeaker && cp tests/interop/gitbeaker/* build/interop/gitbeaker/
	cd build/interop/gitbeaker && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --silent
	@if command -v cargo >/dev/null; then \
		cargo build --quiet --release --manifest-path tests/interop/runner-mock/Cargo.toml --target-dir build/interop/runner-mock-target && \
		cp build/interop/runner-mock-target/release/runner-mock build/interop/runner-mock; \
	else echo "there is no cargo: gitlab-runner-mock is left out"; fi
	$(PYTEST) tests/interop tests/contract/cell/test_blobs.py -q -n $(LONG_WORKERS) --dist worksteal

lint: setup ## ruff, mypy strict, import contracts, names and docstrings, the documentation
	$(BIN)/ruff check src tests plugins tools
	$(BIN)/ruff format --check src tests plugins tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_source.py
	$(BIN)/python tools/check_docs.py
	$(BIN)/python tools/generate_reference.py --check
	$(BUILD_SITE)

docs: setup ## generate the reference pages and build the site into build/site
	$(BIN)/python tools/generate_reference.py
	$(BUILD_SITE)

format: setup ## let ruff format the code
	$(BIN)/ruff check --fix src tests plugins tools
	$(BIN)/ruff format src tests plugins tools

bench: setup ## figures as ratios to a reference in the same run; PARTS="lifecycles latency" for some
	$(BIN)/python -m tests.bench $(PARTS)

packages: ## install (as root) or name the Debian packages that tests use
	@tools/packages

packages-wheel: setup ## wheels of remuda, the plugins and the documentation in dist/, for pipx, uv and pip
	@mkdir -p $(DIST) && rm -f $(DIST)/*.whl
	@$(BUILD_SITE) && cp $(VENV)/lib/python3*/site-packages/mkdocs_material-*.dist-info/licenses/LICENSE build/site/assets/
	@for folder in . $(PLUGINS) packaging/docs; do \
		$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir $(DIST) $$folder || exit 1; done
	@rm -f $(DIST)/.gitignore; ls $(DIST)/*.whl

packages-deb: packages-wheel ## Debian packages for Debian 12 and 13 and Ubuntu 24.04 in dist/; needs binutils and dpkg-deb
	@rm -f $(DIST)/*.deb
	@for suite in $(SUITES); do $(BIN)/python tools/release/deb.py $${suite%:*} $${suite#*:} $(DIST) || exit 1; done

packages-oci: packages-deb ## a container image as an OCI archive in dist/; needs root and debootstrap, no engine
	@tools/release/image $(DIST)/remuda_$(VERSION)-1+bookworm_amd64.deb $(VERSION) $(IMAGE) && ls $(IMAGE)

release: packages-wheel packages-deb packages-oci ## all of them, with a bill of materials and SHA-256 checksums, in dist/
	$(BIN)/python tools/release/sbom.py $(DIST) $(VERSION) $(DIST)/remuda-$(VERSION).cdx.json
	@cd $(DIST) && sha256sum *.whl *.deb *.tar *.json > SHA256SUMS && cat SHA256SUMS

protos: setup ## generate wire/proto/*_pb2.py and *_grpc.py
	cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --plugin=protoc-gen-grpclib_python=../$(BIN)/protoc-gen-grpclib_python --python_out=. --pyi_out=. --grpclib_python_out=. remuda/wire/proto/*.proto

requirements: setup ## compile requirements/*.txt (with hashes) from pyproject.toml
	$(UV_COMPILE) pyproject.toml -o requirements/run.txt
	$(UV_COMPILE) pyproject.toml --group dev -o requirements/dev.txt
	$(UV_COMPILE) requirements/uv.in -o requirements/uv.txt
	$(UV_COMPILE) requirements/peers.in -o requirements/peers.txt
	$(UV_COMPILE) requirements/freeze.in -o requirements/freeze.txt

clean: ## remove what make setup and the tools left here
	rm -rf $(VENV) $(NEWEST) $(PEERS) $(FREEZER) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
