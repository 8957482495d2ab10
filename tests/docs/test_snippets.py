"""The snippets that cannot run by themselves (marked `py`, not `python`): each gets the cluster or the names that it needs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from trimtab import Message
from trimtab.blocking import Producer
from trimtab.testing import BlockingCluster, Cluster

DOCS = Path(__file__).parents[2] / "docs"
TESTED = {"tutorial.md", "security.md", "test-with-a-cluster.md", "use-spark.md"}


def snippets(page: Path) -> list[str]:
    return re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def the_snippet(name: str) -> str:
    (snippet,) = snippets(DOCS / name)
    return snippet


def fill(cluster: BlockingCluster, count: int) -> None:
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send_many([Message("orders", b"%d" % number, tag="eu") for number in range(count)])


def test_every_such_snippet_is_tested_here() -> None:
    assert {page.name for page in DOCS.rglob("*.md") if snippets(page)} <= TESTED


def test_the_tutorial_s_consumer_prints_messages_and_ends_at_ctrl_c() -> None:
    with Cluster() as cluster:
        fill(cluster, 20)
        program = [sys.executable, "-u", "-c", the_snippet("tutorial.md")]
        environment = {**os.environ, "NAMESRV_ADDR": cluster.nameserver}
        with subprocess.Popen(
            program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as consumer:
            assert consumer.stdout is not None
            seen = {consumer.stdout.readline().split()[-1] for _ in range(20)}
            consumer.send_signal(signal.SIGINT)
            _, errors = consumer.communicate()
    assert seen == {str(number) for number in range(20)}
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_a_client_with_account_and_tls_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    program = f"import trimtab\nsecret = 'at-least-sixteen-characters'\n{the_snippet('how-to/security.md')}"
    exec(compile(program, "security.md", "exec"), {})


def test_the_pytest_fixture_is_used_as_shown(tmp_path: Path) -> None:
    before = "import pytest\n\ndef run_my_service(nameserver):\n    assert nameserver.startswith('127.0.0.1:')\n\n\n"
    (tmp_path / "test_shown.py").write_text(before + the_snippet("how-to/test-with-a-cluster.md"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "1 passed" in done.stdout, done.stdout


def test_spark_reads_and_streams_as_shown(tmp_path: Path) -> None:
    with Cluster() as cluster:
        fill(cluster, 50)
        shown = the_snippet("how-to/use-spark.md")
        for written, here in (("127.0.0.1:9876", cluster.nameserver), ("/data/", f"{tmp_path}/")):
            assert written in shown
            shown = shown.replace(written, here)
        after = f"query.awaitTermination()\nassert spark.read.parquet('{tmp_path}/orders').count() == 50\nspark.stop()\n"
        environment = {**os.environ, "NAMESRV_ADDR": cluster.nameserver}
        done = subprocess.run(
            [sys.executable, "-c", f"{shown}\n{after}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
