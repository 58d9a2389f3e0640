"""Plugins start in the order of what they require, and stop the other way round."""

from hypercube_plugins import Application, Plugin, Services

steps: list[str] = []


class Mail(Plugin):
    """Needs nothing."""

    name, version = "mail", "1.2.0"

    def boot(self, services: Services) -> None:
        """Start."""
        steps.append("mail")

    def shutdown(self, services: Services) -> None:
        """Stop."""
        steps.append("no mail")


class Shop(Mail):
    """Sends mail."""

    name, version, requires = "shop", "2.0.0", ("mail>=1.2,<2",)

    def boot(self, services: Services) -> None:
        """Start."""
        steps.append("shop")

    def shutdown(self, services: Services) -> None:
        """Stop."""
        steps.append("no shop")


with Application(Shop(), Mail()):
    assert steps == ["mail", "shop"]
assert steps == ["mail", "shop", "no shop", "no mail"]
