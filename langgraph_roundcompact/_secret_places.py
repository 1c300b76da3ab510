"""Places of secrets that are no plain assignment: headers, flags of commands, pairs of name and value, sentences, tables, password hashes.

Where the place says for certain that a secret stands there, any value goes; where a sentence or a table may speak of something else, the value
must look generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from langgraph_roundcompact._secret_judge import MARK, hide_unless, is_generated, is_placeholder, is_random, tells_about, words_of

_Judge = Callable[[str], bool]
_Rule = tuple[tuple[str, ...], re.Pattern[str], _Judge]

_SCHEME_WORDS: Final = words_of(
    """bearer basic token apikey digest negotiate header headers none null true false required missing invalid failed str"""
)


def _is_scheme_word(value: str) -> bool:
    return is_placeholder(value) or value.lower().rstrip(".") in _SCHEME_WORDS or any(mark in value for mark in "([{")


def _is_word(value: str) -> bool:
    return not is_random(value)


def _is_number(value: str) -> bool:
    return value.isdigit() or is_placeholder(value)


def _is_no_base64(value: str) -> bool:
    return len(value) % 4 != 0 or (_has_no_digit(value) and not value.endswith("="))


def _has_no_digit(value: str) -> bool:
    return is_placeholder(value) or not is_random(value) or not any(character.isdigit() for character in value)


def _is_plain(value: str) -> bool:
    return not is_generated(value.rstrip(".,:;!?"))


# --- headers, flags, hashes --------------------------------------------------------------------------------------------------------------

_SCHEME = r"(?:bearer|basic|token|apikey|key|digest|negotiate)\s{1,3}|[A-Za-z][A-Za-z0-9-]{1,24}\s{1,3}(?=\[REDACTED\]|[^\s\"'\\,;<>]{12})"
_FLAG = r"(?<![\w-])(?:sshpass\b[^\n]{0,40}? -p|docker login\b[^\n]{0,100}? -p|redis-cli\b[^\n]{0,100}? -a|ldap\w{1,12}\b[^\n]{0,200}? -w) ?[\"']?"
_HASHES = r"1|2[abxy]?|5|6|y|7|apr1|argon2id?|argon2[di]|scrypt|pbkdf2[\w-]{0,20}"
_FOREIGN = (
    r"mot[_ -]de[_ -]passe|contrase[ñn]a|senha|palavra-passe|parola|wachtwoord|has[łl]o|lösenord|adgangskode|şifre|parool|"
    r"пароль|密码|密碼|口令|パスワード|暗証番号|비밀번호|كلمة المرور|كلمة السر"
)
_SAYS = r"[\"'」]?\s{0,3}(?:[:=：＝]|是|为|為|は|는|ist|est|es|é|is|är|er)\s{0,3}"
_FOREIGN_GATE = (
    *(
        "de passe",
        "de_passe",
        "de-passe",
        "contrase",
        "senha",
        "parola",
        "wachtwoord",
        "haslo",
        "hasło",
        "lösenord",
        "adgangskode",
        "şifre",
        "parool",
    ),
    *("пароль", "Пароль", "密", "口令", "パスワード", "暗証", "비밀", "كلمة"),
)
# In lower case: one of the words, the pattern, what of the values is none. The first group stays, the second goes.
_RULES: Final[tuple[_Rule, ...]] = (
    (
        ("authorization",),
        re.compile(rf"(?<![A-Za-z0-9])(authorization[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?(?:{_SCHEME})?)([^\s\"'\\,;<>]++)", re.IGNORECASE),
        _is_scheme_word,
    ),
    (
        ("bearer", "basic"),
        re.compile(r"([Bb](?<![\w-].)(?i:earer|asic)(?:\s{1,3}|%20))([A-Za-z0-9._~+/=-]{8,}+)"),
        _is_word,
    ),
    (("signature=",), re.compile(r"((?<![A-Za-z])signature=)([A-Za-z0-9%+/_-]{20,}+)", re.IGNORECASE), _is_word),
    (
        ("cookie",),
        re.compile(r"(?<![A-Za-z0-9])((?:set-)?cookie[\"']?:\s{0,3}[\"']?)([^\s\"'<>=;:]{1,128}=[^\n\"'<>]{4,}+)", re.IGNORECASE),
        is_placeholder,
    ),
    (("curl",), re.compile(r"((?<=\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,128}:)([^\s\"']{1,512})"), _is_number),
    (("curl",), re.compile(r"((?<=\s)(?:-b|--cookie)[ =]?[\"']?[^\s\"'=;@]{1,128}=)([^\s\"';]{6,512})"), is_placeholder),
    (
        ("identified by", "password"),
        re.compile(r"((?<![A-Za-z])(?:identified by|password)\s{1,3}['\"])([^'\"\n]{1,256})(?=['\"])", re.IGNORECASE),
        is_placeholder,
    ),
    (("sshpass", "docker login", "redis-cli", "ldap"), re.compile(rf"({_FLAG})([^\s\"']{{4,256}})"), _is_number),
    (("sqlcmd", "bcp "), re.compile(r"((?<![\w-])(?:sqlcmd|bcp)\b[^\n]{0,200}? -P ?[\"']?)([^\s\"']{4,256})"), _is_number),
    (("storepass", "keypass"), re.compile(r"((?<=-)(?:src|dest)?(?:storepass|keypass)[ =][\"']?)([^\s\"']{4,256})"), is_placeholder),
    (("authtoken",), re.compile(r"((?<![A-Za-z0-9])(?:add-)?authtoken\s{1,3})([\w-]{20,}+)"), _is_word),
    (("psk",), re.compile(r"((?<![A-Za-z0-9])(?:wpa-)?psk=\"?)([^\s\"]{8,64})(?=\"|\s|\Z)", re.IGNORECASE), _is_word),
    ((":5432:", ":5433:", ":6432:"), re.compile(r"((?<![^\n])[^\s:]{1,128}:\d{4}:[^\s:]{1,64}:[^\s:]{1,64}:)([^\s]{4,256})"), is_placeholder),
    (("mysql",), re.compile(r"((?<![\w-])mysql\w{0,12}\b[^\n]{0,100}? -p[\"']?)([^\s\"']{3,256})"), _is_number),
    (("thin:",), re.compile(r"(:thin:[^\s/:@]{1,64}/)([^\s@\"']{1,128})(?=@)"), is_placeholder),
    (("auth",), re.compile(r"([Aa](?<![A-Za-z0-9].)(?i:uth)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)([A-Za-z0-9+/]{12,}+={0,2})"), _is_no_base64),
    (("password",), re.compile(r"((?<![\w-])password[ \t]{1,3})([^\s\"'<>\[\]]{8,256}+)", re.IGNORECASE), _is_plain),
    (("$",), re.compile(rf"(\$(?:{_HASHES})\$)([./A-Za-z0-9$=,+]{{16,}}+)"), is_placeholder),
    (_FOREIGN_GATE, re.compile(rf"((?<![A-Za-z])(?:{_FOREIGN}){_SAYS}[\"'「]?)([!-~]{{4,256}})", re.IGNORECASE), _has_no_digit),
)  # fmt: skip
_GATES: Final = tuple((tuple(word.encode() for word in words), pattern, judge) for words, pattern, judge in _RULES)

# --- names and values apart --------------------------------------------------------------------------------------------------------------

# A set in front, then the words by their first letter: `re` skips to the next member of a set at C speed.
_NAME = (
    r"[PpSsTtAaEeMmCc](?i:(?<=p)(?:ass(?:wor[dt]|wd|phrase|code)|wd|rivate[ _-]?key)|(?<=s)(?:ecret|igning[ _-]?key)|(?<=t)oken|"
    r"(?<=a)(?:pi|ccess|uth|ccount)[ _-]?key|(?<=e)ncryption[ _-]?key|(?<=m)aster[ _-]?key|(?<=c)redential)"
)
_TAIL = r"(?P<tail>[\w.-]{0,40}+)"
_VALUE = r"(?P<value>[^\s\"'`<>|,;()\[\]{}]{6,256}+)"
_SAYS_SO = r"\s{1,3}(?:is|was|are|ist|lautet)"
# `("password", "x")`, `environ["KEY"] = "x"`, "the password is 'x'", and pairs of a name and a value in JSON, XML and YAML, where the value may
# be on the next line; and where a sentence or a table may speak of something else: "the password is x", "encryption key: x", "| token | x |".
_APART = re.compile(
    rf"{_NAME}{_TAIL}(?:(?P<sure>[\"']\]?\)?\s{{0,3}}[=:,]\s{{0,3}}[\"']|{_SAYS_SO}:?\s{{0,3}}[\"'`]"
    rf"|[\"']?\s{{0,3}},?\s{{0,40}}[\"']?(?i:value)[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?)"
    rf"|{_SAYS_SO}(?::|\s{{1,3}})|\s{{0,3}}[:|]\s{{1,3}}[\"'`]?){_VALUE}"
)
# `ENV API_KEY x`, `set -x API_KEY x`; `PRIMARY KEY id_2` has no joint in front of the word.
_LEAST_SET: Final = 12
_SET = re.compile(rf"[PST_](?:(?<=P)ASSW(?:OR)?D|(?<=S)ECRET|(?<=T)OKEN|(?<=_)(?:KEY|PWD))[ \t]{{1,3}}[\"']?{_VALUE}")


def hide_placed(text: str, lowered: bytes, names: bool) -> str:
    """`text` with `MARK` in such places. Linear.

    Args:
        text: Anything.
        lowered: The same in UTF-8 with ASCII letters in lower case.
        names: Whether a word is in it that names a secret.
    """
    for words, pattern, harmless in _GATES:
        if any(map(lowered.__contains__, words)):
            text = pattern.sub(hide_unless(harmless), text)
    return _SET.sub(_hide_generated, _APART.sub(_hide_apart, text)) if names else text


def _hide_apart(found: re.Match[str]) -> str:
    harmless = _has_no_digit if found["sure"] else _is_plain
    return found[0] if tells_about(found["tail"]) or harmless(found["value"]) else _without_value(found)


def _hide_generated(found: re.Match[str]) -> str:
    return found[0] if len(found["value"]) < _LEAST_SET or _is_plain(found["value"]) else _without_value(found)


def _without_value(found: re.Match[str]) -> str:
    return found[0][: found.start("value") - found.start()] + MARK
