"""Pictures as text for a page, and all of them in one file."""

import io
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from xml.etree import ElementTree

from matplotlib.backends.backend_pdf import PdfPages
from PIL import Image

from model_catalog.errors import UsageError
from planner.pictures.page import Picture, drawing_style
from planner.report.files import write_file

#: What a file of pictures may be, by its ending.
ENDINGS: Final = (".png", ".svg", ".pdf")
_DOTS_PER_INCH: Final = 150
_POINTS_PER_INCH: Final = 72
_SVG: Final = "http://www.w3.org/2000/svg"
_REFERENCES: Final = ("href", "{http://www.w3.org/1999/xlink}href")


def svg_text(picture: Picture) -> str:
    """The picture as an ``<svg>`` element for a page: no prolog, no scripts, nothing from elsewhere.

    Its ids begin with the picture's name, so several of them can stand in one page. Text stays text. The same
    picture gives the same bytes.
    """
    return ElementTree.tostring(_element(picture), encoding="unicode") + "\n"


def write_pictures(pictures: Sequence[Picture], path: str, *, option: str = "--plot") -> None:
    """Write them below each other into one file, a PDF with a page for each; as a whole or not at all.

    Raises:
        UsageError: an ending that is none of ``ENDINGS``, or the path that ``option`` gave cannot be written.
    """
    ending = PurePath(path).suffix.lower()
    if ending == ".png":
        content = _png(pictures)
    elif ending == ".svg":
        content = _svg(pictures).encode()
    elif ending == ".pdf":
        content = _pdf(pictures)
    else:
        raise UsageError(
            f"no picture is written as {ending or 'a file without an ending'}",
            subject=option,
            hint=f"end the name in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}",
        )
    write_file(content, path, option=option, what="picture")


def _element(picture: Picture) -> ElementTree.Element:
    """What matplotlib writes, without its metadata and page-wide styles, and with ids of its own."""
    written = io.BytesIO()
    with drawing_style():
        picture.figure.savefig(written, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(written.getvalue())  # noqa: S314 - written a line above
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}:
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            _rename(element, key, value, picture.name)
    root.attrib |= {
        "xmlns": _SVG,
        "id": picture.name,
        "role": "img",
        "aria-label": picture.alt,
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    }
    return root


def _rename(element: ElementTree.Element, key: str, value: str, name: str) -> None:
    if key == "id":
        value = f"{name}-{value}"
    elif key in _REFERENCES:
        key, value = "href", value.replace("#", f"#{name}-", 1)
    element.set(key, value.replace("url(#", f"url(#{name}-"))


def _svg(pictures: Sequence[Picture]) -> str:
    sheet = ElementTree.Element("svg", {"xmlns": _SVG, "version": "1.1"})
    sheet.text = "\n"
    below = width = 0.0
    for picture in pictures:
        inner = _element(picture)
        wide, high = (float(side) for side in inner.attrib["viewBox"].split()[2:])
        inner.attrib |= {"x": "0", "y": f"{below:g}", "width": f"{wide:g}", "height": f"{high:g}"}
        del inner.attrib["xmlns"]
        sheet.append(inner)
        below, width = below + high, max(width, wide)
    sheet.attrib |= {"width": f"{width:g}pt", "height": f"{below:g}pt", "viewBox": f"0 0 {width:g} {below:g}"}
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(sheet, encoding="unicode") + "\n"


def _png(pictures: Sequence[Picture]) -> bytes:
    images = []
    for picture in pictures:
        written = io.BytesIO()
        with drawing_style():
            picture.figure.savefig(written, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
        images.append(Image.open(written).convert("RGB"))
    width, height = max(image.width for image in images), sum(image.height for image in images)
    sheet = Image.new("RGB", (width, height), "white")
    below = 0
    for image in images:
        sheet.paste(image, (0, below))
        below += image.height
    found = io.BytesIO()
    sheet.save(found, format="png", dpi=(_DOTS_PER_INCH, _DOTS_PER_INCH))
    return found.getvalue()


def _pdf(pictures: Sequence[Picture]) -> bytes:
    written = io.BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None, "Producer": None, "Creator": "specplan"}
    with drawing_style(), PdfPages(written, metadata=metadata) as pages:
        for picture in pictures:
            pages.savefig(picture.figure)
    return written.getvalue()
