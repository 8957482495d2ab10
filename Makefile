# The two commands: `make run` and `make test`. Each does its own set-up and may be run first.
.PHONY: run test lint interop browser night again bench lock setup clean

run: setup
	@.venv/bin/trimtab demo

test: setup
	@.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not interop and not browser"

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

# Real Apache RocketMQ, fetched by Maven coordinates. Needs Maven and a JDK 17 or later. One worker more than elsewhere:
# these tests wait for brokers, leases and heartbeats as much as they compute.
interop: setup
	@.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m interop

# The dashboard in a real browser. Needs Chromium and its driver.
browser: setup
	@.venv/bin/python -m pytest -m browser

# More examples and seeds than a commit has time for; hours.
night: setup
	@TRIMTAB_EXAMPLES=20000 TRIMTAB_CRASH_SEEDS=100000 TRIMTAB_CRASH_OPERATIONS=5 .venv/bin/python -m pytest -n 2 tests/property tests/crash

# Only the tests that failed last time, one after the other.
again: setup
	@.venv/bin/python -m pytest --last-failed --last-failed-no-failures none

bench: setup
	@.venv/bin/python -m bench

setup:
	@sh tools/setup.sh

# Writes the lock file anew; needs uv.
lock:
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --output-file requirements.lock.txt

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
