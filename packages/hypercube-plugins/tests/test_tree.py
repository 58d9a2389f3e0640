"""What people see of an application's plugins."""

from __future__ import annotations

import textwrap

from hypercube_plugins import Application, mermaid, tree


def shop(noted) -> Application:
    return Application(
        noted("shop", "mail>=1.2,<2", "templates", version="2.0"),
        noted("mail", "templates~=3.0", version="1.2.0"),
        noted("templates", version="3.1rc1"),
    )


def test_a_tree_shows_the_order_and_each_requirement_with_what_meets_it(noted) -> None:
    """From the first to start to the last."""
    assert tree(shop(noted).order()) == textwrap.dedent(
        """\
        templates 3.1rc1
        mail 1.2.0
        └── templates~=3.0 (3.1rc1)
        shop 2.0
        ├── mail>=1.2,<2 (1.2.0)
        └── templates (3.1rc1)"""
    )


def test_a_diagram_has_an_arrow_from_each_plugin_to_what_it_requires(noted) -> None:
    """With the versions on it, where some are asked for."""
    assert mermaid(shop(noted).order()) == textwrap.dedent(
        """\
        flowchart TD
            p0["templates 3.1rc1"]
            p1["mail 1.2.0"]
            p2["shop 2.0"]
            p1 -->|"~=3.0"| p0
            p2 -->|"<2,>=1.2"| p1
            p2 --> p0"""
    )


def test_nothing_is_drawn_of_nothing() -> None:
    """An application without plugins."""
    assert tree([]) == ""
    assert mermaid([]) == "flowchart TD"
