"""The threads that a worker cannot go on without."""

from __future__ import annotations

import threading
from collections.abc import Callable


def service_thread(
    name: str, run: Callable[[], None], failed: Callable[[str, BaseException], None]
) -> threading.Thread:
    """A daemon thread that runs `run`; `failed` is called, in it, with what escapes from there.

    Without that it would end without a word where the error is SystemExit.
    """

    def watched() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001  # told, whatever it is
            failed(name, error)

    return threading.Thread(target=watched, name=name, daemon=True)
