"""The reference page of the report document, out of its JSON Schema: a section a part, a row a field."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reference_text import MADE, page_text, table

from planner.report.document import report_json_schema

Schema = Mapping[str, Any]
_REF: Final = "#/$defs/"
_PLAIN: Final = {"boolean": "true or false", "integer": "integer", "number": "number", "string": "text"}
#: A whole document: the report, and what a failure writes instead.
_REPORT: Final = "Report"


def report_page() -> str:
    schema = report_json_schema()
    parts: Schema = schema["$defs"]
    roots = [entry["$ref"].removeprefix(_REF) for entry in schema["anyOf"]]
    lines = [
        "# The report",
        "",
        MADE,
        "",
        "`specplan fit TARGET --json PATH` writes one JSON document; `specplan schema` prints its JSON Schema.",
        "Fields that end in `_bytes` are integers of bytes, those in `_tokens` of tokens, those in `_seconds` are",
        "seconds. `null` is what is not known, never zero. Under one schema name fields are added, never renamed",
        "or removed. What other commands write is listed under [documents](exit-codes.md#documents).",
    ]
    for name in _in_order(parts, roots):
        part = parts[name]
        lines += ["", f"## {name}", ""]
        if told := part.get("description"):
            lines += [" ".join(told.replace("``", "`").split()), ""]
        lines += table(["field", "type", "given"], [*_rows(part)])
    return page_text(lines)


def _rows(part: Schema) -> Iterator[tuple[str, str, str]]:
    required = part.get("required", ())
    for name, field in part["properties"].items():
        yield f"`{name}`", _type(field), "always" if name in required else "may be missing"


def _type(field: Schema) -> str:
    if "$ref" in field:
        name = field["$ref"].removeprefix(_REF)
        return f"[{name}](#{_anchor(name)})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        kinds = [_type(kind) for kind in field["anyOf"] if kind.get("type") != "null"]
        null = any(kind.get("type") == "null" for kind in field["anyOf"])
        return f"{' or '.join(kinds)}{', or `null`' if null else ''}"
    if field.get("type") == "array":
        items = field.get("prefixItems")
        return f"[{', '.join(map(_type, items))}]" if items else f"list of {_type(field['items'])}"
    if field.get("type") == "object":
        held = field["additionalProperties"]
        return "any object" if held is True else f"object, each value {_type(held)}"
    return _PLAIN[field["type"]]


def _in_order(parts: Schema, roots: list[str]) -> list[str]:
    """Parts as a reader meets them: each after the one that first holds it; the report first."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            found.append(name)
            for below in _named(parts[name]):
                visit(below)

    for root in sorted(roots, key=lambda root: root != _REPORT):
        visit(root)
    assert set(found) == set(parts)
    return found


def _named(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].removeprefix(_REF)
        for below in node.values():
            yield from _named(below)
    elif isinstance(node, list):
        for below in node:
            yield from _named(below)


def _anchor(name: str) -> str:
    return name.lower()
