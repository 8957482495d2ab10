"""S9 and S13, the file: what is read, what is refused, and that no complaint quotes a secret."""

from pathlib import Path

import pytest

from tests.security.accounts import ADMIN, SAMPLE_FILE, SECRETS, acl_in, written
from trimtab.broker.acl import AclError, Permission
from trimtab.broker.acl_file import FILE_BYTES_MAX, AclFile, load_acl, rules_from, rules_to

APACHES_OWN_SAMPLE = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""


def test_apaches_own_sample_is_read(tmp_path: Path) -> None:
    rules = load_acl(written(tmp_path, APACHES_OWN_SAMPLE)).rules
    first, second = rules.accounts.values()
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert first.topic_permission("topicB") is Permission.BOTH
    assert first.topic_permission("topicA") is Permission.NONE
    assert first.topic_permission("another") is Permission.NONE
    assert first.group_permission("another") is Permission.SUB
    assert first.topic_permission("%RETRY%groupA") is Permission.NONE
    assert second.may_do_all
    assert [pattern.text for pattern in rules.white_addresses] == ["10.10.103.*", "192.168.0.*"]


def test_digits_stay_the_text_they_are(tmp_path: Path) -> None:
    text = "accounts:\n- accessKey: 0012345678\n  secretKey: 0x1234567\n  admin: true\n"
    (account,) = load_acl(written(tmp_path, text)).rules.accounts.values()
    assert (account.access_key, account.secret_key) == ("0012345678", "0x1234567")


def test_what_is_written_is_what_is_read_again() -> None:
    rules = rules_from(APACHES_OWN_SAMPLE.encode())
    assert rules_from(rules_to(rules)) == rules


def test_the_operator_is_warned(tmp_path: Path) -> None:
    path = written(tmp_path, APACHES_OWN_SAMPLE)
    path.chmod(0o644)
    warnings = "\n".join(load_acl(path).warnings)
    assert "mode 0644" in warnings
    assert "chmod 600" in warnings
    assert "globalWhiteRemoteAddresses and whiteRemoteAddress of 'rocketmq2'" in warnings
    assert "spare no signature" in warnings
    assert "secretKey of 'RocketMQ' is shorter than 16" in warnings
    assert "12345678" not in warnings


def test_a_good_file_gives_no_warning(tmp_path: Path) -> None:
    assert acl_in(tmp_path).warnings == ()


def test_a_file_without_an_admin_is_warned_of(tmp_path: Path) -> None:
    assert "no account at all" in load_acl(written(tmp_path, "accounts: []")).warnings[0]
    text = "accounts:\n- accessKey: just-a-user\n  secretKey: sixteen-characters\n"
    assert "no admin account" in load_acl(written(tmp_path, text)).warnings[0]


SECRET = "canary-secret-4711"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("accounts: {", "line 1"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: '{SECRET}\n", "mend the YAML"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n secretKey: x", "mend the YAML"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  topicPerm: [x]", "topicPerm"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  admin: maybe", "admin"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  topicPerms: [t]", "accounts.0. .'a-good-key'.*name=PUB"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  topicPerms: [t=SOMETHING]", "SOMETHING.*write PUB"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  groupPerms: [t=SUB, t=PUB]", "twice"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  admin: false\n  admin: true", "'admin' is there twice"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n- accessKey: a-good-key\n  secretKey: {SECRET}", "accounts.1. .*already"),
        (f"accounts:\n- accessKey: key\n  secretKey: {SECRET}", "accessKey has 3 characters"),
        ("accounts:\n- accessKey: a-good-key", "secretKey has 0 characters"),
        (f"accounts:\n- accessKey: a-good-key\n  secretKey: {SECRET}\n  whiteRemoteAddress: 1.2.3", "no address pattern"),
        ("globalWhiteRemoteAddresses: [1.2.3.999]", "globalWhiteRemoteAddresses: no address pattern"),
        (f"a: &x {SECRET}\naccounts: *x", "references are not allowed"),
        (f"secret: !!python/object/apply:os.system [{SECRET}]", "mend the YAML"),
        ("- just\n- a list\n", "see docs/security.md"),
        ("[" * 100_000, "no readable YAML"),
        (f"{SECRET}\0", "no readable YAML"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_name_and_without_its_secrets(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(AclError, match=complaint) as refused:
        load_acl(path)
    chain: list[BaseException] = [refused.value]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    told = "\n".join(map(str, chain))
    assert str(path) in told
    assert SECRET not in told


def test_a_file_that_is_not_there_or_too_big_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AclError, match="cannot be read"):
        load_acl(tmp_path / "nowhere.yml")
    with pytest.raises(AclError, match=f"more than {FILE_BYTES_MAX} bytes"):
        load_acl(written(tmp_path, "#" * (FILE_BYTES_MAX + 1)))


def test_a_change_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    acl.change(acl.rules.without_account("the-reader-key", 5))
    again = load_acl(tmp_path / "plain_acl.yml")
    assert again.rules == acl.rules
    assert again.rules.version.counter == 1
    assert again.warnings == ()
    assert [path.name for path in tmp_path.iterdir()] == ["plain_acl.yml"]


def test_a_file_that_somebody_else_changed_is_not_overwritten(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    path = written(tmp_path, SAMPLE_FILE + "# by hand\n")
    with pytest.raises(AclError, match="changed by somebody else"):
        acl.change(acl.rules.without_account("the-reader-key", 5))
    assert path.read_text().endswith("# by hand\n")
    assert "the-reader-key" in acl.rules.accounts


def test_a_change_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    (tmp_path / "plain_acl.yml.new").mkdir()
    with pytest.raises(AclError, match="nothing was changed"):
        acl.change(acl.rules.without_account("the-reader-key", 5))
    assert "the-reader-key" in acl.rules.accounts
    assert (tmp_path / "plain_acl.yml").read_text() == SAMPLE_FILE


def test_accounts_from_no_file_cannot_be_changed() -> None:
    from tests.security.accounts import sample_acl

    acl = sample_acl()
    with pytest.raises(AclError, match="did not come from a file"):
        acl.change(acl.rules)


def test_a_link_is_followed_when_it_is_read_and_never_replaced(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link.yml"
    link.symlink_to(written(real, SAMPLE_FILE))
    acl = load_acl(link)
    acl.change(acl.rules.without_account("the-reader-key", 5))
    assert link.is_symlink()
    assert "the-reader-key" not in (real / "plain_acl.yml").read_text()


def test_no_secret_shows_in_a_repr(tmp_path: Path) -> None:
    from trimtab.broker.acl_forms import form_of
    from trimtab.wire.headers.admin import UpdateAclConfig

    acl = acl_in(tmp_path)
    shown = [
        repr(acl),
        repr(acl.rules),
        repr(ADMIN),
        repr(acl.admin_credentials()),
        repr(AclFile(tmp_path / "x")),
    ]
    shown += [repr(form_of(account)) for account in acl.rules.accounts.values()]
    shown += [repr(UpdateAclConfig(access_key="a-good-key", secret_key=secret)) for secret in SECRETS]
    assert not any(secret in text for secret in SECRETS for text in shown)
