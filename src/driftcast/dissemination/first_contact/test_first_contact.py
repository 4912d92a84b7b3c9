"""First contact: where the one copy is."""

from driftcast.model import Event, EventId, Failure
from driftcast.parts.handing_messages import Ask, Handed, Offer
from driftcast.parts.introductions import Wants
from driftcast.protocol import Fact, Link
from driftcast.protocol.effects import Note, RecordingPort, Send
from driftcast.testing import Net, alone

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)


def test_the_copy_is_offered_to_one_at_a_time_and_moves_when_that_is_acknowledged() -> None:
    protocol, port = alone("first_contact", node=7)
    for neighbor in (1, 2, 3):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, Wants(()), "radio")
    port.take()
    protocol.on_publish(0.0, EVENT)
    assert port.take_messages() == [Offer((EVENT.id,))]
    protocol.on_message(0.1, 1, Ask(()), "radio")
    sent = [effect for effect in port.take() if isinstance(effect, Send)]
    assert [(one.target, one.message) for one in sent] == [(2, Offer((EVENT.id,)))], "1 has had it"
    protocol.on_message(0.2, 2, Ask((EVENT.id,)), "radio")
    [handed] = [effect for effect in port.take() if isinstance(effect, Send)]
    assert handed.message == Handed(EVENT, 1, 59.8, 1)
    protocol.on_message(0.2, 3, Ask((EVENT.id,)), "radio")
    assert port.take_messages() == [], "the copy is under way"
    assert handed.token is not None
    protocol.on_sent(0.3, handed.token, None)
    assert Note(Fact("evict", EVENT.id, reason="handed_on")) in port.take()
    protocol.on_message(0.4, 2, Offer((EVENT.id,)), "radio")
    assert port.take_messages() == [Ask(())], "it is not taken back"


def test_a_copy_whose_hand_over_failed_stays() -> None:
    protocol, port = alone("first_contact", node=7)
    protocol.on_link_up(0.0, Link(1, "radio", 0.001))
    protocol.on_message(0.0, 1, Wants(()), "radio")
    protocol.on_publish(0.0, EVENT)
    protocol.on_message(0.0, 1, Ask((EVENT.id,)), "radio")
    token = [effect.token for effect in port.take() if isinstance(effect, Send)][-1]
    assert token is not None
    protocol.on_sent(1.0, token, Failure.UNREACHABLE)
    protocol.on_timer(10.0, "again")
    assert port.take_messages() == [Offer((EVENT.id,))]


def test_who_wants_an_event_whose_copy_is_under_way_gets_it_for_itself() -> None:
    protocol, port = alone("first_contact", node=7)
    for neighbor in (1, 2):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, Wants(("topic = 1",)), "radio")
    protocol.on_publish(0.0, EVENT)
    port.take()
    for neighbor in (1, 2):
        protocol.on_message(0.0, neighbor, Ask((EVENT.id,)), "radio")
    assert [one.copies for one in port.take_messages() if isinstance(one, Handed)] == [1, 0]


def test_one_copy_wanders_and_serves_those_it_passes() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (0, 2, 20.0, 30.0), (1, 3, 40.0, 50.0)], "first_contact")
    for node in (2, 3):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0, lease_s=600.0)
    net.run(60)
    assert net.delivered(3) == [event]
    assert net.delivered(2) == [], "the copy had left 0 when 2 came by"


def test_along_a_line_the_copy_reaches_the_end_and_every_node_had_it_once() -> None:
    net = Net.line(6, "first_contact")
    net.subscribe(5)
    net.run(1)
    event = net.publish(0)
    net.run(30)
    assert net.delivered(5) == [event]
    assert net.sent("Handed") == 5


def test_who_forgot_what_a_neighbor_that_started_anew_has_said_asks_it_again() -> None:
    here, port = alone("first_contact", node=7)
    anew, its_port = alone("first_contact", node=1)
    link, back = Link(1, "radio", 0.001), Link(7, "radio", 0.001)

    def said(by: RecordingPort) -> list[Wants]:
        found = [effect for effect in by.take() if isinstance(effect, Send)]
        for effect in found:
            assert effect.token is not None
            (here if by is port else anew).on_sent(0.0, effect.token, None)
        return [effect.message for effect in found if isinstance(effect.message, Wants)]

    here.on_link_up(0.0, link)
    here.on_message(0.0, 1, Wants(()), "radio")
    said(port)
    # The other has started anew, and says so before its beacon is heard.
    anew.on_link_up(1.0, back)
    [first] = said(its_port)
    here.on_message(1.0, 1, first, "radio")
    answers = said(port)
    here.on_link_down(1.1, link, Failure.RESTARTED)
    here.on_link_up(1.1, link)
    # Datagrams overtake each other.
    for message in (*said(port), *answers):
        anew.on_message(1.2, 7, message, "radio")
    assert said(its_port) == [], "it was told, and has told"
    here.on_publish(2.0, EVENT)
    assert Offer((EVENT.id,)) not in port.take_messages()
    here.on_timer(60.0, "silent")
    for message in said(port):
        anew.on_message(60.0, 7, message, "radio")
    [again] = said(its_port)
    here.on_message(60.0, 1, again, "radio")
    assert Offer((EVENT.id,)) in port.take_messages()
