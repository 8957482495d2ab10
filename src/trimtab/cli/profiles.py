"""Named places to connect to, in a file of the user's: `config.toml` in the folder for settings, by the XDG rules.

    default = "local"

    [profiles.local]
    nameserver = "127.0.0.1:9876"

    [profiles.prod]
    nameserver = "10.0.0.5:9876;10.0.0.6:9876"
    access_key = "reader"
    secret_key = "..."
    tls_ca = "/etc/ssl/prod-ca.pem"

The file may hold secrets, so it is written readable for its owner alone.
"""

import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from trimtab.errors import SettingsError

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One place. What is None is not said."""

    nameserver: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: bool | None = None
    tls_ca: str | None = None

    def __repr__(self) -> str:
        """Without the secret, for logs."""
        return f"Profile(nameserver={self.nameserver!r}, access_key={self.access_key!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Everything in the file."""

    default: str | None = None
    by_name: dict[str, Profile]

    def named(self, name: str) -> Profile:
        """A profile that must be there."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise SettingsError(
                f"there is no profile {name!r} in {profile_path()}; there are: {known}. `trimtab config set {name}` makes one"
            )
        return self.by_name[name]

    def with_profile(self, name: str, profile: Profile) -> "Profiles":
        """The same with one more; the first one becomes the default."""
        if not NAME.fullmatch(name):
            raise SettingsError(f"{name!r} is no name for a profile; use letters, digits, _ and -")
        return replace(self, default=self.default or name, by_name={**self.by_name, name: profile})

    def without(self, name: str) -> "Profiles":
        """The same without one."""
        self.named(name)
        rest = {one: profile for one, profile in self.by_name.items() if one != name}
        return replace(self, default=None if self.default == name else self.default, by_name=rest)


def profile_path() -> Path:
    """Where the file is, or would be."""
    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (named if named.is_absolute() else Path("~/.config").expanduser()) / "trimtab" / "config.toml"


def read_profiles(path: Path | None = None) -> Profiles:
    """What the file says; no file says nothing."""
    path = path or profile_path()
    if not path.exists():
        return Profiles(by_name={})
    import tomllib

    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsError(f"{path} is larger than {FILE_BYTES_MAX} bytes; that is no file of ours")
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    entries = table.get("profiles", {})
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise SettingsError(f"{path}: [profiles.NAME] must be tables")
    default = table.get("default")
    return Profiles(
        default=default if isinstance(default, str) else None,
        by_name={name: _profile(path, name, entry) for name, entry in entries.items()},
    )


def _profile(path: Path, name: str, entry: dict[str, object]) -> Profile:
    known = {field.name: bool if field.name == "tls" else str for field in fields(Profile)}
    for key, value in entry.items():
        if key not in known:
            raise SettingsError(f"{path}: profile {name!r} has {key!r}; known are {', '.join(known)}")
        if not isinstance(value, known[key]):
            raise SettingsError(f"{path}: {key} of profile {name!r} must be a {known[key].__name__}")
    return Profile(**entry)  # type: ignore[arg-type]


def write_profiles(profiles: Profiles, path: Path | None = None) -> Path:
    """Puts the file in place as a whole, readable for its owner alone."""
    import tempfile

    path = path or profile_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    with os.fdopen(handle, "w") as file:
        file.write(as_toml(profiles))
    Path(aside).replace(path)
    return path


def as_toml(profiles: Profiles) -> str:
    """The file's text."""
    lines = [] if profiles.default is None else [f"default = {_quoted(profiles.default)}", ""]
    for name, profile in sorted(profiles.by_name.items()):
        lines.append(f"[profiles.{name}]")
        for field in fields(Profile):
            value = getattr(profile, field.name)
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else _quoted(value)
                lines.append(f"{field.name} = {text}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)
