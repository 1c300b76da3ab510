"""Credentials that are known by a form of their own: a prefix, and what may follow it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

from langgraph_roundcompact._secret_judge import MARK, is_scrambled

_A, _W = "[A-Za-z0-9]", "[A-Za-z0-9_-]"
_HEX, _LOW = "[a-f0-9]", "[a-z0-9]"
_END = "(?![A-Za-z0-9])"
_GROUPS = f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-"
# Prefixes by what may follow them.
_FORMS: Final[tuple[tuple[str, str], ...]] = (
    # OpenAI, Anthropic, OpenRouter, DeepSeek; GitLab; Tavily; Docker; Figma; Square
    ("sk- glptt- gldt- glft- glagent- glimt- glsoat- gloas- glffct- tvly- dckr_pat_ dckr_oat_ figd_ sq0atp-", rf"{_W}{{16,}}+"),
    ("glpat- glrt- glcbt-", r"[\w.-]{16,}+"),
    ("GR1348941", rf"{_W}{{20,}}+"),
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", r"\w{10,}+"),  # Stripe, Clerk
    ("sk_", rf"{_HEX}{{48}}{_END}"),  # ElevenLabs
    ("whsec_", r"[A-Za-z0-9+/=]{16,}+"),
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w{20,}+"),
    ("AKIA ASIA ABIA ACCA", rf"[A-Z0-9]{{16}}{_END}"),  # AWS
    ("ABSK", rf"[A-Za-z0-9+/]{{100,}}+={{0,2}}{_END}"),
    ("bedrock-api-key-", r"[\w+/=-]{40,}+"),
    ("amzn.mws.", rf"{_GROUPS}{_A}{{12}}"),
    ("AIza", rf"{_W}{{30,}}+"),  # Google
    ("ya29. GOCSPX-", rf"{_W}{{20,}}+"),
    ("1//0", rf"{_W}{{24,}}+"),
    ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxe.xoxp- xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w%-]{10,}+"),  # Slack
    ("hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/", r"[A-Za-z0-9/]{16,}+"),
    ("discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\d{10,24}/[\w-]{20,}+"),
    ("webhook.office.com/webhookb2/", r"[\w@/-]{40,}+"),
    ("hooks.zapier.com/hooks/catch/", r"\d{4,12}/\w{6,}+"),
    ("npm_ ntn_", rf"{_A}{{30,}}+"),
    ("hf_ api_org_ gsk_ xai- pplx-", rf"{_A}{{20,}}+"),  # Hugging Face, Groq, xAI, Perplexity
    ("r8_ shpat_ shpss_ shpca_ shppa_ lin_api_", rf"{_A}{{24,}}+"),  # Replicate, Shopify, Linear
    ("nvapi- tgp_v1_ pcsk_ tskey- tk-us- duffel_test_ duffel_live_ secret-live- secret-test-", r"[\w=-]{24,}+"),
    ("lsv2_", r"\w{24,}+"),
    ("fio-", rf"u-{_W}{{40,}}+"),
    ("ls_", rf"_{_HEX}{{32}}{_END}"),
    ("csk-", rf"{_LOW}{{40,}}+"),  # Cerebras
    ("fw_", rf"{_A}{{22,}}+"),  # Fireworks
    ("BSA", rf"{_A}{{28}}{_END}"),  # Brave
    ("fc- key- dapi SK", rf"{_HEX}{{32}}{_END}"),  # Firecrawl, Mailgun, Databricks, Twilio
    ("SG.", rf"{_W}{{16,80}}\.{_W}{{16,80}}"),  # SendGrid
    ("re_", rf"{_A}{{8}}_{_A}{{20,}}+"),  # Resend
    ("xkeysib- xsmtpsib-", rf"{_HEX}{{64}}-{_A}{{16}}"),
    ("pypi-", rf"{_W}{{24,}}+"),
    # DigitalOcean, RubyGems, Sonar, Pulumi, Buildkite, Sourcegraph, Shippo, E2B, Supabase
    ("dop_v1_ doo_v1_ dor_v1_ rubygems_ squ_ sqp_ sqa_ pul- bkua_ sgp_ shippo_live_ shippo_test_ e2b_", r"(?:[a-f0-9]{16}_)?[a-f0-9]{40,}+"),
    ("sbp_ s-s4t2ud-", rf"{_HEX}{{32,}}+"),
    ("sb_secret_", rf"{_W}{{24,}}+"),
    ("hvs. hvb. hvr.", rf"{_W}{{20,}}+"),  # Vault
    ("ATATT3 ATCTT3", r"[\w=-]{24,}+"),  # Atlassian
    ("ATBB", rf"{_A}{{32}}{_END}"),
    ("AGE-SECRET-KEY-1 NRAK-", r"[A-Z0-9]{20,}+"),
    ("NRII- NRJS- PRVKEY-", rf"{_W}{{19,}}+"),
    ("sntrys_", r"[\w+/=.-]{20,}+"),  # Sentry
    ("sntryu_", rf"{_HEX}{{20,}}+"),
    ("secret_", rf"{_A}{{40,}}+"),  # Notion, of old
    ("pscale_pw_ pscale_tkn_ pscale_oauth_", r"[\w.-]{20,}+"),  # PlanetScale
    ("dp.pt. dp.ct. dp.st. dp.sa. dp.scim. dp.audit.", r"[\w.]{30,}+"),  # Doppler
    ("PMAK- sq0csp- CFPAT- HRKU-", rf"{_W}{{30,}}+"),  # Postman, Square, Contentful, Heroku
    ("glsa_ rdme_ pnu_ phx_ phs_ ddp_ ddw_ tfp_", r"[\w-]{30,}+"),  # Grafana, ReadMe, Prefect, PostHog, Deno, Typeform
    ("glc_", r"[\w+/=]{30,}+"),
    ("eyJrIjoi", r"[A-Za-z0-9+/=]{50,}+"),
    ("dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{40,}+"),  # Dynatrace
    ("EAA", rf"(?:C{_A}{{40,}}+|[ABD-P]{_A}{{60,}}+(?![+/=_-]))"),  # Facebook, Square
    ("oy2", rf"{_LOW}{{43}}{_END}"),  # NuGet
    ("vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", r"\w{24,}+"),
    ("npg_", rf"{_A}{{12,16}}{_END}"),  # Neon
    ("napi_ CLOJARS_", rf"{_LOW}{{60,}}+"),
    ("live_ test_", rf"{_HEX}{{35}}{_END}"),  # Lob
    ("access-sandbox- access-development- access-production-", rf"{_GROUPS}{_HEX}{{12}}"),  # Plaid
    ("access_token$production$", rf"{_LOW}{{16}}\${_HEX}{{32}}"),  # Braintree
    ("LTAI", rf"{_A}{{12,20}}{_END}"),  # Alibaba
    ("AKID", rf"{_A}{{32}}{_END}"),  # Tencent
    ("AKLT", rf"{_A}{{32,}}+"),
    ("SCW", rf"[A-Z0-9]{{17}}{_END}"),  # Scaleway
    ("AQVN", rf"{_W}{{35,38}}{_END}"),  # Yandex
    ("t1.", rf"{_W}{{20,}}={{0,2}}\.{_W}{{80,}}={{0,2}}"),
    ("y0_ y1_ y2_ y3_", rf"{_W}{{50,}}+"),
    ("AKCp cmVmdGtu", rf"{_A}{{55,}}+"),  # Artifactory
    ("EZAK EZTK", rf"{_A}{{54}}{_END}"),  # EasyPost
    ("FLWSECK- FLWSECK_TEST-", rf"{_W}{{12,}}+"),
    ("fm1a_ fm1r_ fm2_ fo1_", r"[\w+/=,-]{40,}+"),  # Fly
    ("v1.0-", rf"{_HEX}{{24}}-{_HEX}{{140,}}+"),  # Cloudflare
    ("ops_eyJ", r"[\w=+/-]{100,}+"),  # 1Password
    ("A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    ("API-", rf"[A-Z0-9]{{26}}{_END}"),  # Octopus
    ("CCIPAT_", rf"{_A}{{22}}_{_HEX}{{40}}"),
    ("sl.", rf"(?:u\.)?{_W}{{120,}}+"),  # Dropbox
    ("mfa.", rf"{_W}{{80,}}+"),  # Discord
    # Discord's bots, whose id is a number in base64.
    (
        " ".join(first + second for first in "MNO" for second in "DTjz"),
        r"[AEIMQUYcgk][w-z0-5](?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){4,5}[A-Za-z0-9]{0,4}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])",
    ),
    ("ico- sup_sk_ p8e-", rf"{_A}{{32}}{_END}"),
    ("sm_aat_", rf"{_A}{{16}}{_END}"),
    ("pat", rf"{_A}{{14}}\.{_HEX}{{64}}"),  # Airtable
    ("pat.", rf"{_W}{{22}}\.{_HEX}{{24}}\.{_A}{{20}}"),  # Harness
    ("s.", rf"(?=[a-zA-Z]*\d[a-zA-Z]+\d){_A}{{24}}(?![\w(.])"),  # Vault, of old
    ("sha256~", rf"{_W}{{43}}{_END}"),  # OpenShift
    ("oauth:", rf"{_LOW}{{30}}{_END}"),  # Twitch
    ("SSWS ", rf"{_W}{{20,}}+"),  # Okta
    ("S", rf"[A-Z2-7]{{55,57}}{_END}"),  # seeds of NATS and Stellar
    ("xprv", rf"{_A}{{107}}{_END}"),
    # Base64 of a JWT, and of a PEM block that is neither certificate nor public key: what a Kubernetes secret holds.
    ("ZXlK", r"[A-Za-z0-9+/_-]{60,}+={0,2}"),
    ("LS0tLS1CRUdJTi", r"(?!BDRVJUSUZJQ0FUR|BQVUJMSUMg)[A-Za-z0-9+/]{40,}+={0,2}"),
)
# Prefixes that show what a token is for; the others are replaced with it.
_SHOWN: Final = ("hooks.", "discord", "webhook.", "SSWS ", "oauth:")
_Token = tuple[str, re.Pattern[str]]
_JOINT_END = re.compile(r".*(..)([_.-])")


def _by_joint() -> dict[str, dict[str, list[_Token]]]:
    """Forms by the last joint of their prefix and the two characters before it; under `""` those without one."""
    forms: dict[str, dict[str, list[_Token]]] = {}
    for prefixes, form in _FORMS:
        for prefix in (prefixes,) if prefixes.endswith(" ") else prefixes.split():
            end, joint = found.groups() if (found := _JOINT_END.match(prefix)) else ("", "")
            forms.setdefault(joint, {}).setdefault(end, []).append((prefix, re.compile(re.escape(prefix) + form)))
    return forms


_TOKENS: Final = _by_joint()
_LAST_TWO = itemgetter(slice(-2, None))
# A JWT may stand behind an encoded blank or equals sign; elsewhere only the beginning of a run is looked at, which keeps the scan linear.
_JWT = re.compile(r"(?:(?<![\w-])|(?<=%20)|(?<=%3D))eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+)?")
_TELEGRAM = re.compile(r"(?:(?<![\w:])|(?<=/bot))\d{8,10}:AA[\w-]{33}(?![\w-])")
# Known by what stands in the middle or at the end: Terraform Cloud, Entra client secrets, Mailchimp, MaxMind, Azure DevOps, Azure AI, Azure keys that
# name their service, Twitter.
_BY_MIDDLE: Final = (
    (".atlasv1.", re.compile(r"(?<![\w.-])[A-Za-z0-9]{10,20}\.atlasv1\.[\w-]{40,}+")),
    ("Q~", re.compile(r"(?<![\w~.-])[\w~.-]{3}[78]Q~[\w~.-]{30,36}(?![\w~.-])")),
    ("-us", re.compile(r"(?<![A-Za-z0-9])[a-f0-9]{32}-us\d{1,2}(?!\w)")),
    ("_mmk", re.compile(r"(?<!\w)[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)")),
    ("AZDO", re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])")),
    ("JQQJ99", re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{40,60}JQQJ99[A-Za-z0-9]{16,40}+")),
    *((name, re.compile(rf"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{76}}{re.escape(name)}[A-Za-z0-9+/]{{6}}==")) for name in ("+ASt", "ACDb")),
    ("AAAAAAAAAAAAAAAAAAAA", re.compile(r"(?<![A-Za-z0-9+/%])A{20,22}(?!A{12})[A-Za-z0-9%]{60,160}+(?![+/=_-])")),
)
_LEAST: Final = 15
"""Characters of the shortest token."""


def hide_tokens(text: str) -> str:
    """`text` with `MARK` in place of each token; linear."""
    if len(text) < _LEAST:
        return text
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
    for prefix, pattern in tokens:
        if prefix in text:
            text = pattern.sub(partial(_token_or_name, prefix), text)
    return text


def _token_or_name(prefix: str, found: re.Match[str]) -> str:
    """A token, unless it is the middle of a word or made of words: `task-…`, `sk-loading-spinner-large`."""
    before = found.string[found.start() - 1 : found.start()] if found.start() else ""
    value = found[0][len(prefix) :]
    if before.isalnum() or before == "_" or not (is_scrambled(value) or any(map(str.isdigit, value))):
        return found[0]
    return (prefix if prefix.startswith(_SHOWN) else "") + MARK
