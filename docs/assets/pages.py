"""What pages that are written for a code host need to become a site: links that lead somewhere, titles, line ends.

A file under ``deploy/`` is published beside the pages. Other files of the repository (sources, tests) are not:
links to them become plain text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

#: A link whose target climbs out of a page's folder; its text must hold no bracket.
_UPWARD = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
#: A short piece of code, and a figure with its unit: neither is cut at the end of a line.
_SHORT_CODE = re.compile(r"<code(?=[^>]*>[^<]{1,28}</code>)")
_UNIT = re.compile(r"(?<=\d) (?=%|×|[KMG]i?B\b|GB/s|TFLOPS|s\b)")
_BLOCK = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
_OUTPUT = re.compile(r'(<span class="go">[^<]*)</span>\n')
_PUBLISHED = "deploy/"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files that are published as they are."""
    root = Path(config.docs_dir).parent
    for path in sorted((root / _PUBLISHED).rglob("*")):
        if path.is_file():
            name = path.relative_to(root).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_config: object) -> str:
    """Leads links out of ``docs/`` to the published file, or takes them away; finds a title inside an element."""
    if (title := _TITLE.search(markdown)) is not None:
        page.meta.setdefault("title", title[1])
    folder = posixpath.dirname(page.file.src_uri)

    def led(found: re.Match[str]) -> str:
        text, link = found.groups()
        target = posixpath.normpath(posixpath.join("docs", folder, link))
        if target.startswith("docs/"):
            return found.group()
        if files.get_file_from_path(target) is None:
            return text
        return f"[{text}]({posixpath.relpath(target, folder or '.')})"

    return _UPWARD.sub(led, markdown)


def on_page_content(html: str, **_page: object) -> str:
    """Keeps options and figures on one line; in blocks of code, an output's line ends with its line break."""
    parts = _BLOCK.split(html)
    parts[::2] = [_UNIT.sub("&nbsp;", _SHORT_CODE.sub('<code class="short"', part)) for part in parts[::2]]
    parts[1::2] = [_OUTPUT.sub(r"\1\n</span>", part) for part in parts[1::2]]
    return "".join(parts)
