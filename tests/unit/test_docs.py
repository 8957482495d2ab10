"""What the documents show, works."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(match.group(1), id=f"{path.name}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    for number, match in enumerate(re.finditer(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make run" in text
    assert "make test" in text


@pytest.mark.parametrize("verb", ["demo", "doctor", "--help", "--version"])
def test_the_command_line_answers(verb: str) -> None:
    program = "from trimtab.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, verb], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_point_names_a_test_that_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "points.md").read_text())
    assert len(named) > 5
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_the_compatibility_page_is_as_the_handlers_are() -> None:
    source = (ROOT / "tools" / "compatibility.py").read_text()
    program = f"{source}\nif Path('docs/compatibility.md').read_text() != page(): raise SystemExit('run tools/compatibility.py')"
    program = program.replace('if __name__ == "__main__":', 'if __name__ == "never":')
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_guarantee_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "guarantees.md").read_text())
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
