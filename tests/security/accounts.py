"""The cast of these tests. ORDERS and BILLING are what reader and writer have permissions for."""

from pathlib import Path

from trimtab.broker.acl import Account, Acl, Permission, Rules
from trimtab.broker.acl_file import load_acl
from trimtab.wire.signing import Credentials

ORDERS = "orders"
BILLING = "billing"

ADMIN = Credentials("the-admin-key", "the-admin-secret-4711")
READER = Credentials("the-reader-key", "the-reader-secret-4711")
WRITER = Credentials("the-writer-key", "the-writer-secret-4711")
STRANGER = Credentials("the-stranger-key", "the-stranger-secret-4711")
FORGER = Credentials("the-admin-key", "not-the-secret-of-it")
SECRETS = tuple(one.secret_key for one in (ADMIN, READER, WRITER, STRANGER))


def sample_acl() -> Acl:
    """Everybody, in memory."""
    everybody = (
        Account(access_key=ADMIN.access_key, secret_key=ADMIN.secret_key, admin=True),
        Account(
            access_key=READER.access_key,
            secret_key=READER.secret_key,
            topics={ORDERS: Permission.SUB},
            groups={BILLING: Permission.SUB},
        ),
        Account(access_key=WRITER.access_key, secret_key=WRITER.secret_key, topics={ORDERS: Permission.PUB}),
        Account(access_key=STRANGER.access_key, secret_key=STRANGER.secret_key),
    )
    return Acl(Rules({account.access_key: account for account in everybody}))


SAMPLE_FILE = f"""\
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
- accessKey: {READER.access_key}
  secretKey: {READER.secret_key}
  topicPerms:
  - {ORDERS}=SUB
  groupPerms:
  - {BILLING}=SUB
- accessKey: {WRITER.access_key}
  secretKey: {WRITER.secret_key}
  topicPerms:
  - {ORDERS}=PUB
- accessKey: {STRANGER.access_key}
  secretKey: {STRANGER.secret_key}
"""


def acl_in(directory: Path) -> Acl:
    """Everybody, from a file `plain_acl.yml` there."""
    return load_acl(written(directory, SAMPLE_FILE))


def written(directory: Path, text: str) -> Path:
    """A private file with this text."""
    path = directory / "plain_acl.yml"
    path.write_text(text)
    path.chmod(0o600)
    return path
