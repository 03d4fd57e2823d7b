"""Pages link to files of the repository that are no pages; in the site those links must lead somewhere, too.

A file under ``deploy/`` is published beside the pages. Other files (sources, tests) stay in the repository: their
links become plain text. Pages can so be written for a code host, where every relative link works as it stands.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

#: A link whose target climbs out of a page's folder; its text must hold no bracket.
_UPWARD = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")
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
    """Leads links out of ``docs/`` to the published file, or takes them away."""
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
