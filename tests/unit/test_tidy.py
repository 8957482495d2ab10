"""Reads the sources and holds them to the shape that docs/design.md draws."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import LONGEST_FIRST

SRC = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parents[1]
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70

EVERYBODY = {"trimtab", "trimtab.model", "trimtab.errors", "trimtab.settings"}

# Who may import whom. A package may always import itself and EVERYBODY.
ARROWS: dict[str, set[str]] = {
    "wire": set(),
    "balance": set(),
    "io": {"wire"},
    "client": {"io", "balance", "wire"},
    "names": {"io", "balance", "wire"},
    "broker": {"io", "balance", "wire"},
    "sim": {"broker", "names", "client", "io", "balance", "wire"},
    "testing": {"broker", "names", "client", "io", "wire"},
    "testing_pytest": {"testing"},
    "blocking": {"client"},
    "metrics": {"client", "balance"},
    "spark": {"client", "io", "wire", "broker.sql92_parser", "broker.sql92_nodes"},
    "pipelines": {"spark", "balance", "sim"},
    "dashboard": {
        "client.admin",
        "balance",
        "io",
        "cli.moments",
        "cli.group_rows",
        "cli.group_events",
        "cli.dlq",
        "wire.resources",
    },
    "cli": {"client.admin"},
    "model": set(),
    "errors": set(),
    "settings": {"wire"},
    "__init__": {"client", "balance", "io"},
    "__main__": {"cli"},
}

# What a command starts, it imports when it starts it: `trimtab --help` loads none of it.
WITHIN_FUNCTIONS = {"cli", "dashboard", "__init__"}

PURE = (
    "wire", "balance", "names.routes", "names.kv", "names.handlers", "broker.core", "broker.sql92", "broker.sql92_nodes",
    "broker.sql92_parser", "broker.sql92_values", "broker.placing", "broker.prepared", "broker.acl", "broker.acl_addresses", "names.guard", "broker.delays", "broker.polls", "spark.offsets", "client.admin.diagnosis", "client.admin.diagnosis_facts", "client.admin.diagnosis_members", "client.admin.diagnosis_queues", "client.admin.queue_lines", "client.admin.traces", "cli.moments", "cli.group_events", "cli.message_form",
    "spark.problems", "spark.access", "spark.positions", "spark.option_reading", "spark.options", "spark.limits", "spark.losses", "spark.decisions", "spark.lag",
    "pipelines.trace_records", "pipelines.holders", "pipelines.drawing", "pipelines.balance_page", "pipelines.flight_spans",
)  # fmt: skip
PURE_IMPORTS = {
    "abc", "array", "base64", "binascii", "bisect", "collections", "contextlib", "dataclasses", "datetime", "difflib", "enum",
    "functools", "hashlib", "heapq", "hmac", "html", "ipaddress", "itertools", "json", "math", "operator", "re", "string",
    "struct", "types", "typing", "zlib",
    "lz4", "msgspec", "zlib_ng", "zstandard",
}  # fmt: skip
COLUMNAR_IMPORTS = {"numpy", "pyarrow"}
COLUMNAR = ("wire.columns",)

# The parts of the servers that may use sockets, disks and clocks. All others decide, and at most know what chance looks like.
SHELLS = ("broker.server", "broker.registration", "broker.store", "names.server")
SEAMS = {"trimtab.io.chance"}

CLOCKS_AND_CHANCE = {"time", "random", "secrets", "uuid"}
CLOCK_CALLS = (
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "os.urandom",
    "os.getrandom",
)

# A server must have no way to start a program or to run bytes that came from outside.
NO_PROGRAMS = ("wire", "broker", "names")
PROGRAM_IMPORTS = {
    "subprocess",
    "pickle",
    "marshal",
    "shelve",
    "importlib",
    "ctypes",
    "multiprocessing",
    "pty",
}
PROGRAM_CALLS = {"eval", "exec", "__import__", "system", "popen", "execv", "execve", "spawnv"}


class Import(NamedTuple):
    module: str
    line: int
    at_top: bool


class Source(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    def is_in(self, *packages: str) -> bool:
        return any(self.name == package or self.name.startswith(f"{package}.") for package in packages)


def sources() -> list[Source]:
    found = []
    for path in sorted((SRC / "trimtab").rglob("*.py")):
        parts = path.relative_to(SRC / "trimtab").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found.append(Source(name, path, ast.parse(path.read_text())))
    return found


SOURCES = sources()


def imports(source: Source) -> Iterator[Import]:
    top = set(map(id, source.tree.body))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in top)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.path}:{node.lineno} imports relatively"
            module = node.module or ""
            yield Import(module, node.lineno, id(node) in top)
            for alias in node.names if module == "trimtab" else ():
                if any((SRC / "trimtab" / name).exists() for name in (alias.name, f"{alias.name}.py")):
                    yield Import(f"trimtab.{alias.name}", node.lineno, id(node) in top)


def calls(source: Source) -> Iterator[tuple[str, int]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def test_the_sources_are_found() -> None:
    assert {"wire.frames", "errors", "model"} <= {source.name for source in SOURCES}


def test_packages_import_along_the_arrows() -> None:
    crossed = []
    for source in SOURCES:
        package = source.name.split(".")[0]
        allowed = {f"trimtab.{name}" for name in {package, *ARROWS[package]}}
        for module, line, at_top in imports(source):
            if not module.startswith("trimtab") or module in EVERYBODY:
                continue
            if package in WITHIN_FUNCTIONS and not at_top:
                continue
            if not any(module == name or module.startswith(f"{name}.") for name in allowed):
                crossed.append(f"{source.path.name}:{line} {source.name} -> {module}")
    assert crossed == []


def test_pure_packages_import_nothing_that_does_io() -> None:
    impure = []
    for source in SOURCES:
        if not source.is_in(*PURE):
            continue
        allowed = PURE_IMPORTS | (COLUMNAR_IMPORTS if source.is_in(*COLUMNAR) else set())
        impure += [
            f"{source.name}:{line} imports {module}"
            for module, line, _ in imports(source)
            if module.split(".")[0] not in allowed | {"trimtab"}
        ]
    assert impure == []


def test_servers_reach_the_world_through_their_shells_alone() -> None:
    strays = [
        f"{source.name}:{line} imports {module}"
        for source in SOURCES
        if source.is_in("broker", "names") and not source.is_in(*SHELLS)
        for module, line, _ in imports(source)
        if module.split(".")[:2] == ["trimtab", "io"] and module not in SEAMS
    ]
    assert strays == []


def test_clock_and_chance_live_in_io_alone() -> None:
    strays = []
    for source in SOURCES:
        if source.is_in("io"):
            continue
        strays += [
            f"{source.name}:{line} imports {module}"
            for module, line, _ in imports(source)
            if module.split(".")[0] in CLOCKS_AND_CHANCE
        ]
        strays += [
            f"{source.name}:{line} calls {name}()"
            for name, line in calls(source)
            if name.endswith(CLOCK_CALLS)
        ]
    assert strays == []


def test_servers_cannot_start_programs_or_run_bytes() -> None:
    risks = []
    for source in SOURCES:
        if not source.is_in(*NO_PROGRAMS):
            continue
        risks += [
            f"{source.name}:{line} imports {module}"
            for module, line, _ in imports(source)
            if module.split(".")[0] in PROGRAM_IMPORTS
        ]
        risks += [
            f"{source.name}:{line} calls {name}()"
            for name, line in calls(source)
            if name.rpartition(".")[2] in PROGRAM_CALLS
        ]
    assert risks == []


def test_nothing_catches_everything_in_silence() -> None:
    silent = [
        f"{source.name}:{node.lineno}"
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "BaseException"))
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert silent == []


def test_files_and_functions_stay_small() -> None:
    large = []
    for source in SOURCES:
        lines = len(source.path.read_text().splitlines())
        if lines > FILE_LINES_MAX:
            large.append(f"{source.name} has {lines} lines")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    large.append(f"{source.name}:{node.lineno} {node.name} has {lines} lines")
    assert large == []


def test_the_files_to_begin_with_are_there() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import time\n", "imports time"),
        ("import datetime\nx = datetime.datetime.now()\n", "calls datetime.datetime.now()"),
        ("def f():\n    import random\n", "imports random"),
    ],
)
def test_the_clock_check_can_fail(text: str, finding: str) -> None:
    source = Source("wire.fake", SRC / "fake.py", ast.parse(text))
    found = [f"imports {module}" for module, _, _ in imports(source) if module in CLOCKS_AND_CHANCE]
    found += [f"calls {name}()" for name, _ in calls(source) if name.endswith(CLOCK_CALLS)]
    assert finding in found
