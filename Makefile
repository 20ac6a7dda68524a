# The few commands a person types; CMake does the work.  SPDX-License-Identifier: Apache-2.0
.PHONY: help deps build demo check check-all check-torch asan tsan cov format fuzz bench-peers clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

deps: ## find what the build needs and install it (Debian, Ubuntu)
	@scripts/deps.sh

build: deps ## the release build: build/release/autosp
	@scripts/build.sh release

demo: deps ## train a small Llama on 2 ranks over real text, then verify it; DATA="files..." for other text
	@scripts/build.sh release autosp
	@scripts/demo.sh $(DATA)

check: ## build everything and run every test
	@scripts/deps.sh --dev
	@scripts/build.sh dev
	@ctest --preset dev --output-junit check.xml

check-all: check ## the same, then the whole grid of the PyTorch front end and its installation (hours)
	@python3 -B tests/python/suite.py build/dev/libautosp.so build/venv --grid
	@python3 -B tests/python/wheel.py build/venv

check-torch: ## the PyTorch front end's tests, in build/venv, which the first run makes
	@scripts/deps.sh --dev
	@scripts/build.sh dev autosp_shared autosp
	@python3 -B tests/python/suite.py build/dev/libautosp.so

asan: ## all tests under the address and undefined-behaviour sanitizers
	@scripts/deps.sh --dev
	@scripts/build.sh asan
	@ctest --preset asan

tsan: ## all tests under the thread sanitizer
	@scripts/deps.sh --dev
	@scripts/build.sh tsan
	@ctest --preset tsan

cov: ## lines run by the tests, a row a folder
	@scripts/deps.sh --dev
	@scripts/coverage.sh

format: ## rewrite the sources in the project's format
	@scripts/format.sh --write

fuzz: ## fuzz every parser for 60 s (SECONDS=n)
	@scripts/deps.sh --dev
	@scripts/fuzz.sh $(or $(SECONDS),60)

bench-peers: build ## the same step in PyTorch and here, side by side
	@bench/peers/run.sh

clean: ## remove everything built
	@rm -rf build
