"""Bytes of a file that people or shells wrote, as text."""

import codecs


def decoded(content: bytes) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so (a Windows shell's ``>``); what is neither is replaced."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")
