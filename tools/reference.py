"""Writes docs/reference.md, the public names with their signatures and words, from the code: `python tools/reference.py`."""

import ast
import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import trimtab
from trimtab import errors, testing

HEAD = """# Reference

Every public name, with its signature and its own words. This page is written by `tools/reference.py` from the code; a test fails when it is old. `trimtab.blocking` has the
producer, both consumers and the admin without `await`.
"""


def page() -> str:
    """The whole page."""
    names = [
        name for name in trimtab.__all__ if inspect.isclass(getattr(trimtab, name)) and name != "TrimtabError"
    ]
    parts = [HEAD, *(_class(f"trimtab.{name}", getattr(trimtab, name)) for name in names)]
    parts += [
        _class(f"trimtab.testing.{name}", getattr(testing, name)) for name in ("Cluster", "AsyncCluster")
    ]
    return "\n".join([*parts, _errors()])


def _class(title: str, found: type) -> str:
    lines = [f"## {title}\n", _words(found), ""]
    fields = _field_rows(found)
    if fields:
        lines += ["| field | meaning |", "|---|---|", *fields, ""]
    else:
        lines += [f"`{title.rpartition('.')[2]}{_signature(found)}`", ""]
        if init := inspect.getdoc(vars(found).get("__init__")):
            lines += ["" if init.startswith("Initialize self") else _flat(init), ""]
    methods = [
        f"| `{name}{_signature(member)}` | {_flat(inspect.getdoc(member) or '')} |"
        for name, member in _members(found)
    ]
    if methods:
        lines += ["| method | what it does |", "|---|---|", *methods, ""]
    return "\n".join(lines)


def _words(found: type) -> str:
    text = inspect.getdoc(found) or ""
    if text.startswith("See the module's own words"):
        module = inspect.getdoc(inspect.getmodule(found)) or ""
        return re.sub(r"(?m)^    .*\n?", "", module).strip() + "\n"
    return text + "\n"


def _members(found: type) -> list[tuple[str, Any]]:
    names = [name for base in reversed(found.__mro__[:-1]) for name in vars(base) if not name.startswith("_")]
    members = [(name, inspect.getattr_static(found, name)) for name in dict.fromkeys(names)]
    return [(name, member) for name, member in members if inspect.isfunction(member)]


def _signature(found: Any) -> str:
    """As it is written in the source, without `self` and the seams for tests."""
    function = found.__init__ if inspect.isclass(found) else found
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    tree = _Unquoted().visit(tree)
    args = tree.args
    args.args = [one for one in args.args if one.arg != "self"]
    kept = [
        (one, default)
        for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        if one.arg not in ("clock", "chance")
    ]
    args.kwonlyargs, args.kw_defaults = [one for one, _ in kept], [default for _, default in kept]
    gives = "" if tree.returns is None or inspect.isclass(found) else f" -> {ast.unparse(tree.returns)}"
    return f"({ast.unparse(args)}){gives}".replace("|", "\\|").replace(" -> None", "")


class _Unquoted(ast.NodeTransformer):
    """Annotations that are written as strings, without their quotes."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = self._plain(node.annotation)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.returns = self._plain(node.returns)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = self._plain(node.returns)
        self.generic_visit(node)
        return node

    @staticmethod
    def _plain(annotation: ast.expr | None) -> ast.expr | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return ast.parse(annotation.value, mode="eval").body
        return annotation


def _field_rows(found: type) -> list[str]:
    names = getattr(found, "__struct_fields__", None)
    if names is None and dataclasses.is_dataclass(found):
        names = [field.name for field in dataclasses.fields(found)]
    if names is None:
        return []
    tree = ast.parse(inspect.getsource(found)).body[0]
    assert isinstance(tree, ast.ClassDef)
    rows = []
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in names:
            after = tree.body[number + 1] if number + 1 < len(tree.body) else None
            has_words = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            words = str(after.value.value) if has_words else ""  # type: ignore[union-attr]
            rows.append(f"| `{ast.unparse(node).replace('|', chr(92) + '|')}` | {_flat(words)} |")
    return rows


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _errors() -> str:
    found = [
        one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, trimtab.TrimtabError)
    ]
    rows = [f"| `{one.__name__}` | {_flat(inspect.getdoc(one) or '')} |" for one in found]
    return "\n".join(
        [
            "## trimtab.errors\n",
            "Every error answers `.retriable` and `.indeterminate`.\n",
            "| error | meaning |",
            "|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    Path("docs/reference.md").write_text(page())
