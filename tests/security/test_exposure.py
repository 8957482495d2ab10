"""S11: who may listen where without accounts. The command line has the matrix of starts."""

import pytest

from trimtab.broker.exposure import OpenExposureError, refuse_open_exposure

PRIVATE = ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST", "localhost."]
PUBLIC = ["0.0.0.0", "::", "", "*", "10.1.2.3", "192.168.0.1", "example.org", "localhost.evil.example", "127.0.0.1.nip.io",
          "0", "127.1", "2130706433", "::ffff:10.0.0.1"]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_this_machine_alone_needs_no_accounts(host: str) -> None:
    refuse_open_exposure(host, has_acl=False, insecure_open=False)


@pytest.mark.parametrize("host", PUBLIC)
def test_anything_else_needs_accounts_or_an_explicit_word(host: str) -> None:
    refuse_open_exposure(host, has_acl=True, insecure_open=False)
    refuse_open_exposure(host, has_acl=False, insecure_open=True)
    with pytest.raises(OpenExposureError, match=r"ACL file.*127\.0\.0\.1.*--insecure-open"):
        refuse_open_exposure(host, has_acl=False, insecure_open=False)
