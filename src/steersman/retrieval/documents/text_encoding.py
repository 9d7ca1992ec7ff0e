"""Text decoding: storable text, with the encoding and the number of replaced characters."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install

REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_ESCAPED = re.compile("[\udc80-\udcff]")
_MARKS = (  # UTF-32 first, because its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_FORMATS = (
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\xd0\xcf\x11\xe0", "an old office document"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "a database"),
    (b"\x1f\x8b", "gzip-compressed twice"),
    (b"7z\xbc\xaf", "an archive"),
    (b"\xfd7zXZ", "xz-compressed data"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
)
# Formats that begin with letters, as a text may, followed by bytes that no text contains.
_LETTERED_FORMATS = (
    (
        re.compile(
            rb"%PDF-\d\.\d(?:[ \t]*(?:[\x00-\x08\x0a-\x1f\x7f%]|\Z)|[ \t]+\d+\s+\d+\s+obj\b)"
        ),
        "a PDF",
    ),
    (re.compile(rb"GIF8[79]a[\s\S]{0,6}?[\x00-\x08\x0e-\x1f]"), "a picture"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bzip2-compressed data"),
)
# Control characters that texts do not contain: all except white space, escape and backspace.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"
_SAMPLE = 65_536
# Encodings still in use; the detector knows many more, and confuses these with them.
_GUESSED = [
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("koi8_r", "koi8_u", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp874", "iso8859_2"),
]
# Encodings that a page may declare. Other Python codecs do not encode text, and a page with a
# declaration in ASCII is not UTF-16.
_DECLARED = re.compile(
    r"(cp(12|8|9)\d\d|iso8859-\d+|latin-?\d|koi8-[rtu]|euc[-_](jp|kr)|shift_jis\w*|gbk|gb2312|gb18030"
    r"|big5\w*|mac[-_]\w+|tis-620)"
)


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Decoded text with its encoding.

    Attributes:
        text: text without NUL and lone surrogates, which are replaced by U+FFFD.
        encoding: encoding used.
        assumed: whether the encoding is a guess: not declared by the file, nor proven by its bytes.
        replaced: number of characters or bytes that could not be read or stored.
    """

    text: str
    encoding: str
    assumed: bool
    replaced: int


def decode(data: bytes, name: str, declared: str | None = None) -> DecodedText:
    r"""Return the text of some bytes.

    Order of attempts: byte order mark, UTF-16 or UTF-32 recognised by NULs, valid UTF-8, the
    declared encoding, UTF-8 with few errors, a detected encoding, Windows-1252.

    Raises:
        DataError: the bytes are not text.

    >>> decode(b"caf\xe9", "menu.txt")
    DecodedText(text='café', encoding='cp1252', assumed=True, replaced=0)
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_as(data[len(mark) :], encoding, assumed=False)
    wide = _wide(data)
    if wide:
        return _decode_as(data, wide, assumed=True)
    _refuse_binary(data, name)
    found = _strictly(data, "utf-8") or _strictly(data, _known(declared))
    if found:
        return found
    broken = data.decode("utf-8", "surrogateescape")
    bad = _ESCAPED.subn("", broken)[1]
    beyond = len(broken) - len(broken.encode("ascii", "ignore")) - bad
    if beyond > 2 * bad:
        return _decode_as(data, "utf-8", assumed=True)
    return _decode_as(data, _guess(data, bad), assumed=True)


def is_storable(text: str) -> bool:
    r"""Return whether a text can be stored: it has no NUL and no lone surrogate.

    >>> is_storable("pumps.md"), is_storable("pumps\0.md")
    (True, False)
    """
    return _UNSTORABLE.search(text) is None


def storable(text: str) -> tuple[str, int]:
    """Return a storable text and the number of replaced characters.

    NUL (refused by PostgreSQL) and lone surrogates (not valid in UTF-8) are each replaced by one
    U+FFFD, so offsets do not change.
    """
    return _UNSTORABLE.subn(REPLACEMENT, text)


def is_pdf(data: bytes) -> bool:
    r"""Return whether bytes are a PDF, and not a text about PDFs.

    >>> is_pdf(b"%PDF-1.7\n1 0 obj"), is_pdf(b"%PDF-1.7 is how such a file begins.")
    (True, False)
    """
    begin, _ = _LETTERED_FORMATS[0]
    return begin.match(data) is not None


def _strictly(data: bytes, encoding: str | None) -> DecodedText | None:
    if encoding is None:
        return None
    try:
        text, replaced = storable(data.decode(encoding))
    except UnicodeDecodeError:
        return None
    return DecodedText(text, encoding, assumed=False, replaced=replaced)


def _decode_as(data: bytes, encoding: str, *, assumed: bool) -> DecodedText:
    if encoding == "utf-8":
        text, replaced = storable(data.decode(encoding, "surrogateescape"))
        return DecodedText(text, encoding, assumed, replaced)
    if encoding.startswith("utf"):
        width = int(encoding[4:6]) // 8
        rest = len(data) % width
        decoded = data[: len(data) - rest].decode(encoding, "replace")
        text, replaced = storable(decoded + REPLACEMENT * bool(rest))
    else:
        text, replaced = storable(data.decode(encoding, "replace"))
    # A file may already contain U+FFFD, which also marks a lost character.
    return DecodedText(text, encoding, assumed, replaced + text.count(REPLACEMENT) - replaced)


def _known(declared: str | None) -> str | None:
    try:
        name = codecs.lookup(declared).name if declared else ""
    except LookupError:
        return None
    # Like browsers: files declared as latin-1 are usually Windows-1252.
    name = "cp1252" if name in {"iso8859-1", "ascii"} else name
    return name if _DECLARED.fullmatch(name) else None


def _wide(data: bytes) -> str | None:
    """Return UTF-16 or UTF-32 without a mark, recognised by the share of NUL bytes."""
    sample = data[:_SAMPLE]
    if len(sample) < 8:
        return None
    nulls = [sample[place::4].count(0) / len(sample[place::4]) for place in range(4)]
    high = [share > 0.4 for share in nulls]
    low = [share < 0.1 for share in nulls]
    if high[1] and high[3] and low[0] and low[2]:
        return "utf-16-le"
    if high[0] and high[2] and low[1] and low[3]:
        return "utf-16-be"
    if all(high[1:]) and low[0]:
        return "utf-32-le"
    return "utf-32-be" if all(high[:3]) and low[3] else None


def _refuse_binary(data: bytes, name: str) -> None:
    sample = data[:_SAMPLE]
    known = next((what for magic, what in _FORMATS if sample.startswith(magic)), None)
    known = known or next((what for begin, what in _LETTERED_FORMATS if begin.match(sample)), None)
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if known is None and controls > 4 + len(sample) // 50:
        known = f"binary data: {controls} of its first {len(sample):,} bytes are control characters"
    if known:
        raise DataError(
            f"{name} is not a text file but {known}; omit it, or use the matching extension"
        )


def _guess(data: bytes, high: int) -> str:
    # The detector is unreliable for western scripts, which have few non-ASCII bytes.
    if high < max(32, len(data) // 20):
        return "cp1252"
    try:
        from charset_normalizer import from_bytes  # noqa: PLC0415 - an extra
    except ImportError as missing:
        message = "detecting this encoding needs the package charset-normalizer; install it with: "
        raise DataError(message + how_to_install("rag")) from missing
    start = max(0, next(i for i, byte in enumerate(data) if byte > 0x7F) - 256)
    found = from_bytes(data[start : start + _SAMPLE], cp_isolation=_GUESSED).best()
    return found.encoding if found else "cp1252"
