"""Applications on an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hypercube_plugins import (
    AsyncApplication,
    AsyncPlugin,
    LifecycleError,
    PluginFailed,
    Services,
    ShutdownFailed,
)


def stages(log: list[tuple[str, str]], stage: str) -> list[str]:
    return [name for each, name in log if each == stage]


def test_both_sorts_of_plugins_start_and_stop_in_one_order(noted, async_noted, log) -> None:
    """Each after what it requires, whatever its sort; all on the thread of the event loop."""
    threads = set()

    async def main() -> None:
        application = AsyncApplication(
            async_noted("shop", "mail", "stock"), noted("mail", "base"), async_noted("base")
        )
        application.add(noted("stock"))
        application._plugins["mail"].boot = lambda _: threads.add(threading.current_thread())
        async with application as entered:
            assert entered is application

    asyncio.run(main())

    assert threads == {threading.main_thread()}
    assert stages(log, "register") == ["base", "mail", "stock", "shop"]
    assert stages(log, "boot") == ["base", "stock", "shop"]
    assert stages(log, "shutdown") == ["shop", "stock", "mail", "base"]


def test_boot_and_shutdown_wait_for_each_plugin(log) -> None:
    """One after another, so that what is required is up."""

    class Slow(AsyncPlugin):
        version = "1"

        def __init__(self, name: str, *requires: str) -> None:
            self.name = name
            self.requires = requires

        async def boot(self, services: Services) -> None:
            await asyncio.sleep(0.001)
            log.append(("booted", self.name))

        async def shutdown(self, services: Services) -> None:
            await asyncio.sleep(0.001)
            log.append(("stopped", self.name))

    async def main() -> None:
        async with AsyncApplication(Slow("b", "a"), Slow("a")):
            log.append(("body", ""))

    asyncio.run(main())

    assert log == [
        ("booted", "a"),
        ("booted", "b"),
        ("body", ""),
        ("stopped", "b"),
        ("stopped", "a"),
    ]


def test_setup_needs_no_event_loop(async_noted, log) -> None:
    """An application can be set up at import, and booted later on any loop, also again."""
    application = AsyncApplication(async_noted("a"))
    application.setup()
    application.setup()

    async def main() -> None:
        await application.boot()
        await application.boot()
        await application.shutdown()
        await application.shutdown()

    asyncio.run(main())
    asyncio.run(main())

    assert stages(log, "register") == ["a"]
    assert stages(log, "boot") == ["a", "a"]
    assert stages(log, "shutdown") == ["a", "a"]


def test_boot_before_setup_is_an_error(async_noted) -> None:
    """As it is without asyncio."""
    with pytest.raises(LifecycleError, match=r"boot\(\) comes after setup\(\)"):
        asyncio.run(AsyncApplication(async_noted("a")).boot())


def test_a_failing_boot_stops_what_is_up(noted, async_noted, log) -> None:
    """Of both sorts; the error names the plugin and the pass, and keeps the cause."""

    async def main() -> None:
        application = AsyncApplication(
            async_noted("a", fails=["shutdown"]),
            noted("b", fails=["shutdown"]),
            async_noted("c"),
            async_noted("d", fails=["boot"]),
        )
        async with application:
            log.append(("body", ""))

    with pytest.raises(PluginFailed) as raised:
        asyncio.run(main())

    assert str(raised.value) == "the plugin d failed in boot: OSError: d cannot boot"
    assert isinstance(raised.value.__cause__, OSError)
    (note,) = raised.value.__notes__
    assert note == (
        "2 of the plugins failed to shut down: "
        "the plugin b failed in shutdown: OSError: b cannot shutdown; "
        "the plugin a failed in shutdown: OSError: a cannot shutdown"
    )
    assert stages(log, "shutdown") == ["c", "b", "a"]
    assert stages(log, "body") == []


def test_shutdown_goes_on_after_an_error_and_reports_all(noted, async_noted, log) -> None:
    """Each with its plugin, in one error."""

    async def main() -> None:
        application = AsyncApplication(
            async_noted("a", fails=["shutdown"]), noted("b", fails=["shutdown"]), async_noted("c")
        )
        application.setup()
        await application.boot()
        await application.shutdown()

    with pytest.raises(ShutdownFailed) as raised:
        asyncio.run(main())

    assert [each.plugin for each in raised.value.exceptions] == ["b", "a"]
    assert stages(log, "shutdown") == ["c", "b", "a"]


class Stuck(AsyncPlugin):
    """Waits for ever where it is told to."""

    name = "stuck"
    version = "1"
    requires = ("a",)

    def __init__(self, stage: str) -> None:
        self.stage = stage

    async def boot(self, services: Services) -> None:
        await self._wait("boot")

    async def shutdown(self, services: Services) -> None:
        await self._wait("shutdown")

    async def _wait(self, stage: str) -> None:
        if self.stage == stage:
            await asyncio.Event().wait()


def test_a_cancelled_boot_leaves_up_what_is_up(async_noted, log) -> None:
    """The cancellation reaches the plugin and comes out; shutdown stops the rest."""

    async def main() -> None:
        application = AsyncApplication(async_noted("a"), Stuck("boot"))
        application.setup()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await application.boot()
        await application.shutdown()

    asyncio.run(main())

    assert stages(log, "shutdown") == ["a"]


def test_a_cancelled_with_block_stops_what_is_up(async_noted, log) -> None:
    """While it boots, too."""

    async def main() -> None:
        async with asyncio.timeout(0.01):
            async with AsyncApplication(async_noted("a"), Stuck("boot")):
                log.append(("body", ""))

    with pytest.raises(TimeoutError):
        asyncio.run(main())

    assert stages(log, "shutdown") == ["a"]
    assert stages(log, "body") == []


def test_a_cancelled_shutdown_goes_on_at_the_next_call(async_noted, log) -> None:
    """Past the plugin that was cancelled."""

    async def main() -> None:
        application = AsyncApplication(async_noted("a"), Stuck("shutdown"))
        application.setup()
        await application.boot()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await application.shutdown()
        assert stages(log, "shutdown") == []
        await application.shutdown()

    asyncio.run(main())

    assert stages(log, "shutdown") == ["a"]


def test_two_tasks_cannot_boot_at_once(async_noted) -> None:
    """The second one is told so, and neither can one shut down meanwhile."""

    async def main() -> None:
        application = AsyncApplication(async_noted("a"), Stuck("boot"))
        application.setup()
        task = asyncio.create_task(application.boot())
        await asyncio.sleep(0)
        for call in (application.boot, application.shutdown):
            with pytest.raises(LifecycleError, match=r"boot\(\) is under way"):
                await call()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await application.shutdown()

    asyncio.run(main())


def test_a_service_that_must_be_awaited_is_made_in_boot() -> None:
    """A factory hands it out to those that require its plugin, and boot later."""

    class Pool:
        """A connection pool, say."""

    class Database(AsyncPlugin):
        name = "database"
        version = "1"

        def register(self, registration) -> None:
            registration.provide(Pool).factory(lambda _: self.pool)

        async def boot(self, services: Services) -> None:
            await asyncio.sleep(0)
            self.pool = Pool()

    class Shop(AsyncPlugin):
        name = "shop"
        version = "1"
        requires = ("database",)

        async def boot(self, services: Services) -> None:
            self.pool = services.get(Pool)

    async def main() -> list[Pool]:
        application = AsyncApplication(shop, database)
        pools = []
        for _ in range(2):
            async with application:
                assert shop.pool is database.pool is application.services.get(Pool)
                pools.append(database.pool)
        return pools

    shop, database = Shop(), Database()
    first, second = asyncio.run(main())

    assert first is not second
