"""What `import trimtab` gives, and what it does not load for that."""

import subprocess
import sys

import pytest

import trimtab


@pytest.mark.parametrize("name", trimtab.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(trimtab, name) is not None
    assert name in dir(trimtab)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumerr'"):
        _ = trimtab.Consumerr


def test_neither_clients_nor_asyncio_are_loaded_before_they_are_used() -> None:
    program = "import sys, trimtab, trimtab.cli.main; print({'asyncio', 'msgspec', 'trimtab.client'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
