"""Secrets as a seam: what nobody may guess is made here and nowhere else."""

import secrets

SECRET_BYTES = 32


def new_secret() -> str:
    """A text of letters, digits, - and _ that nobody can guess."""
    return secrets.token_urlsafe(SECRET_BYTES)
