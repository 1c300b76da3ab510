"""The default redaction: credentials out, everything that names or places them stays.

Three kinds of evidence. A *token* is known by its own form (`ghp_…`, `AKIA…`, a JWT, a private key block). An *assignment* is known by the word
before it (`DB_PASSWORD=`, `"apiKey": `, `--token `, `Authorization: Bearer`), and its value is then judged: type hints, placeholders, calls,
variables, counts and paths stay as they are. A *manifest* of a Kubernetes secret loses all values of its data. Plain hashes, UUIDs and base64-like
names are never touched without such a word.

A net, not a guarantee: applications with stricter needs pass `redact=` a callable of their own, which may call this one. Everything is linear:
patterns start at a fixed prefix and take the whole run of characters in one step, and values are walked once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from langgraph_roundcompact._secret_judge import MARK, hide_unless, is_path, is_placeholder, is_random, tells_about, words_of
from langgraph_roundcompact._secret_manifests import hide_manifests
from langgraph_roundcompact._secret_places import hide_placed
from langgraph_roundcompact._secret_tokens import hide_tokens

__all__ = ["MARK", "default_redact"]

_LONGEST_WORD: Final = 100
"""Characters up to which a text is looked at for being one word."""


def default_redact(text: str) -> str:
    """`text` without credentials.

    Args:
        text: Anything; a megabyte takes some tenths of a second at most.

    Returns:
        The same text with `[REDACTED]` in place of each value that is taken for a secret; key names, hosts and users stay. Redacting the
        result again changes nothing.
    """
    text = hide_manifests(text)
    if "PRIVATE KEY" in text:
        text = _private_keys(text)
    if "Private-Lines: " in text:
        text = _PUTTY.sub(rf"\1{MARK}\n", text)
    if "://" in text:
        text = _in_urls(text)
    if "?" in text or "&" in text:
        text = _SIGNED.sub(hide_unless(is_placeholder), text)
        text = _QUERY.sub(hide_unless(lambda value: not is_random(value)), text)
    text = hide_tokens(text)
    if len(text) < _LONGEST_WORD and text.replace("_", "").replace("-", "").isalnum():
        return text  # an id or a name, of which there are many, assigns nothing
    lowered = _lowered(text)
    words = [word.decode() for word in _KEY_WORDS if word in lowered]
    return _assignments(hide_placed(text, lowered, names=bool(words)), words)


def _lowered(text: str) -> bytes:
    """For a look whether a word is in a text at all: lowered several times as fast as text, and only letters of ASCII are."""
    return text.encode("utf-8", "surrogatepass").lower()


# --- private keys ----------------------------------------------------------------------------------------------------------------------------

_KEY_NAME = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_KEY_BLOCK = re.compile(rf"(-{{4,5}} ?BEGIN {_KEY_NAME})[^-]*+(?:-(?!---)[^-]*+)*+(-{{4,5}} ?END {_KEY_NAME})")
# Between lines; also what stands in front of one in a diff and in a listing with line numbers.
_BREAK = r"(?:\s|\\[nr]|[\"'+,|>]|\d{1,6}[\t→:|])"
# Behind a beginning without an end: long runs, and a shorter one that cannot be a word.
_KEY_HEAD = re.compile(
    rf"(-{{4,5}} ?BEGIN {_KEY_NAME}){_BREAK}*+[A-Za-z0-9+/=]{{24,}}+(?:{_BREAK}++[A-Za-z0-9+/=]{{24,}}+)*+"
    rf"(?:{_BREAK}++(?=[A-Za-z]*+[0-9+/=])[A-Za-z0-9+/=]{{2,23}})?"
)
_KEY_END = re.compile(rf"-{{4,5}} ?END {_KEY_NAME}")
_KEY_LINE = re.compile(r"[\s\"',]*+(?:[A-Za-z0-9+/=]{24,80}+|(?=[A-Za-z]*+[0-9+/=])[A-Za-z0-9+/=]{1,23}+)[\s\"',]*+(?:\\r\\n|\\n)?")
_LAST_KEY_LINE = re.compile(r"[\s\"',]*+[A-Za-z0-9+/=]{0,80}+[\s\"',]*+(?:\\r\\n|\\n)?")
_PUTTY = re.compile(r"(Private-Lines: \d{1,3}\r?\n)(?:[A-Za-z0-9+/=]{1,80}(?:\r?\n|\Z)){1,200}+")
_LINE_BREAK = re.compile(r"\\r\\n|\\n|\n")
_KEY_LOOK_BACK: Final = 16_384


def _private_keys(text: str) -> str:
    """Whole blocks, blocks cut off behind their beginning, and blocks cut off in front of their end."""
    text = _KEY_BLOCK.sub(rf"\1{MARK}\2", text)
    text = _KEY_HEAD.sub(rf"\1{MARK}", text)
    return _replaced(text, _key_tails(text))


def _key_tails(text: str) -> Iterator[tuple[int, int]]:
    """Lines of base64 in front of an `END` whose `BEGIN` was cut away."""
    floor = 0
    for end in _KEY_END.finditer(text):
        floor = max(floor, end.start() - _KEY_LOOK_BACK)
        start = end.start()
        # Lines are taken from the end upwards: the last may be short, above it stand whole lines.
        for piece in reversed([floor, *(found.end() for found in _LINE_BREAK.finditer(text, floor, end.start()))]):
            line = _KEY_LINE if text[start : end.start()].strip() else _LAST_KEY_LINE
            if line.fullmatch(text, piece, start) is None:
                break
            start = piece
        body = text[start : end.start()]
        if len(body.strip()) >= 16 and MARK not in body:
            yield start, end.start()
        floor = end.end()


# --- URLs and headers ------------------------------------------------------------------------------------------------------------------------

_USER_INFO = re.compile(r"://([^\s/:@\"'<>\[\]]{0,128}):([^\s/\"'<>]{1,512})@(?=[\w\[.-])")
# A password with a slash, which a port in front of a path is not; and a key in the place of the user, as in a Sentry address.
_WITH_SLASH = re.compile(r"://([^\s/:@\"'<>\[\]]{0,128}):(?!\d{1,5}/)([^\s\"'<>()\[\]{},@]{1,100})@(?=[\w\[.-])")
_USER_ONLY = re.compile(r"(://)([\w.~%-]{20,128})(?=@[\w\[.-])")
_SIGNED = re.compile(r"([?&](?:sig|[Ss]ignature|X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature)=)([^\s\"'<>&;#]{4,512})")
_QUERY = re.compile(r"([?&](?:key|code|auth)=)([^\s\"'<>&;#]{8,512})")


def _in_urls(text: str) -> str:
    """Passwords in `scheme://user:password@host`."""
    for pattern in (_USER_INFO, _WITH_SLASH):
        text = pattern.sub(lambda found: found[0] if is_placeholder(found[2]) else f"://{found[1]}:{MARK}@", text)
    return _USER_ONLY.sub(hide_unless(lambda value: not is_random(value)), text)


# --- assignments -----------------------------------------------------------------------------------------------------------------------------

# A set in front, then the words by their first letter: `re` skips to the next member of the set at C speed, which it cannot do for alternatives
# without case.
_KEY = re.compile(
    r"[PpSsTtCcAaEeMm](?i:(?<=p)(?:assw(?:or)?[dt]|assphrase|asscode|ass(?![a-z])|wd|w(?=[\"']?[=:])|(?-i:(?<=P)AT(?==))|rivate[_-]?key)|"
    r"(?<=s)(?:ecret|igning[_-]?key|hared[_-]?key|ubscription[_-]?key)|(?<=t)oken|"
    r"(?<=c)(?:redentials?|lient[_-]?key(?:[_-]data)?)|(?<=a)(?:pi|ccess|uth|ccount)[_-]?key|(?<=e)ncryption[_-]?key|(?<=m)aster[_-]?key)"
    r"(?P<tail>[\w-]{0,40}+)(?P<sep>\\{0,3}[\"'`]?[*]{0,2}[ \t]{0,3}(?::=|=>|[:=](?!=))[*]{0,2}[ \t]{0,3}|>(?=[^\s<])| (?=[^\s-]))"
)
# One of these is in each word of `_KEY`, in lower case.
_KEY_WORDS: Final = (b"pass", b"pw", b"pat=", b"secret", b"token", b"credential", b"key")
_BEFORE_KEY = re.compile(r"[\w-]*+$")
_LONGEST_KEY: Final = 60
_EVERYDAY: Final = ("token", "credential", "pw", "pat")
# `True`: to the next blank or quote, `False`: to the next delimiter too. A written `\n` ends a value as a line break does.
_VALUE: Final = {
    True: re.compile(r"(?:[^\s\"'`<>\\]|\\(?![nrt\"'])){1,256}"),
    False: re.compile(r"(?:[^\s\"'`<>;&,=\\]|\\(?![nrt\"'])){1,254}={0,2}"),
}
_VALUE_REST: Final = {True: re.compile(r"(?:[^\s\"'`<>\\]|\\(?![nrt\"']))*+"), False: re.compile(r"(?:[^\s\"'`<>;&,\\]|\\(?![nrt\"']))*+")}
_LONGEST_JUDGED: Final = 256
_QUOTES: Final = ('\\\\\\"', '\\"', "\\'", '"""', '"', "'", "`")
_WORDS: Final = words_of(
    """none null nil true false str string bytes int integer float bool any object text number char varchar secretstr optional required undefined
    unset empty missing invalid expired revoked wrong incorrect passed failed ok error skipped done set yes no on off n/a na todo tbd redacted
    hidden masked self this await new type const let var password passwd secret token bearer basic is was not"""
)
_CODE: Final = ("self.", "os.", "process.", "config.", "settings.", "env.", "args.", "this.")
_VARIABLE = re.compile(r"_*(?:[a-z]+(?:_[a-z]+)*|[a-z]+(?:[A-Z][a-z]+)+|(?:[A-Z][a-z]+)+)")
_NAMES_A_SECRET = re.compile(r"pass|secret|token|key|pwd|cred", re.IGNORECASE)


def _assignments(text: str, words: Sequence[str]) -> str:
    """Values behind telling keys. Most texts hold no such key, and few lines of the others do."""
    return _replaced(text, _assigned(text, _lines_with(words, text))) if words else text


def _lines_with(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where the lines with one of the words stand, in order."""
    lowered = _lowered(text).decode("utf-8", "surrogatepass")
    lines: set[tuple[int, int]] = set()
    for word in words:
        stop, at = 0, lowered.find(word)
        while at >= 0:
            start = lowered.rfind("\n", stop, at) + 1 or stop
            stop = lowered.find("\n", at)
            stop = stop if stop >= 0 else len(lowered)
            lines.add((start, stop))
            at = lowered.find(word, stop)
    return sorted(lines)


def _assigned(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where the secret values of assignments stand."""
    done = 0
    for found in chain.from_iterable(_KEY.finditer(text, start, stop) for start, stop in lines):
        if found.start() >= done and not tells_about(found["tail"]):
            span = _value_span(text, found)
            if span is not None:
                done = span[1]
                yield span


def _value_span(text: str, found: re.Match[str]) -> tuple[int, int] | None:
    """The value behind one key, if it is a secret."""
    word, sep, start = found[0][: found.start("sep") - found.start()], found["sep"], found.end()
    before = _BEFORE_KEY.search(text, max(0, found.start() - _LONGEST_KEY), found.start())
    head = before[0] if before else ""
    # A blank or a bracket separates only behind a flag (`--token abc`) and in an element (`<token>abc`).
    if (sep == " " and not head.startswith("--")) or (sep == ">" and text[found.start() - len(head) - 1 : found.start() - len(head)] != "<"):
        return None
    in_environment = sep == "=" and (head + word).isupper()
    weak = not in_environment and (word.lower().startswith(_EVERYDAY) or head.lower().startswith("test"))
    quote = next((quote for quote in _QUOTES if text.startswith(quote, start)), "")
    if word.lower() == "pass" and not in_environment and not quote:
        return None  # "PASS: TestX", "pass: 5"
    if word.lower() == "pw" and not (head + word).isupper() and head.strip("_-") != head.strip("_-").lower():
        return None  # the end of something in base64
    if quote:
        return _quoted_span(text, start + len(quote), quote, weak=weak)
    return _plain_span(text, start, sep, weak=weak, in_environment=in_environment)


def _quoted_span(text: str, start: int, quote: str, *, weak: bool) -> tuple[int, int] | None:
    """A quoted value: to the quote that ends it, or to the end of the line where it was cut off."""
    line_end = text.find("\n", start, start + 1_000)
    limit = line_end if line_end >= 0 else min(len(text), start + 1_000)
    stop = text.find(quote, start, limit)
    while stop > start and len(quote) == 1 and text[stop - 1] == "\\" and text[stop - 2 : stop - 1] != "\\":
        stop = text.find(quote, stop + 1, limit)
    value = text[start : stop if stop >= 0 else limit]
    prose = value.count(" ") >= 3 and value.rstrip()[-1:] in (".", "!", "?")
    return (start, start + len(value)) if not prose and _is_secret(value.strip()[:_LONGEST_JUDGED], weak=weak) else None


def _plain_span(text: str, start: int, sep: str, *, weak: bool, in_environment: bool) -> tuple[int, int] | None:
    """A value without quotes: in the environment and in YAML to the next white space, elsewhere to the next delimiter."""
    to_blank = in_environment or ":" in sep or sep == " "
    found = _VALUE[to_blank].match(text, start)
    if found is None:
        return None
    value, whole = found[0], len(found[0]) < _LONGEST_JUDGED
    if whole and not value.startswith(MARK):
        value = value.rstrip(",;:)]}&|")
    if not in_environment and (any(mark in value for mark in "([{") or value.startswith(_CODE) or _is_variable(value)):
        return None
    if not _is_secret(value, weak=weak):
        return None
    stop = start + len(value)
    if not whole and (rest := _VALUE_REST[to_blank].match(text, stop)):
        stop = rest.end()
    prose = sep.strip("*\"'`\\ \t") == ":" and not is_random(value) and text[stop : stop + 3].lstrip(" \t,;)]}*")[:1] not in ("", "\n", "\r", "#")
    return None if prose else (start, stop)


def _is_secret(value: str, *, weak: bool) -> bool:
    """Whether a value behind a telling key is the secret itself. `weak`: the key has everyday meanings too, so the value must look random."""
    if not value or is_placeholder(value) or value.lower().rstrip(".:") in _WORDS or is_path(value):
        return False
    return not weak or (is_random(value) and " " not in value)


def _is_variable(value: str) -> bool:
    """A variable or a type that is passed on (`password=user_password`), not a value."""
    return _VARIABLE.fullmatch(value) is not None and _NAMES_A_SECRET.search(value) is not None


def _replaced(text: str, spans: Iterator[tuple[int, int]]) -> str:
    out, done = [], 0
    for start, stop in spans:
        out += [text[done:start], MARK]
        done = stop
    return "".join([*out, text[done:]]) if out else text
