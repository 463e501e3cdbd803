"""What a line of each program's transcript means. A line of no known shape is shown as the event it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_COUNTS = {
    "input_tokens": "in",
    "output_tokens": "out",
    "cache_read_input_tokens": "cached",
    "cached_input_tokens": "cached",
    "cache_read_tokens": "cached",
    "cache_creation_input_tokens": "written",
}


@dataclass(frozen=True)
class Part:
    """A part of a line; see ``Step``. ``image``: base64 of a picture, or empty."""

    role: str
    title: str = ""
    text: str = ""
    time: str = ""
    image: str = ""
    link: str = ""
    tokens: dict[str, int] = field(default_factory=dict)


def parts_of(line: Mapping[str, Any]) -> list[Part]:
    """Parts of one line of any known program, at least one."""
    for known in (_claude, _codex, _antigravity, _stirrup):
        parts = list(known(line))
        if parts:
            return parts
    return list(_generic(line))


def _claude(line: Mapping[str, Any]) -> Iterator[Part]:
    """Claude Code: ``{"type": "user" | "assistant", "message": {"content": text or blocks}}``."""
    message, role = line.get("message"), line.get("type")
    if role not in ("user", "assistant") or not isinstance(message, dict) or "content" not in message:
        return
    if "turn" in line:
        return
    yield from _blocks(
        message["content"], str(role), _text(line.get("timestamp")), counts(message.get("usage"))
    )


def _blocks(content: Any, role: str, time: str, tokens: dict[str, int]) -> Iterator[Part]:
    if not isinstance(content, list):
        content = [{"type": "text", "text": _text(content)}]
    for block in content:
        if not isinstance(block, dict):
            yield Part(role, "", _text(block), time, tokens=tokens)
            continue
        kind = block.get("type")
        if kind in ("text", "input_text", "output_text"):
            yield Part(role, "", _text(block.get("text")), time, tokens=tokens)
        elif kind in ("thinking", "redacted_thinking"):
            yield Part(
                "thinking",
                "",
                _text(block.get("thinking") or "(not shown by the provider)"),
                time,
                tokens=tokens,
            )
        elif kind == "tool_use":
            call = _text(block.get("id"))
            yield Part(
                "call", _text(block.get("name")), _arguments(block.get("input")), time, "", call, tokens
            )
        elif kind == "tool_result":
            yield from _result(block, time)
        elif kind in ("image", "input_image", "image_url"):
            yield Part("image", _media(block), "", time, _picture(block))
        else:
            yield Part("event", _text(kind), pretty(block), time)
        tokens = {}


def _result(block: Mapping[str, Any], time: str) -> Iterator[Part]:
    link, content = _text(block.get("tool_use_id")), block.get("content")
    title = "error" if block.get("is_error") is True else ""
    if not isinstance(content, list):
        yield Part("result", title, _text(content), time, link=link)
        return
    for item in content:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "image":
            yield Part("image", _media(item), "", time, _picture(item), link)
        else:
            text = item.get("text") if kind == "text" else item
            yield Part("result", title, _text(text), time, link=link)


def _codex(line: Mapping[str, Any]) -> Iterator[Part]:
    """Codex CLI: ``{"type": "response_item" | "event_msg" …, "payload": {"type": …}}``."""
    payload = line.get("payload")
    if not isinstance(payload, dict):
        return
    kind, time = payload.get("type"), _text(line.get("timestamp"))
    if line.get("type") == "response_item" and kind == "message":
        role = "assistant" if payload.get("role") == "assistant" else "user"
        yield from _blocks(payload.get("content"), role, time, {})
    elif kind == "reasoning":
        yield Part("thinking", "", _joined(payload.get("summary") or payload.get("content")), time)
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        given = payload.get("arguments", payload.get("input", payload.get("action")))
        title = _text(payload.get("name") or kind)
        yield Part("call", title, _arguments(given), time, link=_text(payload.get("call_id")))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield Part("result", "", _output(payload.get("output")), time, link=_text(payload.get("call_id")))
    elif kind == "token_count":
        info = payload.get("info")
        used = counts(info.get("last_token_usage")) if isinstance(info, dict) else {}
        yield Part("event", "tokens", "", time, tokens=used)
    else:
        yield Part("event", _text(kind or line.get("type")), pretty(payload), time)


def _output(value: Any) -> str:
    """A tool's output: text, JSON text with an ``output`` member, or an object."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict) and isinstance(value.get("output"), str):
        return str(value["output"])
    return _text(value)


def _antigravity(line: Mapping[str, Any]) -> Iterator[Part]:
    """Antigravity CLI: ``PLANNER_RESPONSE`` with ``tool_calls``, other upper-case kinds."""
    kind = line.get("type")
    if not isinstance(kind, str) or not kind.isupper():
        return
    time = _text(line.get("timestamp") or line.get("created_at"))
    text = _text(line.get("content") or line.get("text") or line.get("response") or "")
    if kind == "PLANNER_RESPONSE":
        if line.get("thinking"):
            yield Part("thinking", "", _text(line["thinking"]), time)
        if text:
            yield Part("assistant", "", text, time)
        calls = line.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            named = call if isinstance(call, dict) else {}
            given = named.get("args", named.get("arguments", named.get("input", call)))
            yield Part("call", _text(named.get("name") or "tool"), _arguments(given), time)
        if not text and not calls:
            yield Part("event", kind, pretty(line), time)
    elif "USER" in kind:
        yield Part("user", "", text or pretty(line), time)
    else:
        yield Part("result", kind.lower().replace("_", " "), text or pretty(line), time)


def _stirrup(line: Mapping[str, Any]) -> Iterator[Part]:
    """Our own loop: ``task``, ``assistant``, ``tool``, ``user``, ``step``, messages as members."""
    kind, time = line.get("type"), _text(line.get("timestamp"))
    message = line.get("message")
    if kind == "task":
        yield Part("user", "task", _joined(line.get("task")), time)
    elif kind == "step":
        title = f"turn {line.get('step')}"
        yield Part("event", title, "", time, tokens=counts(line))
    elif kind in ("assistant", "user", "tool") and isinstance(message, dict):
        yield from _message(str(kind), message, time)
    elif kind in ("info", "warning", "error") and "text" in line:
        yield Part("event", str(kind), _text(line["text"]), time)


def _message(kind: str, message: Mapping[str, Any], time: str) -> Iterator[Part]:
    reasoning = message.get("reasoning")
    if reasoning:
        held = reasoning.get("content") if isinstance(reasoning, dict) else reasoning
        yield Part("thinking", "", _joined(held), time)
    role = "result" if kind == "tool" else kind
    text = _joined(message.get("content"))
    calls = message.get("tool_calls")
    if text or not calls:
        title = _text(message.get("name") or "") if kind == "tool" else ""
        yield Part(role, title, text, time, link=_text(message.get("tool_call_id") or ""))
    for call in calls if isinstance(calls, list) else []:
        named = call if isinstance(call, dict) else {}
        inner = named.get("function") if isinstance(named.get("function"), dict) else named
        given = inner.get("arguments", call)
        call_id = _text(named.get("tool_call_id") or named.get("id") or "")
        yield Part("call", _text(inner.get("name") or "tool"), _arguments(given), time, link=call_id)


def _generic(line: Mapping[str, Any]) -> Iterator[Part]:
    """Chat messages with ``role`` and ``content``; anything else as the event it is."""
    role, time = line.get("role"), _text(line.get("timestamp") or line.get("time"))
    if role in ("system", "user", "assistant", "tool") and "content" in line:
        shown_role = {"tool": "result", "system": "event"}.get(str(role), str(role))
        yield from _blocks(line["content"], shown_role, time, counts(line.get("usage")))
        calls = line.get("tool_calls")
        if isinstance(calls, list):
            yield from (
                part for part in _message("assistant", {"tool_calls": calls}, time) if part.role == "call"
            )
        return
    title = next(
        (_text(line[key]) for key in ("type", "event", "kind") if isinstance(line.get(key), str)), "event"
    )
    yield Part("event", title, pretty(line), time, tokens=counts(line.get("usage")))


def counts(usage: Any) -> dict[str, int]:
    """Token counts under short names: in, out, cached, written."""
    found: dict[str, int] = {}
    for key, name in _COUNTS.items():
        value = usage.get(key) if isinstance(usage, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50:
            found[name] = value
    return found


def pretty(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else pretty(value)


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_text(item.get("text", item) if isinstance(item, dict) else item) for item in value)
    return _text(value)


def _arguments(value: Any) -> str:
    """Arguments of a call: a lone command or text as it is, several as ``name: value`` lines."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if not isinstance(value, dict):
        return _text(value)
    return "\n".join(f"{key}: {_text(item)}" for key, item in value.items())


def _media(block: Mapping[str, Any]) -> str:
    source = block.get("source")
    return _text(source.get("media_type")) if isinstance(source, dict) else "picture"


def _picture(block: Mapping[str, Any]) -> str:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else block.get("image_url")
    if isinstance(data, dict):
        data = data.get("url")
    if not isinstance(data, str):
        return ""
    return data.split(",", 1)[1] if data.startswith("data:") and "," in data else data
