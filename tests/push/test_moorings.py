"""The Port of clients: a dial that ends in the very moment of the close does not outlive it."""

from __future__ import annotations

import asyncio

import pytest

from homing.endpoint import Endpoint
from homing.push.moorings import MooredLink, Moorings, Whole


@pytest.mark.parametrize("refused", [False, True])
def test_a_close_while_a_dial_ends_is_not_lost(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        outcome = asyncio.get_running_loop().create_future()

        async def dial(self: Moorings, link: MooredLink, where: Endpoint) -> None:
            await outcome

        monkeypatch.setattr(Moorings, "_dial", dial)
        moorings = Moorings(Whole)
        moorings.connect("connector", "127.0.0.1:1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if refused:
            outcome.set_exception(ConnectionRefusedError())
        else:
            outcome.set_result(None)
        # In the same turn of the loop: the dial has ended, and whoever waits for it knows not yet.
        async with asyncio.timeout(20):
            await moorings.close()

    asyncio.run(test())
