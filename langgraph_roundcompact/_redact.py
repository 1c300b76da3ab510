"""The default redaction: credentials out, everything that names or places them stays.

Two kinds of evidence. A *token* is known by its own form (`ghp_…`, `AKIA…`, a JWT, a private key block). An *assignment* is known by the word
before it (`DB_PASSWORD=`, `"apiKey": `, `--token `, `Authorization: Bearer`), and its value is then judged: type hints, placeholders, calls,
variables, counts and paths stay as they are. Plain hashes, UUIDs and base64-like names are never touched without such a word.

A net, not a guarantee: applications with stricter needs pass `redact=` a callable of their own, which may call this one. Everything is linear:
patterns start at a fixed prefix and take the whole run of characters in one step, and values are walked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

MARK: Final = "[REDACTED]"
"""What stands in place of a secret."""


def default_redact(text: str) -> str:
    """`text` without credentials.

    Args:
        text: Anything; a megabyte takes some tenths of a second at most.

    Returns:
        The same text with `[REDACTED]` in place of each value that is taken for a secret; key names, hosts and users stay. Redacting the
        result again changes nothing.
    """
    if "-----" in text:
        text = _private_keys(text)
    if "://" in text:
        text = _in_urls(text)
    text = _tokens(text)
    text = _headers(text)
    return _replaced(text, _assigned(text))


# --- private keys ----------------------------------------------------------------------------------------------------------------------------

_KEY_NAME = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BLOCK = re.compile(rf"(-----BEGIN {_KEY_NAME})[^-]*+(?:-(?!----)[^-]*+)*+(-----END {_KEY_NAME})")
_KEY_HEAD = re.compile(rf"(-----BEGIN {_KEY_NAME})(?!\[)((?:\s|\\[nr]|[\"'+,])*+(?:[A-Za-z0-9+/=]{{24,}}+(?:\s|\\[nr]|[\"'+,])*+)++(?:[A-Za-z0-9+/=]{{4,}})?)")
_KEY_END = re.compile(rf"-----END {_KEY_NAME}")
_KEY_LINE = re.compile(r"[\s\"'+,]*(?:[A-Za-z0-9+/=]{1,80}|\[REDACTED\])?[\s\"'+,]*")
_LINE_BREAK = re.compile(r"\\r\\n|\\n|\n")
_KEY_LOOK_BACK: Final = 16_384


def _private_keys(text: str) -> str:
    """Whole blocks, blocks cut off behind their beginning, and blocks cut off in front of their end."""
    text = _KEY_BLOCK.sub(rf"\1{MARK}\2", text)
    text = _KEY_HEAD.sub(rf"\1{MARK}", text)
    return _replaced(text, _key_tails(text))


def _key_tails(text: str) -> Iterator[tuple[int, int]]:
    """Lines of base64 in front of an `END` whose `BEGIN` was cut away."""
    for end in _KEY_END.finditer(text):
        floor = max(0, end.start() - _KEY_LOOK_BACK)
        above = text[floor : end.start()]
        start = len(above)
        pieces = [0, *(found.end() for found in _LINE_BREAK.finditer(above))]
        for piece in reversed(pieces):
            line = _LINE_BREAK.sub("", above[piece:start])
            if _KEY_LINE.fullmatch(line) is None or (piece == pieces[-1] and not line.strip() and len(pieces) == 1):
                break
            start = piece
        if len(above[start:].strip()) >= 16 and MARK not in above[start:]:
            yield floor + start, end.start()


# --- tokens with a form of their own ---------------------------------------------------------------------------------------------------------

_W = "[A-Za-z0-9_-]"
_TOKEN_FORMS: Final[tuple[tuple[str, str], ...]] = (
    ("sk-", rf"{_W}{{16,}}+"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    ("sk_live_", r"\w{10,}+"),  # Stripe
    ("sk_test_", r"\w{10,}+"),
    ("rk_live_", r"\w{10,}+"),
    ("rk_test_", r"\w{10,}+"),
    ("whsec_", r"[A-Za-z0-9+/=]{16,}+"),
    ("ghp_", r"\w{20,}+"),  # GitHub
    ("gho_", r"\w{20,}+"),
    ("ghu_", r"\w{20,}+"),
    ("ghs_", r"\w{20,}+"),
    ("ghr_", r"\w{20,}+"),
    ("github_pat_", r"\w{20,}+"),
    ("glpat-", rf"[\w.-]{{16,}}+"),  # GitLab
    ("gldt-", rf"{_W}{{16,}}+"),
    ("glrt-", rf"[\w.-]{{16,}}+"),
    ("glptt-", rf"{_W}{{16,}}+"),
    ("glcbt-", rf"{_W}{{16,}}+"),
    ("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS key ids
    ("ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("AIza", rf"{_W}{{30,}}+"),  # Google
    ("ya29.", rf"{_W}{{20,}}+"),
    ("GOCSPX-", rf"{_W}{{20,}}+"),
    ("1//0", rf"{_W}{{24,}}+"),
    ("xoxa-", rf"{_W}{{10,}}+"),  # Slack
    ("xoxb-", rf"{_W}{{10,}}+"),
    ("xoxe-", rf"{_W}{{10,}}+"),
    ("xoxo-", rf"{_W}{{10,}}+"),
    ("xoxp-", rf"{_W}{{10,}}+"),
    ("xoxr-", rf"{_W}{{10,}}+"),
    ("xoxs-", rf"{_W}{{10,}}+"),
    ("xapp-", rf"{_W}{{10,}}+"),
    ("hooks.slack.com/services/", r"[A-Za-z0-9/]{16,}+"),
    ("npm_", r"[A-Za-z0-9]{30,}+"),
    ("pypi-", rf"{_W}{{24,}}+"),
    ("hf_", r"[A-Za-z0-9]{20,}+"),
    ("gsk_", r"[A-Za-z0-9]{20,}+"),
    ("xai-", r"[A-Za-z0-9]{20,}+"),
    ("pplx-", r"[A-Za-z0-9]{20,}+"),
    ("r8_", r"[A-Za-z0-9]{24,}+"),
    ("tvly-", rf"{_W}{{16,}}+"),
    ("lsv2_", r"\w{24,}+"),
    ("SG.", rf"{_W}{{16,80}}\.{_W}{{16,80}}"),
    ("dop_v1_", r"[a-f0-9]{40,}+"),
    ("doo_v1_", r"[a-f0-9]{40,}+"),
    ("dckr_pat_", rf"{_W}{{16,}}+"),
    ("dapi", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("shpat_", r"[A-Za-z0-9]{24,}+"),
    ("shpss_", r"[A-Za-z0-9]{24,}+"),
    ("hvs.", rf"{_W}{{20,}}+"),
    ("lin_api_", r"[A-Za-z0-9]{24,}+"),
    ("ATATT3", rf"[\w=-]{{24,}}+"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}+"),
    ("NRAK-", r"[A-Z0-9]{20,}+"),
    ("sbp_", r"[a-f0-9]{32,}+"),
)
# Prefixes that alone show what a token is for; the others are replaced whole.
_KEEP: Final = {"hooks.slack.com/services/": "hooks.slack.com/services/"}
_TOKENS: Final = tuple((prefix, re.compile(re.escape(prefix) + form), _KEEP.get(prefix, "")) for prefix, form in _TOKEN_FORMS)
# A JWT may stand behind an encoded blank or equals sign; elsewhere only the beginning of a run is looked at, which keeps the scan linear.
_JWT = re.compile(r"(?:(?<![\w-])|(?<=%20)|(?<=%3D))eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+)?")
_TELEGRAM = re.compile(r"(?<![\w:])\d{8,10}:AA[\w-]{33}(?![\w-])")


def _tokens(text: str) -> str:
    for prefix, pattern, keep in _TOKENS:
        if prefix in text:
            text = pattern.sub(lambda found, keep=keep: _token_or_name(found, keep), text)  # type: ignore[misc]
    if "eyJ" in text:
        text = _JWT.sub(MARK, text)
    return _TELEGRAM.sub(MARK, text) if ":AA" in text else text


def _token_or_name(found: re.Match[str], keep: str) -> str:
    """A token, unless it is the middle of a word or made of words: `task-…`, `sk-loading-spinner-large`."""
    before = found.string[found.start() - 1 : found.start()] if found.start() else ""
    random = any(character.isdigit() for character in found[0][3:])
    return keep + MARK if random and not (before.isalnum() or before == "_") else found[0]


# --- URLs and headers ------------------------------------------------------------------------------------------------------------------------

_USER_INFO = re.compile(r"://([^\s/:@\"'<>\[\]]{0,128}):([^\s/\"'<>]{1,512})@(?=[\w\[.-])")
_SCHEME = re.compile(r"(?<![\w-])(Bearer|Basic|token)(\s{1,3}|%20)([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(?<![A-Za-z0-9])((?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:(?:bearer|basic|token|apikey|key|digest|negotiate)\s{1,3})?)([^\s\"'\\,;<>]{1,}+)",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"(?<![A-Za-z0-9])((?:set-)?cookie[\"']?:\s{0,3}[\"']?)([^\s\"'<>=;]{1,128}=[^\s\"'<>]{4,}+(?:; ?[^\s\"'<>=;]{1,128}=[^\s\"'<>]{1,}+)*+)", re.IGNORECASE)
_CURL_USER = re.compile(r"((?<=\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,128}:)([^\s\"']{1,512})")
_IDENTIFIED = re.compile(r"((?<![A-Za-z])(?:identified by|password)\s{1,3}['\"])([^'\"\n]{1,256})(?=['\"])", re.IGNORECASE)


def _in_urls(text: str) -> str:
    """Passwords in `scheme://user:password@host`."""

    def hide(found: re.Match[str]) -> str:
        return found[0] if _placeholder(found[2]) else f"://{found[1]}:{MARK}@"

    return _USER_INFO.sub(hide, text)


def _headers(text: str) -> str:
    """Authorization headers, bearer tokens wherever they stand, cookies, `curl -u`, SQL passwords."""
    text = _AUTHORIZATION.sub(_hide_unless(_is_scheme_word), text)
    text = _SCHEME.sub(lambda found: found[1] + found[2] + MARK if _random(found[3]) else found[0], text)
    if "ookie" in text or "OOKIE" in text:
        text = _COOKIE.sub(_hide_unless(_placeholder), text)
    if "curl" in text:
        text = _CURL_USER.sub(_hide_unless(lambda value: value.isdigit() or _placeholder(value)), text)
    return _IDENTIFIED.sub(_hide_unless(_placeholder), text)


def _hide_unless(harmless: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    return lambda found: found[0] if harmless(found[2]) else found[1] + MARK


def _is_scheme_word(value: str) -> bool:
    words = "bearer basic token apikey digest negotiate header headers none null true false required missing invalid failed str"
    return _placeholder(value) or value.lower().rstrip(".") in words.split() or any(mark in value for mark in "([{")


# --- assignments -----------------------------------------------------------------------------------------------------------------------------

_KEY = re.compile(
    r"(?:passw(?:or)?d|passphrase|passcode|secret|token|credentials?|pwd|(?:api|access|auth|account|private|signing|encryption|master|shared)[_-]?key|"
    r"(?<=[?&])(?:sig|signature|key|code|auth|x-amz-signature|x-amz-security-token)(?==))"
    r"(?P<tail>[\w-]{0,40}+)(?P<sep>\\{0,3}[\"'`]?[*]{0,2}\s{0,3}(?::=|=>|[:=](?!=))[*]{0,2}\s{0,3}|(?<=[\w-])[ =](?=\S))",
    re.IGNORECASE,
)
_KEY_BEGINNING = re.compile(r"[\w-]{0,60}$")
_PLAIN = re.compile(r"[^\s\"'`<>]{1,1000}")
_PLAIN_REST = re.compile(r"[^\s\"'`<>]*+")
_TAIL_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Behind "token", "secret" and so on these make the value a name, a place or a number about the secret.
_ABOUT: Final = frozenset(
    "type url uri name file path dir limit count counts length len min max env id ids ttl expiry expires expiration budget usage window estimate "
    "policy reset test tests field label size version provider endpoint header prefix suffix ref manager source store param index rate cost price "
    "threshold per second seconds minute hint input prompt column number required enabled status error message format".split()
)
_WORDS: Final = frozenset(
    "none null nil true false str string bytes int integer float bool any object text number char varchar secretstr optional required undefined "
    "unset empty missing invalid expired revoked wrong incorrect passed failed ok error skipped done set yes no on off n/a na todo tbd redacted "
    "hidden masked self this await new type const let var password passwd secret token bearer basic".split()
)


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    """Where the secret values of assignments stand."""
    done = 0
    for found in _KEY.finditer(text):
        if found.start() < done:
            continue
        span = _value_span(text, found)
        if span is not None:
            done = span[1]
            yield span


def _value_span(text: str, found: re.Match[str]) -> tuple[int, int] | None:
    """The value behind one key, if it is a secret."""
    tail, sep = found["tail"], found["sep"]
    if _tells_about(tail):
        return None
    key = _KEY_BEGINNING.search(text, max(0, found.start() - 60), found.start())
    head = key[0] if key else ""
    flag = text[max(0, found.start() - len(head)) : found.start()].startswith("--")
    if sep in (" ", "=") and ":" not in sep and sep == " " and not flag:
        return None
    weak = found[0].lower().startswith(("token", "credential", "pwd")) or head.lower().lstrip("-").startswith("test")
    start = found.end()
    quote = _opening_quote(text, start)
    if quote:
        return _quoted_span(text, start, quote, weak=weak)
    return _plain_span(text, start, head + found[0][: len(found[0]) - len(sep)], sep, weak=weak)


def _tells_about(tail: str) -> bool:
    """Whether the rest of the key says that the value is not the secret itself: `token_limit`, `tokenizer`, `passwordFile`."""
    if not tail:
        return False
    if tail[0].islower():
        return True
    words = _TAIL_WORDS.findall(tail)
    return bool(words) and words[-1].lower() in _ABOUT


def _opening_quote(text: str, start: int) -> str:
    for quote in ('\\\\\\"', '\\"', "\\'", '"""', '"', "'", "`"):
        if text.startswith(quote, start):
            return quote
    return ""


def _quoted_span(text: str, start: int, quote: str, *, weak: bool) -> tuple[int, int] | None:
    start += len(quote)
    line_end = text.find("\n", start, start + 1_000)
    limit = line_end if line_end >= 0 else min(len(text), start + 1_000)
    stop = text.find(quote, start, limit)
    while stop > start and len(quote) == 1 and text[stop - 1] == "\\" and text[stop - 2 : stop - 1] != "\\":
        stop = text.find(quote, stop + 1, limit)
    value = text[start : stop if stop >= 0 else limit]
    return (start, start + len(value)) if _is_secret(value, weak=weak, quoted=True) else None


def _plain_span(text: str, start: int, key: str, sep: str, *, weak: bool) -> tuple[int, int] | None:
    found = _PLAIN.match(text, start)
    if found is None:
        return None
    value = found[0]
    environment = sep == "=" and key.isupper()
    if "=" in sep and not environment:
        value = re.split(r"[;&,]", value, maxsplit=1)[0]
    elif environment and (cut := re.search(r"[;&|]+$|&&|\|\|", value)):
        value = value[: cut.start()]
    if text[start + len(value) : start + len(value) + 1] in ("", "\n", "\r", " ", "\t"):
        value = value.rstrip(",;)]}")
    if not value or not _is_secret(value, weak=weak and not environment, quoted=False):
        return None
    if sep.strip("*\"'`\\ \t") == ":" and not _random(value) and not _ends_line(text, start + len(value)):
        return None  # prose: "Password: must contain a digit"
    stop = start + len(value)
    if len(found[0]) == 1000 and len(value) == 1000:
        rest = _PLAIN_REST.match(text, stop)
        stop = rest.end() if rest else stop
    return start, stop


def _ends_line(text: str, at: int) -> bool:
    rest = text[at : at + 4].lstrip(" \t,;)]}\"'*")
    return rest[:1] in ("", "\n", "\r", "#")


def _is_secret(value: str, *, weak: bool, quoted: bool) -> bool:
    """Whether a value behind a telling key is the secret itself. `weak`: the key also has everyday meanings, so the value must look random."""
    bare = value.strip()
    if not bare or _placeholder(bare) or bare.lower().rstrip(".:") in _WORDS or _is_path(bare):
        return False
    if weak:
        return _random(bare) and " " not in bare
    if quoted:
        return not (bare.count(" ") >= 3 and bare[-1] in ".!?")
    if any(mark in bare for mark in "([{") or bare.startswith(("self.", "os.", "process.", "config.", "settings.", "env.", "args.")):
        return False
    return not (bare.isidentifier() and _names_a_secret(bare))


def _names_a_secret(identifier: str) -> bool:
    """A variable that is passed on (`password=user_password`), not a value."""
    return not any(character.isdigit() for character in identifier) and re.search(r"pass|secret|token|key|pwd|cred", identifier, re.IGNORECASE) is not None


def _placeholder(value: str) -> bool:
    return value.startswith(("$", "%", "{", "<", "*", "…", "...", MARK)) or value.strip("xX.*•-_") == "" or value.startswith(("your-", "your_", "YOUR_"))


def _is_path(value: str) -> bool:
    return re.fullmatch(r"(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]+)*/?", value) is not None and not (len(value) == 40 and "." not in value)


def _random(value: str) -> bool:
    """Whether a value looks generated or chosen as a secret rather than written as a word."""
    if len(value) < 8:
        return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    digits, upper, lower = (any(test(c) for c in value) for test in (str.isdigit, str.isupper, str.islower))
    return (digits and (upper or lower)) or (upper and lower and (len(value) >= 16 or "." in value or "=" in value or not value[1:].islower()))


def _replaced(text: str, spans: Iterator[tuple[int, int]]) -> str:
    out, done = [], 0
    for start, stop in spans:
        out += [text[done:start], MARK]
        done = stop
    return "".join([*out, text[done:]]) if out else text
