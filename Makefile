# Everything here works from a fresh clone with Python 3.11, git and make; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMOS := examples/hello examples/build-test-package examples/calculator

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit system lint bench requirements packages clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the pinned dependencies and the remuda command

$(STAMP): pyproject.toml requirements/dev.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit("Remuda needs Python 3.11 or newer; this is %d.%d. Give another one: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(STAMP)

requirements: ## compile requirements/*.txt (with hashes) from pyproject.toml
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --universal --python-version 3.11 pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --universal --python-version 3.11 pyproject.toml --group dev -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --universal --python-version 3.11 requirements/uv.in -o requirements/uv.txt

protos: ## generate wire/proto/*_pb2.py and *_grpc.py
	cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --plugin=protoc-gen-grpclib_python=../$(BIN)/protoc-gen-grpclib_python --python_out=. --pyi_out=. --grpclib_python_out=. remuda/wire/proto/*.proto
