"""Answers that are no summary by their words: error pages, refusals, remarks of the model about what it will do.

Only beginnings and short texts are judged: a summary may well tell of errors, refusals and plans.
"""

from __future__ import annotations

import re
from typing import Final

from langgraph_roundcompact.errors import RejectionReason

_ERROR_PAGE = re.compile(
    r"\s*(?:<!doctype html|<html[\s>]|<\?xml[^>]{0,200}>\s*(?:<!doctype html|<html|<error)"
    r"|\{\s*\"(?:error|detail|message)\"\s*:|(?:error\s*)?(?:HTTP[ /]?[\d.]{0,4}\s*)?[45]\d\d\s+[A-Z][A-Za-z -]{3,40}\s*$"
    r"|(?:internal server error|bad gateway|service unavailable|gateway time-?out|upstream connect error[^\n]{0,200})[\s.]*$)",
    re.IGNORECASE,
)
# A call that a model writes as text, in the forms of Hermes, Llama, Mistral, DeepSeek, Claude, Gemini and of agents that think in text.
_CALL = re.compile(
    r"(?:^|\n)[ \t]{0,8}(?:```\w{0,12}\s{0,4})?(?:"
    r"</?(?:tool_calls?|function_calls?|tool_use|invoke|function|tool)[ =>\n]|<\|(?:tool_call|python_tag|tool_calls?_\w{1,20}|plugin)|<｜tool"
    r"|\[TOOL_CALLS?\]|\{\s{0,8}\"(?:name|tool|tool_name|function|action)\"\s{0,4}:\s{0,4}\"[^\"\n]{1,100}\",\s{0,8}"
    r"\"(?:arguments|parameters|args|input|action_input|tool_input)\"\s{0,4}:|Action:[^\n]{1,100}\n\s{0,4}Action Input:)"
    r"|(?:^|\n)```tool_(?:code|call)",
)
_CALL_WITHIN: Final = 600
_LONGEST_REFUSAL: Final = 500
_UNABLE: Final = (
    r"(?:can't|cannot|can not|won't|will not|(?:won't|will not|would not) be able to|am unable to|'m unable to|am not able to|'m not able to"
    r"|(?:must|have to) (?:\w{1,15} )?decline)"
)
_SERVE: Final = r"(?:help|assist|comply|fulfil|do (?:that|this)|provide|create|produce|write|generate|summari[sz]e|engage)"
_REFUSAL = re.compile(
    r"\W{0,3}(?:"
    rf"(?:(?:i'm |i am )?(?:very |so |really )?sorry|apologies|i apologi[sz]e|unfortunately|as an ai)\b[^\n]{{0,60}}?{_UNABLE}"
    rf"|i ?{_UNABLE} {_SERVE}|i (?:must|have to) (?:\w{{1,15}} )?(?:decline|refuse)"
    rf"|(?:this|that|the) (?:request|content|conversation)[^\n]{{0,40}}? violates?\b[^\n]{{0,80}}?{_UNABLE}"
    r"|(?:es )?tut mir (?:sehr )?leid[^\n]{0,60}?(?:kann|nicht)|leider kann ich[^\n]{0,60}nicht|(?:dabei |das )?kann ich [^\n]{0,30}nicht helfen"
    r"|ich kann (?:ihnen |dir )?(?:dabei|damit|das|diese\w{0,2})[^\n]{0,40}nicht (?:helfen|tun|ausführen|erfüllen|erstellen|zusammenfassen)"
    r"|(?:je suis )?désolée?[^\n]{0,60}?(?:ne peux|impossible)|je ne peux pas (?:vous |t')?(?:aider|répondre|fournir)"
    r"|lo siento[^\n]{0,60}?no puedo|no puedo (?:ayudar|cumplir|proporcionar)"
    r"|(?:desculpe|sinto muito|lamento)[^\n]{0,60}?não posso|não posso (?:ajudar|fornecer)"
    r"|mi dispiace[^\n]{0,60}?non posso|(?:извините|к сожалению|простите)[^\n]{0,60}?не могу"
    r"|(?:对不起|抱歉|很抱歉|非常抱歉)[^\n]{0,30}?(?:无法|不能|没办法)|我(?:无法|不能)(?:协助|帮助|提供|完成|满足)"
    r"|(?:對不起|很抱歉|非常抱歉)[^\n]{0,30}?(?:無法|不能|沒辦法)|我(?:無法|不能)(?:協助|幫助|提供)"
    r"|(?:het spijt me|sorry)[^\n]{0,60}?kan (?:ik )?[^\n]{0,30}niet|(?:przepraszam|przykro mi)[^\n]{0,60}?nie mog[ęe]"
    r"|(?:üzgünüm|maalesef)[^\n]{0,80}?(?:edemem|olamam|veremem|yapamam)|(?:beklager|tyvärr|ursäkta)[^\n]{0,60}?(?:kan ikke|kan inte)"
    r"|(?:عذر|آسف|أعتذر|للأسف)[^\n]{0,60}?(?:لا أستطيع|لا يمكنني|لا استطيع)|(?:xin lỗi|rất tiếc)[^\n]{0,60}?không thể"
    r"|maaf[^\n]{0,60}?tidak (?:bisa|dapat)"
    r"|(?:क्षमा|माफ़|खेद)[^\n]{0,60}?(?:नहीं)"
    r"|(?:申し訳|すみません|ごめん)[^\n]{0,60}?(?:できません|お手伝い|かねます|応えでき)|(?:죄송|미안)[^\n]{0,60}?(?:없습니다|어렵습니다)"
    r")",
    re.IGNORECASE,
)

_CHARACTERS_A_BYTE: Final = 500
_LARGEST_LEAST: Final = 1_000
_LONGEST_ASIDE: Final = 300
_OPENER: Final = (
    r"ok|okay|sure|certainly|of course|understood|got it|first|next|now|alright|great|verstanden|gut|d'accord|bien|хорошо|понятно"
    r"|好的?|明白了?|了解|はい|承知しました|네"
)  # fmt: skip
_ANNOUNCEMENT = re.compile(
    rf"\W{{0,3}}(?:(?:{_OPENER})[,.!，。！、 ]{{1,3}})?(?:"
    r"let me |let's |i'll |i will |i'm going to |i am going to |i need to |i should |i shall "
    r"|ich werde |ich schaue |ich prüfe |ich muss |lass mich |lassen sie mich |je vais |laissez-moi |laisse-moi "
    r"|voy a |déjame |permíteme |vou |deixe-me |lasciami |sto per |ik zal |ik ga |laat me "
    r"|сейчас |давайте |я (?:проверю|посмотрю|сейчас)|позвольте |دعني |سأقوم |سوف "
    r"|让我|讓我|我来|我來|我将|我將|我会|我會|我先|我需要|接下来我|现在我|まず|では|それでは|次に|먼저|이제|지금)",
    re.IGNORECASE,
)


def no_summary(text: str, *, begins: bool = False) -> RejectionReason | None:
    """Why a whole answer is no summary, by its words: an error page counts as blank, because nothing in it comes from the model.

    A call written as text is one only where the answer begins with it, or with a sentence about it.

    Args:
        text: The answer without reasoning.
        begins: Only a call at the very beginning counts: the text was marked as a snapshot, which may well quote one.
    """
    if _ERROR_PAGE.match(text):
        return "blank"
    if _CALL.match(text) if begins else _CALL.search(text[:_CALL_WITHIN]):
        return "tool_call"
    return "refusal" if len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text.replace("’", "'")) else None


def says_nothing(text: str, replaces: int) -> bool:
    """Whether a text without a snapshot is an aside of the model: a word or two, an announcement of what it will do, a question.

    Args:
        text: The answer.
        replaces: Characters of the work it is to stand for. The least is a byte for each 500 of them, and never more than a thousand bytes;
            summaries that say something are twenty to fifty times as long.
    """
    # Bytes, because a Chinese character says as much as three letters do.
    if len(text[:_LARGEST_LEAST].encode()) < min(replaces // _CHARACTERS_A_BYTE, _LARGEST_LEAST):
        return True
    if len(text) > _LONGEST_ASIDE or "\n" in text:
        return False
    return text.endswith(("?", "？", "؟")) or _ANNOUNCEMENT.match(text.replace("’", "'")) is not None
