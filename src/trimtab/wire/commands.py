"""A command is what a frame says: a code, fields, a remark and a body; a request or the answer to one.

Headers come in two encodings, told apart per frame by its serializer byte. JSON is what everybody sends by default; the
binary one carries codes as i16 only, so codes beyond that always travel as JSON.
"""

import struct
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from trimtab.errors import ProtocolError
from trimtab.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, SPOKEN_VERSION, LanguageCode
from trimtab.wire.frames import BINARY_HEADER, JSON_HEADER, Frame, encode_frame
from trimtab.wire.scalars import I32

EXT_FIELDS_MAX = 256

_OTHER: Final = LanguageCode.OTHER
_LANGUAGES: Final[Mapping[str | int | None, LanguageCode]] = {
    **{language.name: language for language in LanguageCode},
    **{int(language): language for language in LanguageCode},
}
_NO_FIELDS: Final[Mapping[str, str]] = {}
_BINARY_FIXED = struct.Struct(">hBhii")
_BINARY_CODE_MAX = 0x7FFF


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, one-way request or response."""

    code: int
    opaque: int
    flag: int = 0
    ext: Mapping[str, str] = _NO_FIELDS
    body: bytes = b""
    remark: str | None = None
    language: LanguageCode = LanguageCode.PYTHON
    version: int = SPOKEN_VERSION
    serializer: int = JSON_HEADER

    @property
    def is_response(self) -> bool:
        """Bit 0 alone decides: the two directions of a connection use the same opaque numbers."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """A request that must not be answered."""
        return bool(self.flag & ONEWAY_FLAG)


def encode_command(command: Command) -> bytes:
    """The frame of a command, its header in the command's own encoding."""
    if command.serializer == BINARY_HEADER and -_BINARY_CODE_MAX <= command.code <= _BINARY_CODE_MAX:
        return encode_frame(_encode_binary(command), command.body, serializer=BINARY_HEADER)
    return encode_frame(_encode_json(command), command.body)


def decode_command(frame: Frame) -> Command:
    """The command in a frame. Whatever is wrong with the header is a `ProtocolError`."""
    if frame.serializer == JSON_HEADER:
        return _decode_json(frame)
    if frame.serializer == BINARY_HEADER:
        return _decode_binary(frame)
    raise ProtocolError(f"serializer {frame.serializer} is neither JSON (0) nor ROCKETMQ (1)")


# --- JSON ---------------------------------------------------------------------------------------------------------


class _JsonHeader(msgspec.Struct, gc=False):
    """The header as everybody writes it: extFields are strings."""

    code: I32 = 0
    opaque: I32 = 0
    flag: I32 = 0
    version: I32 = 0
    language: str | int | None = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the name on the wire


class _OddJsonHeader(_JsonHeader):
    """The header as Java would still read it: numbers, booleans and nulls among the fields."""

    extFields: dict[str, msgspec.Raw] | None = None  # type: ignore[assignment]  # noqa: N815


_plain_header = msgspec.json.Decoder(_JsonHeader).decode
_odd_json = msgspec.json.Decoder(_OddJsonHeader, strict=False)
_json_text = msgspec.json.encode


def _encode_json(command: Command) -> bytes:
    """Keys in Java's order: alphabetical, absent ones left out."""
    fields = b',"extFields":%b' % _json_text(command.ext) if command.ext else b""
    remark = b',"remark":%b' % _json_text(command.remark) if command.remark is not None else b""
    return (
        b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (
            command.code,
            fields,
            command.flag,
            command.language.name.encode(),
            command.opaque,
            remark,
            command.version,
        )
    )


def _decode_json(frame: Frame) -> Command:
    try:
        header = _plain_header(frame.header)
        ext: Mapping[str, str] = header.extFields or _NO_FIELDS
    except msgspec.ValidationError:
        header, ext = _decode_odd_json(frame.header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise ProtocolError(f"unreadable JSON header: {exc}") from exc
    if len(ext) > EXT_FIELDS_MAX:
        raise ProtocolError(f"{len(ext)} header fields exceed {EXT_FIELDS_MAX}")
    return Command(
        code=header.code,
        opaque=header.opaque,
        flag=header.flag,
        ext=ext,
        body=frame.body,
        remark=header.remark,
        language=_LANGUAGES.get(header.language, _OTHER),
        version=header.version,
    )


def _decode_odd_json(raw: bytes) -> tuple[_JsonHeader, Mapping[str, str]]:
    try:
        header = _odd_json.decode(raw)
        fields = cast("dict[str, msgspec.Raw]", header.extFields or {})
        texts = ((name, _text_of(value)) for name, value in fields.items())
        return header, {name: text for name, text in texts if text is not None}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise ProtocolError(f"unreadable JSON header: {exc}") from exc


def _text_of(value: msgspec.Raw) -> str | None:
    """A field as Java's Map<String, String> would hold it: numbers and booleans by their own spelling."""
    raw = bytes(value)
    if raw.startswith(b'"'):
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


def language_named(name: str | int | None) -> LanguageCode:
    """A language by name or number; one we never heard of is `OTHER`."""
    return _LANGUAGES.get(name, _OTHER)


# --- binary -------------------------------------------------------------------------------------------------------


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    fields = bytearray()
    for name, value in command.ext.items():
        name_bytes = name.encode()
        value_bytes = value.encode()
        fields += len(name_bytes).to_bytes(2, "big") + name_bytes
        fields += len(value_bytes).to_bytes(4, "big") + value_bytes
    fixed = _BINARY_FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag)
    return b"%b%b%b%b%b" % (
        fixed,
        len(remark).to_bytes(4, "big"),
        remark,
        len(fields).to_bytes(4, "big"),
        bytes(fields),
    )


def _decode_binary(frame: Frame) -> Command:
    raw = frame.header
    if len(raw) < _BINARY_FIXED.size:
        raise ProtocolError(f"binary header of {len(raw)} bytes is shorter than {_BINARY_FIXED.size}")
    code, language, version, opaque, flag = _BINARY_FIXED.unpack_from(raw)
    try:
        remark, at = _sized_text(raw, _BINARY_FIXED.size, 4)
        ext = _decode_binary_fields(raw, at)
    except UnicodeDecodeError as exc:
        raise ProtocolError(f"binary header is not UTF-8: {exc}") from exc
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        ext=ext,
        body=frame.body,
        remark=remark or None,
        language=language_named(language),
        version=version,
        serializer=BINARY_HEADER,
    )


def _decode_binary_fields(raw: bytes, at: int) -> Mapping[str, str]:
    end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    if len(raw) < at + 4 or end > len(raw):
        raise ProtocolError("binary header ends inside its fields")
    at += 4
    ext: dict[str, str] = {}
    while at < end:
        name, at = _sized_text(raw, at, 2)
        value, at = _sized_text(raw, at, 4)
        if at > end:
            raise ProtocolError("a binary header field reaches beyond the fields")
        ext[name] = value
        if len(ext) > EXT_FIELDS_MAX:
            raise ProtocolError(f"more than {EXT_FIELDS_MAX} header fields")
    return ext


def _sized_text(raw: bytes, at: int, length_bytes: int) -> tuple[str, int]:
    start = at + length_bytes
    end = start + int.from_bytes(raw[at:start], "big")
    if start > len(raw) or end > len(raw):
        raise ProtocolError(f"binary header ends inside a text at byte {at}")
    return raw[start:end].decode(), end
