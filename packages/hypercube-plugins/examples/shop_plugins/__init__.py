"""The plugins of the shop. In an application each could be a distribution of its own."""

from __future__ import annotations

from shop_plugins._mail import Mail
from shop_plugins._orders import Orders
from shop_plugins._sms import SMS

__all__ = ["SMS", "Mail", "Orders"]
