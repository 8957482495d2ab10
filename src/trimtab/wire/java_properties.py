"""The `key=value` lines that configuration travels in (codes 25, 26, 318, 319).

Java writes them raw and reads them with `java.util.Properties`, which knows escapes. We write what that reader gives back
unchanged: the same bytes as Java for ordinary texts, escapes where Java's raw text would be misread (backslashes, line ends,
leading spaces, anything outside ASCII). We read as that reader does, except that raw bytes are UTF-8, as they were meant,
and not Latin-1.
"""

import re
from collections.abc import Mapping

from trimtab.errors import ProtocolError

PROPERTIES_BYTES_MAX = 16 << 20
PROPERTY_LINES_MAX = 1 << 14

_LETTER_OF = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
_MEANING_OF = {letter: character for character, letter in _LETTER_OF.items()}
_ODD_IN_VALUE = re.compile(r"\A |\\|[^ -~]")
_ODD_IN_KEY = re.compile(r"\A[#!]|[ =:\\]|[^ -~]")

_BLANK = re.compile(r"(?:[ \t\f\r\n]|\\[\r\n])*+")
_COMMENT = re.compile(r"[#!][^\r\n]*+")
_LOGICAL_LINE = re.compile(r"[^\\\r\n]*+(?:\\(?:\r\n|.)[^\\\r\n]*+)*+\\?", re.DOTALL)
_LINE_JOINT = re.compile(r"\\(?:(?:\r\n|\r|\n)[ \t\f]*+|(.))", re.DOTALL)
_KEY_AND_SEPARATOR = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)\\?[ \t\f]*+(?:[=:][ \t\f]*+)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|\Z)", re.DOTALL)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """One line for each, in the order given."""
    lines = [
        f"{_ODD_IN_KEY.sub(_escaped, key)}={_ODD_IN_VALUE.sub(_escaped, value)}\n"
        for key, value in properties.items()
    ]
    return "".join(lines).encode("ascii")


def decode_properties(data: bytes) -> dict[str, str]:
    """What Java's reader would find; of equal keys the last one counts."""
    if len(data) > PROPERTIES_BYTES_MAX:
        raise ProtocolError(f"properties of {len(data)} bytes are longer than {PROPERTIES_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"properties of {len(data)} bytes are not UTF-8: {error}") from error
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        split = _KEY_AND_SEPARATOR.match(line)
        assert split is not None, "every part of it may be empty"
        properties[_unescaped(split[1])] = _unescaped(line[split.end() :])
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    at = _skipped(_BLANK, text, 0)
    for _ in range(PROPERTY_LINES_MAX):
        if at == len(text):
            return lines
        comment_end = _skipped(_COMMENT, text, at)
        end = comment_end if comment_end > at else _skipped(_LOGICAL_LINE, text, at)
        if comment_end == at and (line := _LINE_JOINT.sub(_without_line_end, text[at:end])):
            lines.append(line)
        at = _skipped(_BLANK, text, end)
    raise ProtocolError(f"properties have more than {PROPERTY_LINES_MAX} lines")


def _skipped(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _without_line_end(match: re.Match[str]) -> str:
    return match[0] if match[1] else ""


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in _LETTER_OF:
        return "\\" + _LETTER_OF[character]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_meaning, text)
    # Halves of a pair were written apart, as Java's characters are.
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _meaning(match: re.Match[str]) -> str:
    unit, character = match.groups()
    if unit is not None:
        return chr(int(unit, 16))
    if character == "u":
        raise ProtocolError(f"a property holds a \\u without four hexadecimal digits: {match.string[:80]!r}")
    return _MEANING_OF.get(character, character) if character else ""
