"""Texts of others on our terminal: what would move the cursor, change colours or turn the writing around is shown, not done. PURE.

Names, keys, tags, bodies and the words of brokers come from anybody who may send. Ordinary text passes unchanged.
"""

_CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0)]
_TURNING = [0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SHORT = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


def _shown(code: int) -> str:
    return _SHORT.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


_LINE = {code: _shown(code) for code in (*_CONTROLS, *_TURNING)}
_LINES = {code: text for code, text in _LINE.items() if code not in (0x09, 0x0A)}
_JSON = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_TURNING) if code >= 0x7F}


def visible(text: str) -> str:
    """A text on one line."""
    return text.translate(_LINE)


def visible_lines(text: str) -> str:
    """A text that may have lines and tabs."""
    return text.translate(_LINES)


def visible_bytes(data: bytes) -> bytes:
    """What is to be written to a terminal; bytes that are no text are shown as such."""
    return visible_lines(data.decode(errors="backslashreplace")).encode()


def visible_json(document: str) -> str:
    """The same document: such characters stand only in its texts, where JSON has another way to write them."""
    return document.translate(_JSON)
