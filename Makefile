# Every target sets up what it needs. Nothing has to be installed before but Python 3.11 with venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export LANDBRIDGE_HOME ?= $(CURDIR)/.landbridge
export OMP_NUM_THREADS = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1


.PHONY: setup simulators demo test test-fast lint protos protos-baseline clean help proof-transport proof-hotswap \
        proof-openpi proof-learning proof-pickcube proof-cell

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.ready  ## the main environment

# torch first: a bare or open requirement would take a CUDA build of several GB.
$(VENV)/.ready: landbridge/requirements/main.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/pip install -q "$$(grep '^torch==' landbridge/requirements/main.txt)"
	$(BIN)/pip install -q -r landbridge/requirements/main.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e . || $(BIN)/pip install -q --no-deps -e .
	touch $@

simulators: setup  ## the isolated environments of ManiSkill and of the robot cell
	$(BIN)/landbridge env install maniskill
	$(BIN)/landbridge env install robosuite

lint: setup  ## ruff, types, contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy landbridge policy_server sim_server learner robot_bridge
	$(BIN)/buf lint
	$(BIN)/buf breaking --against protos/baseline.binpb
	$(BIN)/python -m landbridge.protoc --check

demo: simulators  ## the whole way, from demonstrations to a robot cell; Ctrl-C ends every process
	$(BIN)/landbridge demo

test: simulators lint  ## everything CI runs
	$(BIN)/pytest tests
	$(LANDBRIDGE_HOME)/envs/maniskill/bin/python -m pytest tests/unit/test_maniskill_*.py
	$(LANDBRIDGE_HOME)/envs/robosuite/bin/python -m pytest tests/unit/test_cell.py

test-fast: setup  ## unit tests only
	$(BIN)/pytest tests/unit

protos: setup  ## regenerate the stubs after a change in protos/
	$(BIN)/python -m landbridge.protoc

# What lint compares with: old clients must go on working. Renew it only when a break is meant and written down.
protos-baseline: setup  ## accept protos/ as the contract that later changes must not break
	$(BIN)/buf build -o protos/baseline.binpb

proof-transport: setup  ## gRPC against in process: identical actions and episodes
	$(BIN)/python -m benchmarks.proof_transport_parity

proof-hotswap: setup  ## hot swaps under load: nothing fails, nothing is mixed
	$(BIN)/python -m benchmarks.proof_hotswap

proof-openpi: setup  ## a streamed policy call beside openpi's client
	$(BIN)/pip install -q --no-deps -r benchmarks/requirements.txt
	$(BIN)/python -m benchmarks.policy_stream_vs_openpi

proof-learning: simulators  ## 20 minutes of training, three seeds (an hour and a quarter)
	$(BIN)/python -m benchmarks.proof_learning demo

proof-pickcube: simulators  ## PickCube by a longer run (an hour and a half)
	$(BIN)/python -m benchmarks.proof_learning pickcube

proof-cell: simulators  ## the trained and the imitated policy in the cell, 50 trials each; after proof-pickcube
	$(BIN)/python -m benchmarks.proof_cell

clean:  ## remove environments and run data
	rm -rf $(VENV) $(LANDBRIDGE_HOME) runs
