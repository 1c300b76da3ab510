"""Which lines of a text carry information, and how much: sentences of the assistant, lines of tool results, answers of people."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate, pairwise

from langgraph_roundcompact._records import json_lines
from langgraph_roundcompact._terms import terms_in

# The mark first, what must stand around it behind: `re` skips to a member of a set at C speed, and to nothing else.
_SENTENCE_END = re.compile(
    r"[.!?:。！？；](?:(?<=[。！？；])|(?:(?<=[.!?])|(?<=[^:]{60}:))\s+(?=[A-Z`\"'(\[*])"
    # A space may be missing; then only a word that begins sentences tells a border from `module.Name`.
    r"|(?<=[a-z)`][.!?])(?=(?:The|This|That|These|We|It|In|To|If|For|On|A|An|However|Now|Next|Since|Let|Our|There|When|Then|So|But|And|I)\b))"
)
_FILLER = re.compile(
    r"^(?:now,? |first,? |next,? |then,? |okay,? |ok,? |great!? |good[,.!]? |perfect!? )*"
    r"(?:let me|let's|i'll|i will|i need to|now i|i'm going to|让我|接下来|现在)\b",
    re.IGNORECASE,
)
_TURN = re.compile(r"\b(?:instead|because|since|different(?:ly)?|rather|again|not|without|anew|fresh)\b|n't\b|改用|重新|而不是", re.IGNORECASE)
_CUE = re.compile(
    r"\b(?:because|cause[sd]?|found|confirm(?:s|ed)?|issue|problem|bug|need(?:s)? to|must|should|decid\w*|instead|not|never|cannot|fail(?:s|ed|ing)?|"
    r"pass(?:es|ed)?|works?|correct|complete|done|fixed|root|only|already|means|however|but|default|called|defined|located|created|explains?|so)\b|"
    r"n't\b|因为|所以|发现|需要|必须|问题|决定|不能|完成|应该",
    re.IGNORECASE,
)
# Looked for in lower-cased text as a whole first: most texts hold few of them, and only those need be looked for in lines.
_ERROR_WORDS = (
    *("error", "exception", "fail", "traceback", "fatal:", "panic", "cannot ", "can't ", "could not ", "unable to ", "not found", "no such "),
    *("denied", "invalid", "undefined", "unexpected", "unrecognized", "unknown ", "missing ", "timed out", "timeout", "refused", "rejected"),
    *("warning", "not exist", "malformed", "unused"),
)
_WIDE_ERROR_WORDS = ("✗", "✘", "错误", "失败", "异常", "无法", "不存在", "拒绝")
_ERROR_CODE = re.compile(r"[eE](?<!\w.)\d{3,}\b")
_HARD_ERROR = re.compile(r"^\S{0,160}(?:error|exception|failed|fatal|panic|FAIL)\S{0,3}[:\s]|^\S{1,150}:\d+(?::\d+)?:? \w|^E\s", re.IGNORECASE)
_FRAME = re.compile(r"\s{1,8}File \"[^\"]{1,300}\", line \d+")
_QUOTED_CODE = ("raise ", "from ", "import ", "except ", "except:", "throw ", "catch ")
"""Source in a traceback: what it says of errors is said by the lines around it."""
_SAYS_NOTHING = re.compile(
    r"Traceback \(most recent call|During handling of the above|The above exception was|"
    r"\W{0,3}(?:command |process )?(?:exit(?:ed)?|finished)(?: with)?(?: exit)? (?:code|status)\W{0,3}-?\d{1,3}\W{0,3}$|<returncode>|"
    r"total \d{1,9}$|\W{0,2}(?:ok|okay|done|success|null|none|no output|true)\W{0,2}$",
    re.IGNORECASE,
)
"""Lines around an error that hold nothing of it, and mere statuses; how a call ended stands beside the call."""
_LOG_ERROR = re.compile(r"^[\[\d][^a-z]{4,60}(?:ERROR|FATAL|CRITICAL|Exception)\b|^\S{0,40}[✗✘×✕]")
_FAILURES = re.compile(r"[1-9](?<![\w.].)\d{0,5} (?:failed|failures?|errors?)\b", re.IGNORECASE)
_COUNT = re.compile(
    r"\d(?<!\d\d)[\d,.]*+\s{0,3}(?:[Pp]assed|[Ff]ailed|[Ee]rror|[Ii]ssue|[Ww]arning|[Tt]est|"
    r"file|line|byte|row|result|match|item|second|ms\b|%|character)|code:? ?-?\d"
)
# `func`, `function`, `fn`, `def`, `class`, `const`, `type`, `trait`, `interface`, `impl`, `struct`, `enum`, `export`, `module`
_DEFINITION = re.compile(
    r"[fdctisem](?<!\w.)(?:(?<=f)(?:unc(?:tion)?|n)|(?<=d)ef|(?<=c)(?:lass|onst)|(?<=t)(?:ype|rait)|(?<=i)(?:nterface|mpl)|(?<=s)truct|"
    r"(?<=e)(?:num|xport)|(?<=m)odule)\s{1,4}\(?\w"
)
_SETTING = re.compile(r"(?:\d+\S? *)?[\w.$@\"'\-]{2,60} {0,8}(?:[:=]|:=) {0,4}(?:[\"'`#$]|-?\d|true\b|false\b|None\b|null\b)", re.IGNORECASE)
"""A name and the value it has, as in configuration and constants."""
_PAIR_LINE = re.compile(r"[\w.\-/]{1,30}(?: [\w.\-/]{1,20}){0,2} ?[:=] ?\S.{0,60}$")
"""A short name and its value."""
_PLACE_LINE = re.compile(r"^\S{1,200}?[:\-]?\d+[:\-]")
_NUMBERED = re.compile(r"\s*(\d{1,7})(?:\s?[→|:\t\-]|\s)")
_CODE_ENDS = tuple("{}();,:[]\\>")
_CODE_STARTS = ("//", "#", "*", "--", "import ", "from ", "return ")
_CODEY = re.compile(r"[{}();,>\\]$|^(?:\d+\S? *)?(?://|#|\*|--)|:=|==|\w\(|\breturn\b|→")
_SOURCE_ENDINGS = tuple(
    map(
        ".{}".format,
        "py pyi js jsx ts tsx mjs cjs go rs java kt c h cc cpp hpp cs rb php swift scala m lua r ex exs hs dart vue sh css scss".split(),  # noqa: SIM905
    )
)
_LOG_ENDINGS = (".log", ".out", ".err", ".txt")
_STACK_WORDS = ("Traceback (most recent", "goroutine ", "thread '", "at ")
_STACK = re.compile(r"^Traceback \(most recent|^\s+at \S+ ?\(|^goroutine \d+|^thread '", re.MULTILINE)
_DIGIT = re.compile(r"\d")
_MASK = re.compile(r"\d+|/\S+")
_CLAUSE = re.compile(r"[,;:，；、] ?|(?<= )[-–—] ")
_TWO_WORDS = re.compile(r"\w{3,}+.*?\w{3,}", re.DOTALL)
_TOPIC = re.compile(r"[^\W\d_]{4,20}|\d{4}")
_WIDE = re.compile(r"[\u2e80-\u9fff]")
_QUANTITY = re.compile(r"[$€¥£\d](?<![A-Za-z\d_.].)(?:(?<=\d)|\d)[\d,.]*+(?: ?(?:%|[A-Za-z]{2,}|[年月日万亿元个家名单座倍]))")
_PAIR = re.compile(r'"([^"]{1,400})"\s{0,4}[=:]\s{0,4}"([^"]{1,2000})"')
_ANSWER_PIECE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'(\[*])|(?<=[。！？；])")
_RULE = re.compile(
    r"\b(?:never|must|only|not|always|without|until|unless|approval|approve|prefer|wants?|should|instead|no|stop|need|consider|include|keep)\b|n't\b|"
    r"不要|必须|只|不能|需要|应该|保持",
    re.IGNORECASE,
)
_MOST_PIECES = 40
"""Pieces of one answer."""
_WRAPPER = re.compile(r"</?[\w\-]{1,40}>|<([\w\-]{1,40})>-?\d{0,4}</\1>|[=\-_*~#]{3,}")
_TITLE = re.compile(r'"(?:title|headline|subject)" ?: ?"([^"\\]{4,200})"')
_WRAPPER_STARTS = frozenset("<=-_*~#")
_SHORT = 420
"""Characters up to which a result is short: each of its lines counts."""
_MOST_TOPICS = 2
_MOST = 30
"""Lines of one result."""
_PARAGRAPH = 160
"""Characters from which a line is cut into sentences."""
_LINE = 220
"""Characters of a line."""


def template(line: str) -> str:
    """The form of a line: its numbers and paths masked."""
    return _MASK.sub("0", line)[:48]


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences of the assistant with their points; a long one in its clauses."""
    for line in text.splitlines():
        for sentence in _sentences_of(line):
            for piece in _clauses(sentence.strip(" \t*-#>|")):
                weight = _sentence_weight(piece)
                if weight > 0 and _says(piece):
                    yield weight, piece


def last_words(text: str) -> str:
    """The last sentences of a text, about 200 characters on one line."""
    pieces = [piece for line in text[-2000:].splitlines() for piece in _sentences_of(line.strip())]
    return " ".join(" ".join(pieces[-2:]).split())[:300]


def _sentences_of(line: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(line):
        yield line[start : end.start() + 1]
        start = end.end()
    yield line[start:]


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence cut at its commas into pieces of about a hundred characters."""
    while len(sentence) > 150:
        cut = _CLAUSE.search(sentence, 60, 150)
        if cut is None:
            end = sentence.find(" ", 120)
            if end < 0 or end > 200:
                break
        else:
            end = cut.end()
        yield sentence[:end].strip()
        sentence = sentence[end:].strip()
    yield sentence


def _says(piece: str) -> bool:
    """Whether a piece is more than a heading or a scrap of markup."""
    return (len(piece) > 11 and _TWO_WORDS.search(piece[:1000]) is not None) or (_WIDE.search(piece) is not None and len(piece) > 5)


def _sentence_weight(sentence: str) -> int:
    if _FILLER.match(sentence):
        return 4 if _TURN.search(sentence[:400]) else 1 if terms_in(sentence) or "`" in sentence else 0
    cues = len({match.group().lower() for match in _CUE.finditer(sentence[:400])})
    wide = 0 if sentence.isascii() else len(_WIDE.findall(sentence))
    return 3 + min(cues, 3) + min(wide // 8, 5) - 2 * sentence.endswith(":")


def telling_lines(text: str, *, failed: bool, file: str = "", asked: str = "") -> list[tuple[str, int, str]]:
    """The informative lines of a tool result: `(kind, points, line)`, in reading order.

    Args:
        text: The result.
        failed: Whether the call failed.
        file: The file whose text it is; `""` where it is something else.
        asked: What the call asked for. Of prose, sentences about it count more.
    """
    lines, prose = _lines_of(text)
    source = not failed and file.endswith(_SOURCE_ENDINGS)
    stack = _has_stack(text)
    look = _Look(
        code=source or (not prose and not stack and _is_code(lines)),
        prose=prose or (bool(file) and not failed and not file.endswith(_LOG_ENDINGS)),
        failed=failed,
        short=sum(map(len, lines)) < _SHORT,
        count=len(lines),
        errors=_error_lines(lines),
    )
    about = frozenset(word.lower() for word in _TOPIC.findall(asked)) if prose else frozenset()
    titles = _TITLE.findall(text[:100_000])[:4] if text[:1] in "[{" else []
    scored = []
    passed = _frames(lines) if stack else set()
    passed |= _repeats(lines)
    for index, line in enumerate(lines):
        if index in passed:
            continue
        weight, kind = look.weigh(line, index)
        if titles and any(title in line for title in titles):
            weight += 2
        if about and weight > 0:
            weight += min(sum(word in about for word in set(_TOPIC.findall(line[:400].lower()))), _MOST_TOPICS)
        if weight > 0:
            scored.append((-weight, index, kind, line.strip()[:_LINE]))
    best = sorted(scored)[:_MOST]
    return [(kind, -weight, line) for weight, _, kind, line in sorted(best, key=lambda entry: entry[1])]


def _frames(lines: Sequence[str]) -> set[int]:
    """Frames of Python tracebacks but the last of each: the quoted source under a frame says nothing without it."""
    heads = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    found = {head + 1 for head in heads if head + 1 < len(lines) and lines[head + 1].startswith("  ")}
    return found | {head for head, after in pairwise(heads) if after <= head + 3}


def _repeats(lines: Sequence[str]) -> set[int]:
    """Lines that came before; the last one may be the outcome, whatever it repeats."""
    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        first.setdefault(line, index)
    return set(range(len(lines) - 1)).difference(first.values()) if len(first) < len(lines) else set()


def _error_lines(lines: Sequence[str]) -> set[int]:
    """Which lines may tell of an error: the words are looked for in all lines at once."""
    whole = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    # Only letters of ASCII are lowered, so that places stay what they are.
    lowered = whole.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    found = {bisect_right(starts, code.start()) - 1 for code in _ERROR_CODE.finditer(whole)}
    for word in _ERROR_WORDS if whole.isascii() else _ERROR_WORDS + _WIDE_ERROR_WORDS:
        at = lowered.find(word)
        while at >= 0:
            line = bisect_right(starts, at)
            found.add(line - 1)
            at = lowered.find(word, starts[line])
    return found


def _tells_error(line: str) -> bool:
    lowered = line.lower()
    return any(word in lowered for word in _ERROR_WORDS + _WIDE_ERROR_WORDS) or _ERROR_CODE.search(line) is not None


def _is_hard(head: str) -> bool:
    """Whether a line has the form in which programs report errors."""
    hard = (_HARD_ERROR.match(head) is not None and " " in head) or _LOG_ERROR.match(head) is not None
    return hard or _FAILURES.search(head) is not None


def _has_stack(text: str) -> bool:
    return any(word in text for word in _STACK_WORDS) and _STACK.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Look:
    """How the lines of one text are looked at."""

    code: bool
    prose: bool
    """What looks like the report of an error is part of a text."""
    failed: bool
    short: bool
    count: int
    errors: AbstractSet[int]
    """Lines that may tell of an error."""

    def weigh(self, line: str, index: int) -> tuple[int, str]:
        """Points and kind of a line."""
        head = line.strip()[:300]
        if _SAYS_NOTHING.match(head):
            return 0, "result"
        digit = _DIGIT.search(head) is not None
        place = digit and _PLACE_LINE.match(head) is not None
        error = self._is_error(head, index, source=self.code or place)
        edge = 1 if index == 0 else 2 if index == self.count - 1 else 0
        weight = edge + ((4 if self.count < 9 else 3) if self.short else 0) + (2 if self.count < 3 else 0)
        if error:
            weight += 3 + (2 if self.failed else 0)
        # A line that merely has such a word in it is an error only where the call failed.
        real = error and (self.failed or (not self.prose and _is_hard(head)))
        kind = "error" if real else "result"
        if self.code:
            return (weight if self.short or error else int(_DEFINITION.search(head) is not None or _SETTING.match(head) is not None)), kind
        if digit:
            weight += self._points_of_numbers(head, place=place)
        elif weight and not _says(head):
            return 0, kind
        elif not weight and _PAIR_LINE.match(head):
            weight = 1
        return weight, kind

    def _is_error(self, head: str, index: int, *, source: bool) -> bool:
        told = index in self.errors and not head.startswith(_QUOTED_CODE) and _tells_error(head)
        if not source or not (told or ":" in head or head[:1] in "eE"):
            return told
        # In source code, and in lines of it that a search found, the word `error` is a name.
        hard = _HARD_ERROR.match(head) is not None
        return hard if hard == told or _CODEY.search(head) else told

    def _points_of_numbers(self, head: str, *, place: bool) -> int:
        points = 3 if _COUNT.search(head) else 0
        if place:
            return points + 1 + (self.count < 40) + (_DEFINITION.search(head) is not None)
        return points + min(len(_QUANTITY.findall(head)), 3)


def _lines_of(text: str) -> tuple[list[str], bool]:
    """Lines of a result, paragraphs cut into sentences; and whether they are prose."""
    lines = (json_lines(text) if text[:1] in "[{" else []) or text.splitlines()
    lines = [line for line in lines if len(bare := line.strip()) > 1 and not (bare[0] in _WRAPPER_STARTS and _WRAPPER.fullmatch(bare))]
    long = sum(_is_paragraph(line) for line in lines[:400])
    if long * 4 >= min(len(lines), 400):
        return [piece for line in lines for sentence in _sentences_of(line) for piece in _clauses(sentence.strip())], True
    if long:
        # Paragraphs between titles and addresses, as in the answer of a search.
        lines = [piece for line in lines for piece in (_sentences_of(line) if _is_paragraph(line) else (line,))]
    return lines, False


def _is_paragraph(line: str) -> bool:
    """Whether a line holds more than one thing: a character of a wide script says as much as three others."""
    return len(line) > _PARAGRAPH or (not line.isascii() and len(line) + 2 * len(_WIDE.findall(line)) > _PARAGRAPH)


def _is_code(lines: list[str]) -> bool:
    """Whether most lines are source code, numbered or not: there the word `error` is a name."""
    some = lines[:400]
    numbers = [int(match.group(1)) if (match := _NUMBERED.match(line, 0, 40)) else -1 for line in some]
    if len(some) > 3 and sum(after == before + 1 for before, after in pairwise(numbers) if before >= 0) > len(some) * 0.6:
        return True
    half = len(some) * 0.5
    if len(some) < 6 or sum(number >= 0 for number in numbers) > half or sum(bool(_PLACE_LINE.match(line[:220])) for line in some) > half:
        return False
    ends = [line[-200:].strip() for line in some]
    return sum(end.endswith(_CODE_ENDS) or end.startswith(_CODE_STARTS) for end in ends) > half


def answers(text: str) -> Iterator[tuple[int, str]]:
    """What a person answered, piece by piece with points: short answers with their question, long ones in sentences."""
    pairs = _PAIR.findall(text[:20_000])
    for question, answer in pairs:
        yield from [(14, f"{question} = {answer}")] if len(answer) < 50 else _answer_pieces(answer)
    if not pairs:
        yield from _answer_pieces(text)


def names_its_question(answer: str) -> bool:
    """Whether an answer is told together with the question, as `answers` gives it."""
    return _PAIR.search(answer, 0, 20_000) is not None


def _answer_pieces(text: str) -> Iterator[tuple[int, str]]:
    pieces = [piece.strip(" \t*-#>|") for line in text[:4000].splitlines() for piece in _ANSWER_PIECE.split(line)]
    # A short answer ("yes") is all there is; in a long one a scrap is a label.
    telling = [piece for piece in pieces if _says(piece)] if len(text) > 60 else [piece for piece in pieces if piece]
    for piece in telling[:_MOST_PIECES]:
        yield 8 + 2 * min(len(_RULE.findall(piece)), 3), piece
