"""Who is let in among the nodes, and as what."""

from __future__ import annotations

import itertools

from homing.testing import RecordingLink
from homing.wire import relay
from tests.push.desk import Desk, client_id, message_id

STRANGER = b"disp0009"


def met(desk: Desk, hello: relay.Hello) -> RecordingLink:
    link = RecordingLink("dispatchers")
    desk.connector.opened(link, 0.0)
    desk.connector.receive(link, hello.encode(), 0.0)
    return link


def test_a_stranger_among_dispatchers_is_refused() -> None:
    desk = Desk()
    desk.connector.tokens = (b"secret of the fabric",)
    stranger = RecordingLink("dispatchers")
    desk.connector.opened(stranger, 0.0)
    push = relay.Push(message_id(1), b"", client_id(1), b"{}")
    desk.connector.receive(stranger, push.encode(), 0.0)
    [nak] = desk.sent(stranger)
    assert nak == relay.Nak(message_id(1), "malformed say hello first")
    desk.connector.receive(stranger, relay.Hello(STRANGER, token=b"bad").encode(), 0.0)
    assert stranger.reason == "wrong token"
    assert met(desk, relay.Hello(STRANGER)).reason == "wrong token"
    assert met(desk, relay.Hello(STRANGER, token=b"secret of the fabric")).reason is None


def test_nodes_know_each_other_while_their_key_changes_node_by_node() -> None:
    """In three steps: the new one taken by all, said by all, and then the old one taken by none."""
    old, new = b"old", b"new"
    steps = [(old,), (old, new), (new, old), (new,)]
    for before, after in itertools.pairwise(steps):
        for ours, theirs in itertools.product((before, after), repeat=2):
            desk = Desk()
            desk.connector.tokens = ours
            assert met(desk, relay.Hello(STRANGER, token=theirs[0])).reason is None
    desk = Desk()
    desk.connector.tokens = (new,)
    assert met(desk, relay.Hello(STRANGER, token=old)).reason == "wrong token"
    assert desk.connector.hello().token == new


def test_where_no_token_is_asked_for_any_will_do() -> None:
    assert met(Desk(), relay.Hello(STRANGER, token=b"whatever")).reason is None


def test_who_calls_a_connector_and_names_no_role_is_a_dispatcher() -> None:
    """The protocol has no item for it; a dispatcher that others wrote is told the same."""
    desk = Desk()
    theirs = met(desk, relay.Hello(STRANGER))
    ours = met(desk, relay.Hello(b"disp0008", b"dispatcher"))
    assert [type(one) for one in desk.sent(theirs)] == [type(one) for one in desk.sent(ours)]
    link = desk.auth(1)
    desk.say(link, b"sub", b"n", b'{"use":2}')
    [told] = [one for one in desk.sent(theirs) if isinstance(one, relay.Subscribe)]
    assert told.client == client_id(1)
