"""What all bodies have in common."""

import msgspec


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """A value that is JSON on the wire. A field that is None is not written.

    Fields that only 5.x has are None unless given, so what we write is what 4.9.3 writes. Where Java has a set the
    field is a tuple: it keeps an order, which keeps us repeatable.
    """
