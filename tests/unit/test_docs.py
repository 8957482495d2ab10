"""What the documents show, works: every Python snippet runs, every command exists, every test that is named is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from trimtab.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """Name and text of every block of a language in the documents."""
    return [
        (f"{path.stem}-{number}", match.group(1))
        for path in PAGES
        for number, match in enumerate(
            re.finditer(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
        )
    ]


def commands() -> dict[str, list[str]]:
    """Every `trimtab …` in a shell block, by its own text."""
    found = {}
    for _, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"[|&;](?![^\"']*[\"'](?:\s|$))", line.partition(" #")[0]):
                words = shlex.split(part)
                if words and words[0].endswith("trimtab"):
                    found[" ".join(words)] = words[1:]
    return found


def unknown_in(words: list[str]) -> list[str]:
    """Verbs and options that do not exist."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return [name]
        command = found
    context = click.Context(command)
    known = {
        option
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    return [
        word
        for word in rest
        if re.match("--?[a-z]", word) and word.partition("=")[0] not in {*known, "--version", "-"}
    ]


@pytest.mark.parametrize("snippet", [pytest.param(text, id=name) for name, text in blocks("python")])
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"NAMESRV_ADDR": "embedded:", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [pytest.param(words, id=text) for text, words in commands().items()])
def test_a_command_exists(words: list[str]) -> None:
    assert unknown_in(words) == []


@pytest.mark.parametrize(
    "line",
    sorted({line for _, text in blocks("sh") for line in text.splitlines() if "-m pytest tests/" in line}),
)
def test_a_command_that_runs_tests_finds_some(line: str) -> None:
    words = shlex.split(line)
    paths = [ROOT / word for word in words if word.startswith("tests/")]
    sources = " ".join(path.read_text() + path.name for path in paths)
    wanted = words[words.index("-k") + 1].split(" or ") if "-k" in words else []
    assert [word for word in wanted if f"test_{word}" not in sources] == []


def test_the_check_of_commands_can_fail() -> None:
    assert unknown_in(["topic", "creat", "orders"]) == ["creat"]
    assert unknown_in(["topic", "create", "orders", "--queus", "4"]) == ["--queus"]


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make run" in text
    assert "make test" in text


@pytest.mark.parametrize("verb", ["doctor", "--help", "--version"])
def test_the_command_line_answers(verb: str) -> None:
    program = "from trimtab.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, verb], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def named_tests(page: str) -> list[tuple[str, str]]:
    """Files of tests that a page names, and the test in it, if one is named."""
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / page).read_text())


@pytest.mark.parametrize("page", ["points.md", "guarantees.md", "security.md"])
def test_every_test_that_is_named_exists(page: str) -> None:
    named = named_tests(page)
    assert named
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


def test_every_point_of_load_balancing_has_a_row() -> None:
    rows = re.findall(
        r"^\| ([A-E]\d*(?:, [A-E]\d+)*) \|", (ROOT / "docs" / "points.md").read_text(), re.MULTILINE
    )
    found = {point for row in rows for point in row.split(", ")}
    wanted = [("A", 6), ("B", 6), ("C", 12), ("D", 6)]
    assert found == {f"{part}{number}" for part, last in wanted for number in range(1, last + 1)} | {"E"}


@pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("tool", "page"), [("compatibility.py", "compatibility.md"), ("reference.py", "reference.md")]
)
def test_a_page_that_is_generated_is_current(tool: str, page: str) -> None:
    source = (
        (ROOT / "tools" / tool).read_text().replace('if __name__ == "__main__":', 'if __name__ == "never":')
    )
    program = f"{source}\nif Path('docs/{page}').read_text() != page(): raise SystemExit('run tools/{tool}')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
