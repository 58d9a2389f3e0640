"""What a Markdown text links to, and what in it can be linked to."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.token import Token

#: What Git hosting sites turn into links without any markup.
_BARE_ADDRESS = re.compile(r"(?<![\w/])https?://[^\s<]+", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
#: Shown or not, it is not in the address that people type.
_EMOJI_SELECTOR = "\N{VARIATION SELECTOR-16}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link's target as it is written, escapes of Markdown and HTML resolved, and its line."""

    target: str
    line: int


class Document:
    """The links of a Markdown text in the order of the text, and its anchors.

    Anchors are the ids that GitHub gives to headings, and every `id` and `name` in HTML.
    Links in code, comments and front matter are none.
    """

    def __init__(self, text: str) -> None:
        self.links: list[Link] = []
        self._anchors: set[str] = set()
        self._slugs: dict[str, int] = {}
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _FRONT_MATTER.sub(lambda found: "\n" * found[0].count("\n"), text, count=1)
        self._lines = text.split("\n")
        self._html = _HTML(self)
        tokens = _parser().parse(text)
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type == "html_block" and token.map:
                self._html.read(token.content, token.map[0] + 1)
            elif token.type == "inline":
                shown = self._read_inline(token)
                if before is not None and before.type == "heading_open":
                    self.add_heading(shown)

    @property
    def anchors(self) -> list[str]:
        """All anchors, sorted."""
        return sorted(self._anchors)

    def has_anchor(self, fragment: str) -> bool:
        """Whether `#fragment` leads anywhere, percent-escapes already decoded."""
        name = fragment.removeprefix("user-content-").replace(_EMOJI_SELECTOR, "")
        return name in self._anchors

    def add_link(self, target: str, line: int, last_line: int) -> int:
        """A link on `line` or behind it, but not behind `last_line`; the line it is on."""
        # The parser counts no line breaks within code spans and titles: the text knows better.
        exact = (
            number
            for number in range(line, min(last_line, len(self._lines)) + 1)
            if target and target in self._lines[number - 1]
        )
        link = Link(target, next(exact, line))
        self.links.append(link)
        return link.line

    def add_anchor(self, name: str) -> None:
        """An anchor by its own name."""
        self._anchors.add(name.replace(_EMOJI_SELECTOR, ""))

    def add_heading(self, text: str) -> None:
        """A heading by its text. A second one of the same text gets a number."""
        slug = name = _slug(text)
        while name in self._slugs:
            self._slugs[slug] += 1
            name = f"{slug}-{self._slugs[slug]}"
        self._slugs[name] = 0
        self.add_anchor(name)
        # Beside an image or a tag a heading can begin or end with a space, which sites treat
        # in one way or the other.
        self.add_anchor(_slug(text.strip()))

    def _read_inline(self, token: Token) -> str:
        """Take the links out of a paragraph or the like; its text without markup."""
        first, last = token.map or (0, len(self._lines))
        line = first + 1
        shown: list[str] = []
        within_link = False
        for child in token.children or ():
            if child.type in {"softbreak", "hardbreak"}:
                line += 1
            elif child.type == "link_open":
                within_link = True
                line = self.add_link(str(child.attrGet("href") or ""), line, last)
            elif child.type == "link_close":
                within_link = False
            elif child.type == "image":
                line = self.add_link(str(child.attrGet("src") or ""), line, last)
            elif child.type == "html_inline":
                self._html.read(child.content, line)
                line += child.content.count("\n")
            elif child.type in {"text", "code_inline"}:
                shown.append(child.content)
                self._html.text(child.content)
                if child.type == "text" and not within_link:
                    for address in _bare_addresses(child.content):
                        line = self.add_link(address, line, last)
        return "".join(shown)


class _HTML:
    """Takes links, anchors and headings out of pieces of HTML, between which there is Markdown."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._heading: list[str] | None = None

    def read(self, content: str, line: int) -> None:
        piece = _Piece(self, line)
        try:
            piece.feed(content)
            piece.close()
        except AssertionError:
            # So the standard parser answers a declaration that it cannot make sense of.
            return

    def start(self, tag: str, attributes: list[tuple[str, str | None]], line: int) -> None:
        for name, value in attributes:
            if name in {"href", "src"}:
                self._document.add_link((value or "").strip(), line, line)
            elif name in {"id", "name"} and value:
                self._document.add_anchor(value)
        if tag in _HEADINGS:
            self._heading = []

    def end(self, tag: str) -> None:
        if tag in _HEADINGS and self._heading is not None:
            self._document.add_heading(" ".join("".join(self._heading).split()))
            self._heading = None

    def text(self, content: str) -> None:
        if self._heading is not None:
            self._heading.append(content)


class _Piece(HTMLParser):
    def __init__(self, html: _HTML, line: int) -> None:
        super().__init__()
        self._html = html
        self._line = line

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._html.start(tag, attrs, self._line + self.getpos()[0] - 1)

    def handle_endtag(self, tag: str) -> None:
        self._html.end(tag)

    def handle_data(self, data: str) -> None:
        self._html.text(data)


def _parser() -> MarkdownIt:
    # One for each text: the first use of a parser changes it, and threads must not share that.
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.block.ruler.at("reference", _reference)
    # Targets are wanted as they are written, whatever their scheme. Replacing these two is the
    # parser's documented way to say so.
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]  # see above
    parser.validateLink = lambda _url: True  # type: ignore[assignment, method-assign]  # see above
    return parser


def _reference(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """The standard rule, but a footnote is text: its first word is no target."""
    if state.src.startswith("[^", state.bMarks[start_line] + state.tShift[start_line]):
        return False
    return reference(state, start_line, end_line, silent)


def _bare_addresses(text: str) -> Iterator[str]:
    for found in _BARE_ADDRESS.finditer(text):
        address = found[0].rstrip("?!.,:;*_~'\"")
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip("?!.,:;*_~'\"")
        yield address


def _slug(text: str) -> str:
    kept = (
        "-" if character == " " else character
        for character in text.lower()
        if character in " -" or _is_word(character)
    )
    return "".join(kept)


def _is_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LM" or category in {"Nd", "Nl", "Pc"}
