"""Credentials that are known by a form of their own: a prefix, and what may follow it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import Final

from langgraph_roundcompact._secret_judge import MARK

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
    ("glpat-", r"[\w.-]{16,}+"),  # GitLab
    ("gldt-", rf"{_W}{{16,}}+"),
    ("glrt-", r"[\w.-]{16,}+"),
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
    ("ATATT3", r"[\w=-]{24,}+"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}+"),
    ("NRAK-", r"[A-Z0-9]{20,}+"),
    ("sbp_", r"[a-f0-9]{32,}+"),
    ("discord.com/api/webhooks/", r"\d{10,24}/[\w-]{20,}+"),
    ("discordapp.com/api/webhooks/", r"\d{10,24}/[\w-]{20,}+"),
    ("sntrys_", r"[\w+/=.-]{20,}+"),  # Sentry
    ("sntryu_", r"[a-f0-9]{20,}+"),
    ("ntn_", r"[A-Za-z0-9]{30,}+"),  # Notion
    ("secret_", r"[A-Za-z0-9]{40,}+"),
    ("pscale_pw_", r"[\w.-]{20,}+"),  # PlanetScale
    ("pscale_tkn_", r"[\w.-]{20,}+"),
    ("dp.pt.", r"\w{30,}+"),  # Doppler
    ("dp.st.", r"[\w.]{30,}+"),
    ("PMAK-", rf"{_W}{{30,}}+"),  # Postman
    ("figd_", rf"{_W}{{20,}}+"),
    ("sq0atp-", rf"{_W}{{20,}}+"),  # Square
    ("sq0csp-", rf"{_W}{{30,}}+"),
    ("glsa_", r"\w{30,}+"),  # Grafana
    ("glc_", r"[\w+/=]{30,}+"),
    ("HRKU-", rf"{_W}{{30,}}+"),  # Heroku
    ("dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{40,}+"),  # Dynatrace
    ("EAAC", r"[A-Za-z0-9]{40,}+"),  # Facebook
    ("rubygems_", r"[a-f0-9]{40,}+"),
    ("oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),  # NuGet
    ("CFPAT-", rf"{_W}{{30,}}+"),
    ("shpca_", r"[A-Za-z0-9]{24,}+"),
    ("shppa_", r"[A-Za-z0-9]{24,}+"),
    ("PRVKEY-", rf"{_W}{{20,}}+"),
    ("SK", r"[a-f0-9]{32}(?![A-Za-z0-9])"),  # Twilio
    ("key-", r"[a-f0-9]{32}(?![A-Za-z0-9])"),  # Mailgun
)
# Prefixes that alone show what a token is for; the others are replaced whole.
_KEEP: Final = {url: url for url in ("hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/")}
_Token = tuple[str, re.Pattern[str], str]
_JOINT_END = re.compile(r".*(..)([_.-])")


def _by_joint() -> dict[str, dict[str, list[_Token]]]:
    """Forms by the last joint of their prefix and the two characters before it; under `""` those without one."""
    forms: dict[str, dict[str, list[_Token]]] = {}
    for prefix, form in _TOKEN_FORMS:
        end, joint = found.groups() if (found := _JOINT_END.match(prefix)) else ("", "")
        token = (prefix, re.compile(re.escape(prefix) + form), _KEEP.get(prefix, ""))
        forms.setdefault(joint, {}).setdefault(end, []).append(token)
    return forms


_TOKENS: Final = _by_joint()
_LAST_TWO = itemgetter(slice(-2, None))
# A JWT may stand behind an encoded blank or equals sign; elsewhere only the beginning of a run is looked at, which keeps the scan linear.
_JWT = re.compile(r"(?:(?<![\w-])|(?<=%20)|(?<=%3D))eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+)?")
_TELEGRAM = re.compile(r"(?:(?<![\w:])|(?<=/bot))\d{8,10}:AA[\w-]{33}(?![\w-])")
# Known by what stands in the middle or at the end: Terraform Cloud, Entra client secrets, Mailchimp.
_BY_MIDDLE: Final = (
    (".atlasv1.", re.compile(r"(?<![\w.-])[A-Za-z0-9]{10,20}\.atlasv1\.[\w-]{40,}+")),
    ("Q~", re.compile(r"(?<![\w~.-])[\w~.-]{3}[78]Q~[\w~.-]{30,36}(?![\w~.-])")),
    ("-us", re.compile(r"(?<![A-Za-z0-9])[a-f0-9]{32}-us\d{1,2}(?!\w)")),
)


def hide_tokens(text: str) -> str:
    """`text` with `MARK` in place of each token; linear."""
    for joint, forms in _TOKENS.items():
        if joint in text:
            # To cut a text at its joints and look at the ends costs a tenth of looking for each prefix.
            ends = set(map(_LAST_TWO, text.split(joint))) if joint else {""}
            if not ends.isdisjoint(forms):
                text = _without(text, chain.from_iterable(forms[end] for end in forms if end in ends))
    if "eyJ" in text:
        text = _JWT.sub(MARK, text)
    for middle, pattern in _BY_MIDDLE:
        if middle in text:
            text = pattern.sub(MARK, text)
    return _TELEGRAM.sub(MARK, text) if ":AA" in text else text


def _without(text: str, tokens: Iterable[_Token]) -> str:
    for prefix, pattern, keep in tokens:
        if prefix in text:
            text = pattern.sub(lambda found, keep=keep: _token_or_name(found, keep), text)  # type: ignore[misc]
    return text


def _token_or_name(found: re.Match[str], keep: str) -> str:
    """A token, unless it is the middle of a word or made of words: `task-…`, `sk-loading-spinner-large`."""
    before = found.string[found.start() - 1 : found.start()] if found.start() else ""
    random = any(character.isdigit() for character in found[0][3:])
    return keep + MARK if random and not (before.isalnum() or before == "_") else found[0]
