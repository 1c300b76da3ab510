"""The meter: estimates close to a real tokeniser, allowances for what is no text, and a price that follows what is new."""

from __future__ import annotations

import base64
import copy
import hashlib
import logging
import struct
import sys
import threading
import time
import urllib.request
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from langgraph_roundcompact._encoding import TextCounter
from langgraph_roundcompact._estimate import SAMPLED_ABOVE, estimate_tokens
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._meter import Meter, WindowCount

TEXTS = {
    "english": (
        "The migration ran for about forty minutes before the second worker lost its connection. We checked the replica first, "
        "because the dashboard showed a growing delay there, and found that a long analytical query held a lock on the orders "
        "table. After it was cancelled, the queue drained within a few minutes and no customer noticed anything. Tomorrow somebody "
        "should look at why the timeout did not apply to that session."
    ),
    "python": (
        'def load_settings(path: Path, *, strict: bool = False) -> dict[str, Any]:\n    """Read settings from a file."""\n    '
        "settings = {}\n    for number, line in enumerate(path.read_text().splitlines(), start=1):\n        key, separator, value = "
        'line.partition("=")\n        if not separator and strict:\n            raise ValueError(f"{path}:{number}: no \'=\' in '
        '{line!r}")\n        settings[key.strip()] = value.strip()\n    return settings\n'
    ),
    "json": (
        '{"order_id": 48213, "customer": {"name": "Ada Berg", "email": "ada@example.org"}, "items": [{"sku": "TX-1009", "quantity": '
        '2, "price": 19.5}, {"sku": "QF-77", "quantity": 1, "price": 240.0}], "status": "shipped", "created_at": '
        '"2025-03-14T09:26:53Z", "tags": ["gift", "express"]}'
    ),
    "log": (
        "2025-03-14 09:26:53,589 INFO  [worker-3] billing.invoice - created invoice 90211 for order 48213 in 34 ms\n"
        "2025-03-14 09:26:54,002 WARN  [worker-1] db.pool - connection 17 to 10.0.4.12:5432 refused, retry 2 of 5\n"
        "2025-03-14 09:26:59,410 ERROR [worker-1] db.pool - giving up after 5 tries: TimeoutError\n"
    ),
    "chinese": (
        "数据库迁移大约运行了四十分钟，然后第二个工作进程失去了连接。我们首先检查了副本，因为监控面板显示那里的延迟在不断增加，"
        "结果发现一个很长的分析查询锁住了订单表。取消这个查询以后，队列在几分钟之内就清空了，没有任何客户受到影响。"
        "明天应该有人去看看为什么超时设置没有生效。"
    ),
    "japanese": (
        "データベースの移行は約四十分間動いていましたが、その後、二番目のワーカーの接続が切れました。"
        "監視画面で遅延が大きくなっていたので、まずレプリカを調べたところ、"
        "長い分析クエリが注文テーブルをロックしていることがわかりました。それを取り消すと、キューは数分で空になりました。"
    ),
    "korean": (
        "데이터베이스 이전 작업은 약 사십 분 동안 실행되었고 그 후 두 번째 작업자의 연결이 끊어졌습니다. 대시보드에서 지연이 "
        "늘어나는 것이 보였기 때문에 먼저 복제본을 확인했고, 긴 분석 쿼리가 주문 테이블을 잠그고 있다는 것을 알게 되었습니다. 그 "
        "쿼리를 취소하자 대기열은 몇 분 만에 비워졌습니다."
    ),
    "russian": (
        "Перенос базы данных шёл около сорока минут, после чего второй обработчик потерял соединение. Сначала мы проверили реплику, "
        "потому что на панели росла задержка, и нашли там длинный аналитический запрос, который держал блокировку таблицы заказов. "
        "Когда его отменили, очередь опустела за несколько минут."
    ),
    "mixed": (
        "ERROR: 无法连接到数据库 (timeout=30s)\n"
        "Повторная попытка 2 из 5…\n"
        '{"путь": "/var/данные", "名前": "テスト"} → see https://example.org/docs#retry ✅\n'
        "The worker '데이터' restarted – exit code 137."
    ),
    "caps": (
        "SELECT ID, NAME, CREATED_AT FROM ORDERS WHERE STATUS = 'ACTIVE' AND TOTAL > 250 GROUP BY NAME; MAX_RETRY_COUNT = 5; "
        "HTTP_TIMEOUT_SECONDS = 30"
    ),
}
TEXTS["base64"] = base64.b64encode(b"".join(hashlib.sha256(bytes([i])).digest() for i in range(40))).decode()
TEXTS["hex"] = "".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(20))

O200K = [
    ("english", 78),
    ("python", 99),
    ("json", 111),
    ("log", 120),
    ("chinese", 90),
    ("japanese", 97),
    ("korean", 96),
    ("russian", 72),
    ("mixed", 65),
    ("caps", 39),
    ("base64", 1174),
    ("hex", 723),
]
"""Tokens of o200k_base, counted with the real encoding."""

PAYLOAD = "iVBORw0KGgo" + "A" * 2_000_000
MEDIA = {
    "openai": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PAYLOAD}},
    "responses": {"type": "input_image", "image_url": "data:image/png;base64," + PAYLOAD},
    "v0": {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PAYLOAD},
    "v1": {"type": "image", "base64": PAYLOAD, "mime_type": "image/png"},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}},
    "google": {"type": "media", "mime_type": "image/png", "data": PAYLOAD},
    "bedrock": {"image": {"format": "png", "source": {"bytes": b"x" * 2_000_000}}},
}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> TextCounter:
    """A text counter on a machine without the encoding."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return TextCounter()


@pytest.fixture
def meter(offline: TextCounter) -> Meter:
    return Meter(texts=offline)


def call(id: str, name: str = "search", /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def usage(total: int) -> dict[str, int]:
    return {"input_tokens": total - 1, "output_tokens": 1, "total_tokens": total}


def rounds(count: int, *, total: int | None = None) -> list[BaseMessage]:
    """A request and `count` finished calls of about 100 tokens each."""
    messages: list[BaseMessage] = [HumanMessage("go", id="h1")]
    for i in range(count):
        messages.append(AIMessage("", tool_calls=[call(f"c{i}", q=f"q{i}")], id=f"a{i}", usage_metadata=usage(total) if total else None))
        messages.append(ToolMessage(f"r{i} " + "x" * 400, tool_call_id=f"c{i}", id=f"t{i}"))
    return messages


class Counter:
    """A user's counter of four characters a token that writes down what it was asked."""

    def __init__(self) -> None:
        self.lists: list[int] = []

    def __call__(self, messages: Any, **_: Any) -> int:
        self.lists.append(len(messages))
        return sum(len(str(m.content)) // 4 for m in messages)


# The estimate


@pytest.mark.parametrize(("name", "expected"), O200K)
def test_estimate_is_within_a_quarter_of_o200k_base(name: str, expected: int) -> None:
    assert 0.75 * expected <= estimate_tokens(TEXTS[name]) <= 1.25 * expected


def test_chinese_and_korean_are_not_counted_as_four_characters_a_token() -> None:
    """6,930 characters of which o200k_base makes 5,911 tokens, and four characters a token would make 1,800."""
    text = "上下文压缩会丢失用户的请求，" * 430 + "컨텍스트 압축이 너무 늦게 일어납니다. " * 50
    assert 0.7 * 5_911 <= estimate_tokens(text) <= 1.6 * 5_911


def test_long_letter_runs_cost_a_token_per_four_letters() -> None:
    assert estimate_tokens("x" * 4_000) == 1_001
    assert estimate_tokens("Q" * 4_000) in range(995, 1_006)


def test_rules_and_blank_space_cost_next_to_nothing() -> None:
    assert estimate_tokens("-" * 1_600) <= 40
    assert estimate_tokens(" " * 1_600) <= 40


def test_a_text_is_at_least_one_token_and_nothing_is_none() -> None:
    assert estimate_tokens("") == 0
    assert [estimate_tokens(text) for text in (" ", "a", "\n", "\x00", "\ud800", "é", "上", "\U0001f600")] == [1, 1, 1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("unit", ["the quick brown fox jumps. ", "上下文压缩", "a", " ", "\U0001f600", "Zm9vYmFy/3k+", "key=1\n"])
def test_a_megabyte_is_estimated_at_once(unit: str) -> None:
    """A few milliseconds; the bound leaves room for a busy machine."""
    text = unit * (1_000_000 // len(unit))
    best = min(timed(lambda: estimate_tokens(text)) for _ in range(3))
    assert best < 0.020


def test_sampling_a_long_text_agrees_with_its_parts() -> None:
    text = "".join(TEXTS[name] for name, _ in O200K[:9]) * 120
    assert len(text) > SAMPLED_ABOVE
    parts = sum(estimate_tokens(text[i : i + 50_000]) for i in range(0, len(text), 50_000))
    assert abs(estimate_tokens(text) - parts) < 0.05 * parts


@given(st.text())
def test_any_text_has_an_estimate(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= 4 * len(text) + 4


# tiktoken, only when at hand


def timed(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "langgraph_roundcompact" and record.levelno == logging.WARNING]


@pytest.mark.parametrize("content", [None, b"", b"not the encoding"])
def test_without_the_encoding_tiktoken_is_not_even_imported(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """tiktoken would download. A damaged file is the same: tiktoken deletes it and downloads."""
    if content is not None:
        (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(content)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setattr(urllib.request, "urlopen", None)
    counter = TextCounter()
    assert counter.cold
    assert [counter.count("hello world, this is a text"), counter.count(TEXTS["english"])] == [
        estimate_tokens("hello world, this is a text"),
        estimate_tokens(TEXTS["english"]),
    ]
    assert not counter.cold
    assert len(warnings_in(caplog)) == 1
    assert "TIKTOKEN_CACHE_DIR" in warnings_in(caplog)[0]


def test_an_empty_cache_folder_setting_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert TextCounter().prepare() is False


def test_the_encoding_is_loaded_once_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def load() -> Any:
        loads.append(1)
        time.sleep(0.02)
        return lambda text: list(text.encode())

    monkeypatch.setattr("langgraph_roundcompact._encoding._load", load)
    counter, counts = TextCounter(), []
    threads = [threading.Thread(target=lambda: counts.append(counter.count("abc"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (loads, counts) == ([1], [3] * 8)


def encoded(encode: Any, monkeypatch: pytest.MonkeyPatch) -> TextCounter:
    monkeypatch.setattr("langgraph_roundcompact._encoding._load", lambda: encode)
    return TextCounter()


def test_a_tokeniser_never_sees_a_long_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time may grow with the square of a piece."""
    sizes: list[int] = []
    counter = encoded(lambda text: sizes.append(len(text)) or [0] * (len(text) // 3), monkeypatch)
    for text in ("a" * 1_000_000, "-" * 16_000, "上" * 1_000_000, "word " * 3_000):
        assert counter.count(text) > 0
    assert max(sizes) <= 2_048
    assert sum(sizes) < 70_000


def test_a_tokeniser_that_fails_is_replaced_by_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> list[int]:
        raise ValueError(text)

    assert encoded(broken, monkeypatch).count(TEXTS["english"]) == estimate_tokens(TEXTS["english"])


def test_the_tokenisers_figure_corrects_the_estimate_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token a character: 200,000 characters are about 200,000 tokens, whatever the estimate says."""
    text = TEXTS["english"] * 600
    assert abs(encoded(lambda part: [0] * len(part), monkeypatch).count(text) - len(text)) < 0.02 * len(text)


# Messages


def test_frame_name_and_text_are_counted(meter: Meter) -> None:
    assert meter.count_message(HumanMessage("")) == 4
    assert meter.count_message(HumanMessage("hello")) == 5
    assert meter.count_message(HumanMessage("hello", name="ada")) == 4 + meter.count_text("ada\nhello")
    assert meter.count([HumanMessage("hello"), HumanMessage("")]) == 9


def test_arguments_of_calls_are_counted(meter: Meter) -> None:
    """Whatever the content is: a list of blocks beside the calls must not hide them."""
    big = {"path": "a.py", "text": "x" * 4_000}
    plain = meter.count_message(AIMessage("", tool_calls=[call("c", "write", **big)]))
    beside = meter.count_message(AIMessage([{"type": "text", "text": "ok"}], tool_calls=[call("c", "write", **big)]))
    invalid = AIMessage("", invalid_tool_calls=[{"name": "write", "args": "x" * 4_000, "id": "c", "error": None, "type": "invalid_tool_call"}])
    assert 1_010 <= plain <= 1_030
    assert plain < beside <= plain + 3
    assert 1_010 <= meter.count_message(invalid) <= 1_030


def test_calls_repeated_in_blocks_and_extra_fields_are_counted_once(meter: Meter) -> None:
    args = {"text": "x" * 4_000}
    once = meter.count_message(AIMessage("", tool_calls=[call("c", "write", **args)]))
    repeated = AIMessage(
        [{"type": "tool_use", "id": "c", "name": "write", "input": args}],
        tool_calls=[call("c", "write", **args)],
        additional_kwargs={"tool_calls": [{"id": "c", "type": "function", "function": {"name": "write", "arguments": str(args)}}]},
    )
    assert meter.count_message(repeated) == once


def test_a_call_that_lives_in_a_block_only_is_counted(meter: Meter) -> None:
    block = {"type": "function_call", "name": "write", "arguments": "x" * 4_000}
    assert meter.count_message(AIMessage([block])) > 1_000
    assert meter.count_message(AIMessage([{**block, "call_id": "c"}])) > 1_000


def test_a_chunk_costs_what_its_message_costs(meter: Meter) -> None:
    chunk = AIMessageChunk("text", tool_call_chunks=[{"name": "f", "args": '{"a": 1}', "id": "c", "index": 0, "type": "tool_call_chunk"}])
    assert meter.count_message(chunk) == meter.count_message(AIMessage("text", tool_calls=[call("c", "f", a=1)]))


def test_reasoning_is_text_and_signatures_are_an_allowance(meter: Meter) -> None:
    thought = "x" * 4_000
    signed = AIMessage([{"type": "thinking", "thinking": thought, "signature": "S" * 20_000}])
    assert 1_050 <= meter.count_message(signed) <= 1_060
    assert meter.count_message(AIMessage([{"type": "redacted_thinking", "data": "S" * 20_000}])) == 4 + 50
    assert 1_000 <= meter.count_message(AIMessage("", additional_kwargs={"reasoning_content": thought})) <= 1_010
    both = AIMessage([{"type": "reasoning", "reasoning": thought}], additional_kwargs={"reasoning_content": thought})
    assert 1_000 <= meter.count_message(both) <= 1_010
    encrypted = AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}], "encrypted_content": "S" * 20_000}])
    assert 1_050 <= meter.count_message(encrypted) <= 1_060


@pytest.mark.parametrize("block", MEDIA.values(), ids=MEDIA.keys())
def test_an_image_costs_an_allowance_in_any_dialect_and_no_time(block: dict[str, Any], meter: Meter) -> None:
    message = HumanMessage([{"type": "text", "text": "What is this?"}, block])
    assert meter.count_message(message) == 1_600 + meter.count_message(HumanMessage("What is this?"))
    assert min(timed(lambda: message_tokens(message, len)) for _ in range(3)) < 0.005


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "file", "mime_type": "application/pdf", "base64": PAYLOAD}, 3_000),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + PAYLOAD}}, 3_000),
        ({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PAYLOAD}}, 3_000),
        ({"type": "input_file", "file_id": "file-1"}, 3_000),
        ({"type": "audio", "base64": PAYLOAD, "mime_type": "audio/wav"}, 2_000),
        ({"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "wav"}}, 2_000),
        ({"type": "video", "url": "https://example.org/v.mp4"}, 5_000),
        ({"type": "media", "mime_type": "video/mp4", "file_uri": "gs://bucket/v.mp4"}, 5_000),
        ({"type": "unheard_of", "data": PAYLOAD}, 3_000),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}, 85),
        ({"type": "image", "url": "https://example.org/a.png", "width": 750, "height": 500}, 500),
        ({"type": "image", "url": "https://example.org/a.png", "width": 8_000, "height": 8_000}, 1_600),
        ({"type": "image", "url": "https://example.org/a.png", "width": "wide", "height": -3}, 1_600),
    ],
)
def test_media_cost_documented_allowances(block: dict[str, Any], expected: int, meter: Meter) -> None:
    assert meter.count_message(ToolMessage([block], tool_call_id="c")) == 4 + expected


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\x00\x00\x00" + b"\x00" * 40_000


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00" * 40_000


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 2_002) + b"e" * 2_000
    return b"\xff\xd8" + exif + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, height, width) + b"\x00" * 40_000


@pytest.mark.parametrize("make", [png, gif, jpeg])
def test_pixels_are_read_from_the_header(make: Any, meter: Meter) -> None:
    """750 x 400 pixels at 750 a token; a tiny picture costs 85 all the same."""
    for size, expected in (((750, 400), 400), ((8, 8), 85), ((0, 0), 1_600)):
        block = {"type": "image", "base64": base64.b64encode(make(*size)).decode(), "mime_type": "image/png"}
        assert meter.count_message(HumanMessage([block])) == 4 + expected


def test_thirty_images_add_up(meter: Meter) -> None:
    assert meter.count([HumanMessage([MEDIA["v1"]])] * 30) == 30 * 1_604


def test_base64_as_plain_text_is_text(meter: Meter) -> None:
    assert meter.count_message(ToolMessage("data:image/png;base64," + PAYLOAD, tool_call_id="c")) > 400_000
    assert meter.count_message(ToolMessage([{"type": "text", "text": PAYLOAD}], tool_call_id="c")) > 400_000


def test_documents_that_are_text_are_counted_as_text(meter: Meter) -> None:
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "some words " * 400}}
    assert 700 <= meter.count_message(HumanMessage([block])) <= 1_000
    plain = {"type": "text-plain", "text": "some words " * 400, "mime_type": "text/plain"}
    assert 700 <= meter.count_message(HumanMessage([plain])) <= 1_000


def test_media_inside_results_inside_blocks_are_found(meter: Meter) -> None:
    nested = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "shot"}, MEDIA["anthropic"]]}
    assert meter.count_message(HumanMessage([nested])) == 4 + 1 + 1_600


def test_what_is_not_sent_is_not_counted(meter: Meter) -> None:
    bare = ToolMessage("ok", tool_call_id="c")
    assert meter.count_message(ToolMessage("ok", tool_call_id="c", artifact="x" * 90_000)) == meter.count_message(bare)
    assert meter.count_message(AIMessage("ok", response_metadata={"logprobs": "x" * 90_000})) == meter.count_message(AIMessage("ok"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "text", "data", "source", "image_url", "input", "id"]) | st.text(), inner)
    ),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["text", "image", "image_url", "tool_use", "thinking", "file", "document", "media", "function_call", "redacted_thinking", "x"]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text() | st.builds(lambda kind, more: {**more, "type": kind}, TYPES, st.dictionaries(st.text(max_size=8), JSON, max_size=4))), JSON
)
def test_junk_content_is_counted_not_refused(content: Any, junk: Any) -> None:
    meter = Meter(texts=TextCounter())
    messages: list[Any] = [AIMessage(content), ToolMessage(content, tool_call_id=""), HumanMessage(content, additional_kwargs={"tool_calls": junk})]
    odd = AIMessage("")
    odd.content, odd.tool_calls, odd.additional_kwargs = junk, junk, {"reasoning_content": junk, "function_call": junk, "tool_calls": junk}
    assert meter.count([*messages, odd]) >= 16


def test_deep_and_circular_content_ends(meter: Meter) -> None:
    deep: Any = "leaf"
    for _ in range(5_000):
        deep = {"a": [deep]}
    ring: dict[str, Any] = {"type": "x"}
    ring["self"] = ring
    for content in ([deep], [ring]):
        message = HumanMessage("")
        message.content = content
        assert meter.count_message(message) >= 4
        odd = AIMessage("")
        odd.tool_calls = [{"name": "f", "args": {"a": content}, "id": "c"}]
        assert meter.count_message(odd) >= 4


# Kept counts


def test_a_message_is_counted_once(offline: TextCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(offline, "count", lambda text: seen.append(text) or 1)
    meter, messages = Meter(texts=offline), rounds(50)
    meter.window(messages, round_start=1, stale_before=0)
    first = len(seen)
    meter.window([*messages, HumanMessage("more")], round_start=1, stale_before=0)
    meter.window(copy.deepcopy(messages), round_start=1, stale_before=0)
    assert (first, len(seen)) == (101, 102)


def test_a_message_changed_in_place_is_counted_again(meter: Meter) -> None:
    message = AIMessage("short", tool_calls=[call("c", "f", text="short")])
    before = meter.count_message(message)
    message.tool_calls[0]["args"]["text"] = "x" * 4_000
    middle = meter.count_message(message)
    message.content = [{"type": "text", "text": "x" * 4_000}]
    after = meter.count_message(message)
    message.content[0]["text"] = "short"
    assert middle > before + 900
    assert after > middle + 900
    assert meter.count_message(message) == middle


def test_nothing_is_written_onto_messages_and_nothing_is_kept_alive(meter: Meter) -> None:
    import gc
    import weakref

    messages = rounds(3)
    twin = copy.deepcopy(messages)
    meter.window(messages, round_start=1, stale_before=0, tools=[search])
    assert messages == twin
    gone = weakref.ref(messages[1])
    del messages
    gc.collect()
    assert gone() is None


def test_the_table_is_bounded(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_roundcompact._meter._TABLE_LIMIT", 10)
    for i in range(100):
        meter.count_message(HumanMessage(str(i)))
    assert len(meter._counts) <= 10


def test_threads_that_share_a_meter_count_the_same(meter: Meter) -> None:
    messages, totals = rounds(100), []
    expected = meter.count(messages)
    cold = Meter(texts=meter._texts)
    threads = [threading.Thread(target=lambda: totals.append(cold.count(messages))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [expected] * 8


# System prompt and tools


@tool
def search(query: str) -> str:
    """Search the web for pages about a subject and return the best of them."""
    return query


class Answer(BaseModel):
    """The final answer, with its sources."""

    text: str


def test_system_prompt_and_tools_are_counted_as_sent(meter: Meter) -> None:
    """Forty schemas of 1,800 letters and a prompt of 20,000: about 18,000 and 5,000 tokens."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{i}",
                "description": "d" * 900,
                "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "e" * 900}}},
            },
        }
        for i in range(40)
    ]
    assert 22_500 <= meter.overhead("s" * 20_000, tools) <= 25_500
    assert meter.overhead(SystemMessage("s" * 20_000), tools) == meter.overhead("s" * 20_000, tools)
    count = meter.window([HumanMessage("go")], round_start=1, stale_before=0, system_message="s" * 20_000, tools=tools)
    assert count == WindowCount(total=count.overhead + 5, anchored=False, overhead=meter.overhead("s" * 20_000, tools))


def test_every_kind_of_tool_is_counted_in_the_same_shape(meter: Meter) -> None:
    def plain(query: str) -> str:
        """Search the web for pages about a subject and return the best of them."""
        return query

    counts = [
        meter.overhead(None, [one])
        for one in (search, plain, Answer, {"name": "x", "description": "Look things up.", "input_schema": {"type": "object"}})
    ]
    assert all(12 <= count <= 80 for count in counts)


def test_a_tool_that_cannot_be_converted_is_counted_by_its_description(meter: Meter) -> None:
    class Odd:
        name = "odd"
        description = "x" * 4_000

    class Hostile:
        @property
        def name(self) -> str:
            raise RuntimeError

        def __repr__(self) -> str:
            raise RuntimeError

    assert meter.overhead(None, [Odd()]) > 1_000
    assert meter.overhead(None, [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]) > 5
    assert meter.overhead(None, [Hostile(), None, 3, object()]) >= 4
    assert meter.overhead(None, 5) == 0  # type: ignore[arg-type]
    assert meter.overhead(None, None) == meter.overhead("", []) == 0


def test_schemas_are_serialised_once(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    import langgraph_roundcompact._meter as module

    texts = []
    original = module._tool_text
    monkeypatch.setattr(module, "_tool_text", lambda tool: texts.append(tool) or original(tool))
    schema = {"type": "function", "function": {"name": "f", "description": "d"}}
    first = meter.overhead("system", [search, Answer, schema])
    assert meter.overhead("system", [search, Answer, dict(schema)]) == first
    assert len(texts) == 3
    schema["function"]["description"] = "x" * 4_000  # type: ignore[index]
    assert meter.overhead("system", [search, Answer, schema]) > first + 900


# The window


def test_reported_usage_is_the_anchor_and_the_rest_is_added(meter: Meter) -> None:
    """A first answer that reports 10,000 for a tiny list: prompt and tools lie outside; an offset, never a factor."""
    messages = [
        HumanMessage("hello"),
        AIMessage("Let me look.", tool_calls=[call("k", "ls")], usage_metadata=usage(10_000)),
        ToolMessage("x" * 2_400, tool_call_id="k"),
    ]
    assert meter.window(messages, round_start=1, stale_before=0) == WindowCount(total=10_605, anchored=True, overhead=0)
    assert meter.window(messages[:2], round_start=1, stale_before=0).total == 10_000


def test_visible_overhead_is_not_added_to_a_reported_usage(meter: Meter) -> None:
    messages = [HumanMessage("hello"), AIMessage("hi", usage_metadata=usage(10_000))]
    count = meter.window(messages, round_start=1, stale_before=0, system_message="s" * 4_000)
    assert (count.total, count.overhead) == (10_000, 1_005)


def test_usage_from_before_a_compaction_is_ignored(meter: Meter) -> None:
    messages = [
        HumanMessage("short task"),
        HumanMessage("<memory_block_current>\nall the old work\n</memory_block_current>"),
        AIMessage("", tool_calls=[call("k", "ls")], usage_metadata=usage(190_500)),
        ToolMessage("a.py", tool_call_id="k"),
    ]
    stale = meter.window(messages, round_start=1, stale_before=4)
    assert (stale.total, stale.anchored) == (meter.count(messages), False)
    assert stale.total < 80
    fresh = meter.window([*messages, AIMessage("done", usage_metadata=usage(900))], round_start=1, stale_before=4)
    assert (fresh.total, fresh.anchored) == (900, True)


def test_usage_of_an_earlier_round_counts_only_until_this_round_has_an_answer(meter: Meter) -> None:
    earlier = [HumanMessage("first"), AIMessage("done", usage_metadata=usage(190_000)), HumanMessage("next")]
    assert meter.window(earlier, round_start=3, stale_before=0) == WindowCount(total=190_005, anchored=True, overhead=0)
    answered = [*earlier, AIMessage("", tool_calls=[call("k", "ls")]), ToolMessage("a.py", tool_call_id="k")]
    assert meter.window(answered, round_start=3, stale_before=0).total == meter.count(answered) < 80


UNKNOWN = [
    None,
    {},
    {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    {"input_tokens": 10},
    {"input_tokens": None, "output_tokens": None, "total_tokens": None},
    {"total_tokens": -5},
    {"total_tokens": "12000"},
    {"total_tokens": True},
    {"total_tokens": float("nan")},
    {"total_tokens": 10**15},
    {"input_tokens": -3, "output_tokens": 500},
    {"input_tokens": 800, "output_tokens": 100},
    {"total_tokens": 900},
    {"input_tokens": 800, "total_tokens": 900},
    {"input_tokens": 0, "output_tokens": 500, "total_tokens": 500},
    "12000",
    [1, 2],
    7,
]


@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
def test_an_unusable_usage_is_unknown_not_small(value: Any, meter: Meter) -> None:
    messages = rounds(5)
    messages[-2].usage_metadata = value
    assert meter.window(messages, round_start=1, stale_before=0) == WindowCount(total=meter.count(messages), anchored=False, overhead=0)


def test_an_older_usable_usage_is_found_behind_an_unusable_one(meter: Meter) -> None:
    messages = rounds(5)
    messages[-4].usage_metadata = usage(7_000)
    messages[-2].usage_metadata = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert meter.window(messages, round_start=1, stale_before=0).total == 7_000 + meter.count(messages[-3:])


def test_a_total_that_left_out_a_part_is_made_whole(meter: Meter) -> None:
    """Some integrations report the uncached part of the input alone, or a total without the answer."""
    messages = rounds(1)
    messages[1].usage_metadata = {
        "input_tokens": 50,
        "output_tokens": 10,
        "total_tokens": 60,
        "input_token_details": {"cache_read": 9_000, "cache_creation": 40},
    }
    assert meter.window(messages, round_start=1, stale_before=0).total == 9_100 + meter.count(messages[2:])
    messages[1].usage_metadata = {"input_tokens": 9_100, "output_tokens": 10, "total_tokens": 9_100, "input_token_details": {"cache_read": 9_000}}
    assert meter.window(messages, round_start=1, stale_before=0).total == 9_110 + meter.count(messages[2:])


class Watched(list[BaseMessage]):
    """A list that writes down how often it was read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        raise AssertionError("the whole list was walked")


def test_with_usage_only_the_tail_is_looked_at(meter: Meter) -> None:
    messages = Watched(rounds(5_000, total=50_000))
    meter.window(messages, round_start=1, stale_before=0)
    assert messages.reads <= 4


def test_no_window_is_empty_handed(meter: Meter) -> None:
    assert meter.window([], round_start=0, stale_before=0) == WindowCount(total=0, anchored=False, overhead=0)
    assert meter.window([HumanMessage("hi")], round_start=9, stale_before=9).total == 5


# A user's counter


def test_a_users_counter_sees_each_message_once_and_is_called_once_a_window(meter: Meter) -> None:
    counter, messages = Counter(), rounds(200)
    meter = Meter(counter)
    first = meter.window(messages, round_start=1, stale_before=0).total
    again = meter.window(list(messages), round_start=1, stale_before=0).total
    more = [*messages, AIMessage("x" * 40), HumanMessage("x" * 400)]
    third = meter.window(more, round_start=1, stale_before=0).total
    assert counter.lists == [401, 2]
    assert (again, third) == (first, first + 110)


def test_the_exact_figure_does_not_depend_on_what_was_counted_before() -> None:
    """A counter that adds three to each list: extended sums drift, the exact one does not."""

    def counter(messages: Any) -> int:
        return 3 + 10 * len(messages)

    warm, cold, messages = Meter(counter), Meter(counter), rounds(5)
    for stop in range(1, len(messages) + 1):
        warm.window(messages[:stop], round_start=1, stale_before=0)
    assert warm.window(messages, round_start=1, stale_before=0, exact=True) == cold.window(messages, round_start=1, stale_before=0, exact=True)
    assert warm.window(messages, round_start=1, stale_before=0, exact=True).total == 113 == warm.count(messages)


def test_a_users_counter_does_not_replace_reported_usage() -> None:
    counter = Counter()
    messages = rounds(50, total=9_000)
    assert Meter(counter).window(messages, round_start=1, stale_before=0) == WindowCount(total=9_000 + 101, anchored=True, overhead=0)
    assert counter.lists == [1]


@pytest.mark.parametrize("answer", [None, "12", -1, float("nan"), float("inf"), True, [], ZeroDivisionError()], ids=repr)
def test_a_counter_that_fails_is_replaced_with_one_warning(answer: Any, offline: TextCounter, caplog: pytest.LogCaptureFixture) -> None:
    def counter(messages: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    messages, meter = rounds(3), Meter(counter, texts=offline)
    expected = Meter(texts=offline).count(messages)
    caplog.clear()
    assert [meter.window(messages, round_start=1, stale_before=0).total, meter.count(messages), meter.count(messages)] == [expected] * 3
    assert len(warnings_in(caplog)) == 1
    assert warnings_in(caplog)[0].startswith("token_counter")


def test_a_fractional_count_is_rounded_down_and_a_stop_is_not_swallowed() -> None:
    def stop(messages: Any) -> int:
        raise KeyboardInterrupt

    assert Meter(lambda messages: 12.7).count([HumanMessage("")]) == 12  # type: ignore[arg-type, return-value]
    assert (Meter().custom, Meter(Counter()).custom) == (False, True)
    with pytest.raises(KeyboardInterrupt):
        Meter(stop).count([HumanMessage("")])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(JSON, st.booleans()), max_size=8), st.integers(-2, 10), st.integers(-2, 10))
def test_any_usage_anywhere_gives_a_count(parts: list[tuple[Any, bool]], round_start: int, stale_before: int) -> None:
    messages: list[BaseMessage] = []
    for value, mapping in parts:
        message = AIMessage("x")
        message.usage_metadata = {"total_tokens": value, "input_tokens": value, "output_tokens": value} if mapping else value
        messages += [message, HumanMessage("y")]
    assert Meter(texts=TextCounter()).window(messages, round_start=round_start, stale_before=stale_before).total >= 0
