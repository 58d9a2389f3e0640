"""The quickstart's reading of Markdown, and what it calls a broken link."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.append(str(EXAMPLES))  # an example is a script, not an installed package
link_check = importlib.import_module("link_check")


def links(text: str) -> list[tuple[str, int]]:
    return [(link.target, link.line) for link in link_check.Document(text).links]


def problems(folder: Path, name: str = "page.md") -> list[str]:
    file = folder / name
    found = link_check.read_document(file).links
    reasons = [link_check.why_broken(link.target, file, folder) for link in found]
    return [reason for reason in reasons if reason]


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


# Links


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("[a](b.md)", "b.md"),
        ('[a](b.md "title")', "b.md"),
        ("[a](<b c.md>)", "b c.md"),
        ("[a](b(1).md)", "b(1).md"),
        (r"[a](b\(1.md)", "b(1.md"),
        ("[a](b&amp;c.md)", "b&c.md"),
        ("[a](b%20c.md#d)", "b%20c.md#d"),
        ("[a](größe.md)", "größe.md"),
        ("![a](b.png)", "b.png"),
        ("[a][r]\n\n[r]: b.md 'title'", "b.md"),
        ("[r][]\n\n[R]: <b c.md>", "b c.md"),
        ("[r]\n\n[r]:\n  b.md", "b.md"),
        ("<https://a.example/b>", "https://a.example/b"),
        ("see https://a.example/b(c).", "https://a.example/b(c)"),
        ("(see https://a.example/b)", "https://a.example/b"),
        ("<mailto:a@b.example>", "mailto:a@b.example"),
        ('a <a class="x" href="b.md">c</a>', "b.md"),
        ("<p>\n<IMG SRC='b.png'>\n</p>", "b.png"),
        ("| a |\n| - |\n| [b](c.md) |", "c.md"),
        ("> - [a](b.md)", "b.md"),
        ("# [a](b.md)", "b.md"),
        ("[^1]: [a](b.md)", "b.md"),
    ],
)
def test_every_way_to_write_a_link_is_found(text: str, target: str) -> None:
    """Inline, reference, image, address and HTML links are read as Markdown means them."""
    assert [found for found, _line in links(text)] == [target]


def test_an_image_within_a_link_is_two_links() -> None:
    """A badge that cannot be shown is broken, wherever it leads."""
    assert [target for target, _line in links("[![a](b.png)](c.md)")] == ["c.md", "b.png"]


@pytest.mark.parametrize(
    "text",
    [
        "`[a](b.md)`",
        "``` \n[a](b.md)\n```",
        "~~~md\n<a href='b.md'>\n~~~",
        "text\n\n    [a](b.md)",
        "<!-- [a](b.md) <a href='b.md'> -->",
        "a <!-- <a href='b.md'> --> b",
        r"\[a](b.md)",
        "[a][undefined]",
        "array[0](not a link)",
        "[^1]: word",
        "[unused]: b.md",
        "---\ntitle: '[a](b.md)'\n---\n",
        "<![unknown declaration",
    ],
)
def test_what_is_no_link_is_left_alone(text: str) -> None:
    """Code, comments, escapes, footnotes and front matter hold no links."""
    assert links(text) == []


def test_a_link_is_reported_on_its_own_line() -> None:
    """Line numbers survive front matter, paragraphs, code spans, tables and HTML."""
    text = "\n".join(
        [
            "---",
            "title: x",
            "---",
            "[a](4.md) and",
            "`code",
            "code` then [a](6.md)",
            "[r] <b",
            "title='x'> [a](8.md)",
            "",
            "| a |",
            "| - |",
            "| [a](12.md) |",
            "",
            "<p>",
            "<a href='15.md'>",
            "</p>",
            "",
            "[r]: 7.md",
        ]
    )
    assert [(f"{line}.md", line) for _target, line in links(text)] == links(text)


def test_windows_line_ends_count_once() -> None:
    """Line numbers are the same whatever ends a line."""
    assert links("a\r\n\r\n[a](b.md)\r\n") == [("b.md", 3)]


# Anchors


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("# Getting started", "getting-started"),
        ("Setext heading\n===", "setext-heading"),
        ("## `code` and *emphasis*", "code-and-emphasis"),
        ("## What's new in 2.0?", "whats-new-in-20"),
        ("## A & B -- C", "a--b----c"),
        ("## snake_case", "snake_case"),
        ("## Größe der Übersicht", "größe-der-übersicht"),
        ("## 日本語の見出し", "日本語の見出し"),
        ("## हिन्दी", "हिन्दी"),
        ("## :rocket: Launch", "rocket-launch"),
        ("## 🚀 Launch", "-launch"),
        ("## ❤️ Love", "-love"),
        ("## [linked](x.md) text", "linked-text"),
        ("## Text <a name='own'></a>", "text"),
        ("## Text <a name='own'></a>", "own"),
        ("<h2 align='center'>\n  Centred <b>title</b>\n</h2>", "centred-title"),
        ("<h1>\n\n**Title**\n\n</h1>", "title"),
        ("<div id='Place'></div>", "Place"),
        ("> ## Quoted", "quoted"),
    ],
)
def test_headings_have_the_anchors_that_github_gives_them(heading: str, anchor: str) -> None:
    """A fragment is compared with the ids of headings, and with ids in HTML."""
    document = link_check.Document(heading)
    assert document.has_anchor(anchor), document.anchors


def test_equal_headings_are_numbered() -> None:
    """The second of two equal headings ends in -1, and never takes the place of another."""
    document = link_check.Document("# A\n# A\n# A-1\n# A")
    assert document.anchors == ["a", "a-1", "a-1-1", "a-2"]


def test_headings_in_code_have_no_anchor() -> None:
    """A comment in a shell script is no heading."""
    assert link_check.Document("```\n# a\n```").anchors == []


# Targets


def test_a_target_that_is_there_is_in_order(tmp_path: Path) -> None:
    """Files, folders, escapes, queries, anchors here and elsewhere, and the root's slash."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b.md").write_text("# One\n[up](../page.md#start) [root](/page.md)")
    (tmp_path / "sub" / "README.md").write_text("# Read")
    (tmp_path / "größe (1).md").write_text("")
    (tmp_path / "code.py").write_text("")
    write(
        tmp_path,
        page="# Start\n[a](sub/a%20b.md) [a](<sub/a b.md>) [a](sub) [a](sub/) [a](./sub/#read)"
        "[a](sub/a%20b.md#one) [a](#start) [a](#) [a](#top) [a](gr%C3%B6%C3%9Fe%20(1).md)"
        "[a](code.py#L10) [a](page.md?plain=1#L3-L9) [a](?raw=true) [a](sub/../code.py)",
    )
    assert problems(tmp_path) == []
    assert problems(tmp_path, "sub/a b.md") == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing.md", "no such file"),
        ("Others.md", "no such file (is it other.md?)"),
        ("missing.md#one", "no such file"),
        ("sub/none/../../other.md", "no such file"),
        ("other.md/", "no such file (is it other.md?)"),
        ("/sub/other.md", "no such file in {folder}"),
        ("", "the link has no target"),
        ("other%00.md", "a file name has no NUL character"),
        ("#nowhere", "no such heading in page.md"),
        ("other.md#nowhere", "no such heading in other.md"),
        ("other.md#one-twp", "no such heading in other.md (is it #one-two?)"),
        ("other.md#One-Two", "no such heading in other.md (is it #one-two?)"),
        ("sub#nowhere", "no such heading in README.md"),
        ("x" * 300 + ".md", "no such file"),
    ],
)
def test_a_broken_target_is_told_with_its_reason(tmp_path: Path, target: str, reason: str) -> None:
    """The reason says what is missing, and what may have been meant."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "README.md").write_text("# Read")
    write(tmp_path, page=f"[a](<{target}>)", other="# One two")
    assert problems(tmp_path) == [reason.format(folder=tmp_path)]


def test_a_target_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """An anchor in a file that is no file is a reason, not a crash."""
    os.mkfifo(tmp_path / "pipe.md")
    write(tmp_path, page="[a](pipe.md#x)")
    assert problems(tmp_path) == []
    with pytest.raises(OSError, match="not a regular file"):
        link_check.read_document(tmp_path / "pipe.md")


def test_bytes_that_are_no_text_hide_no_link(tmp_path: Path) -> None:
    """A file in another encoding is still checked."""
    (tmp_path / "page.md").write_bytes(b"\xef\xbb\xbf# Caf\xe9\n[a](missing.md)")
    assert problems(tmp_path) == ["no such file"]


@pytest.mark.parametrize(
    ("target", "local", "web"),
    [
        ("a.md", True, False),
        ("#a", True, False),
        ("/a", True, False),
        ("a/b:c.md", True, False),
        ("http://a.example", False, True),
        ("HTTPS://a.example", False, True),
        ("//a.example/b", False, True),
        ("mailto:a@b.example", False, False),
        ("tel:+1", False, False),
        ("data:image/png;base64,x", False, False),
    ],
)
def test_targets_are_told_apart_by_their_scheme(target: str, local: bool, web: bool) -> None:
    """What is neither on this disk nor on the web is not checked."""
    assert (link_check.is_local(target), link_check.is_web_address(target)) == (local, web)


# Folders


def test_markdown_files_are_found_in_order(tmp_path: Path) -> None:
    """Every .md in any case, but nothing that tools put there, unless it is asked for."""
    for name in ["b.md", "A.MD", "sub/c.md", "node_modules/x/d.md", ".git/e.md", "f.txt", "g.md/h"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    within = tmp_path / "node_modules"
    assert link_check.markdown_files(tmp_path, print) == ["A.MD", "b.md", "sub/c.md"]
    assert link_check.markdown_files(within, print) == ["x/d.md"]


def test_links_between_folders_do_not_loop(tmp_path: Path) -> None:
    """A folder that contains itself is listed once."""
    (tmp_path / "a.md").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.md").symlink_to("self.md")
    assert link_check.markdown_files(tmp_path, print) == ["a.md", "self.md"]
    with pytest.raises(OSError, match="symbolic links"):
        link_check.read_document(tmp_path / "self.md")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a b/größe.md", "a b/größe.md"),
        ("50%.md", "50%25.md"),
        ("line\nbreak.md", "line\nbreak.md"),
        (os.fsdecode(b"caf\xe9.md"), "caf%E9.md"),
    ],
)
def test_every_path_can_be_carried_as_text(path: str, text: str) -> None:
    """Names that are no UTF-8 survive the way through JSON and the database."""
    assert link_check.as_text(path) == text
    assert link_check.as_path(text) == path
    assert text.encode()


def test_the_git_repository_around_is_the_root(tmp_path: Path) -> None:
    """A leading slash means the repository, as on the hosting sites."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "docs" / "guide"
    folder.mkdir(parents=True)
    assert link_check.repository_root(folder) == tmp_path
