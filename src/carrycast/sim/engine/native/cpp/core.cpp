#include "core.h"

#include "beacons.h"
#include "protocol.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace carrycast {

namespace {
// A frame that takes longer ages its message, as TRANSIT_US of sim/engine/network.py.
constexpr int64_t kTransitUs = 2'000;
}  // namespace

Core::Core(size_t count, bool oracle)
    : ledger(count), nodes(count), oracle_(oracle) {
  make_actions();
}

Core::~Core() { close(); }

void Core::close() {
  queue.clear();
  hooks = Hooks();
  for (CoreNode& node : nodes) {
    node.up.reset();
    node.links.clear();
    for (Ref& timers : node.timers) timers = Ref();
  }
  links_.clear();
  protocol.reset();
  beacons.reset();
  ledger.clear();
  now_ = Ref();
  now_shown_us_ = -1;
}

PyObject* Core::now() {
  if (now_shown_us_ != queue.now_us) {
    now_ = Ref::steal(PyFloat_FromDouble(queue.now_s));
    now_shown_us_ = queue.now_us;
  }
  return now_.get();
}

Ref Core::now_of(int64_t node) {
  if (clocks.empty() || !clocks[static_cast<size_t>(node)].wrong) return Ref::borrow(now());
  return Ref::steal(PyFloat_FromDouble(seconds_of(node)));
}

double Core::seconds_of(int64_t node) const {
  if (clocks.empty() || !clocks[static_cast<size_t>(node)].wrong) return queue.now_s;
  const Clock& clock = clocks[static_cast<size_t>(node)];
  return clock.offset_s + (1 + clock.drift) * queue.now_s;
}

double Core::stretch(int64_t node, double delay_s) const {
  if (clocks.empty() || !clocks[static_cast<size_t>(node)].wrong) return delay_s;
  return delay_s / (1 + clocks[static_cast<size_t>(node)].drift);
}

PyObject* Core::id_of(int64_t node) {
  if (ids_.empty()) ids_.resize(nodes.size());
  Ref& id = ids_[static_cast<size_t>(node)];
  if (!id) id = from_int(node);
  return id.get();
}

CoreNode& Core::node(int64_t id) {
  if (id < 0 || static_cast<size_t>(id) >= nodes.size()) {
    PyErr_Format(PyExc_IndexError, "there is no node %lld", static_cast<long long>(id));
    throw PythonError();
  }
  return nodes[static_cast<size_t>(id)];
}

Medium* Core::medium_named(PyObject* interface) const {
  for (const std::unique_ptr<Medium>& medium : media) {
    if (medium->interface.get() == interface) return medium.get();
  }
  for (const std::unique_ptr<Medium>& medium : media) {
    int same = PyObject_RichCompareBool(medium->interface.get(), interface, Py_EQ);
    check_status(same);
    if (same != 0) return medium.get();
  }
  return nullptr;
}

// Sending.

FrameRef Core::encode(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* token, Medium& medium) {
  const LayerCodec& codec = codecs[layer];
  FrameRef frame = make_frame(sender, target, layer, message, token, queue.now_us, medium.interface.get(), &codec);
  if (frame->kind->carries == MessageKind::kEvent && frame->kind->rest.empty() && frame->kind->tag < 128) {
    // An array of tag, event, hops and remaining lease, whose length follows from the length of the event.
    EventRecord* record = ledger.find(frame->source, frame->sequence);
    PyObject* remaining = fields.message_remaining_s.get(message);
    int64_t hops_length = packed_length(to_int(fields.message_hops.get(message)));
    if (record != nullptr && record->event.get() == fields.message_event.get(message) && hops_length > 0 &&
        PyFloat_CheckExact(remaining)) {
      frame->size_bytes = words.header_bytes + 2 + record->size_bytes + hops_length + 9;
      return frame;
    }
  }
  frame->size_bytes = words.header_bytes + static_cast<int64_t>(PyBytes_GET_SIZE(frame->encoded_body()));
  return frame;
}

void Core::transmit(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* named, PyObject* token) {
  if (media.size() == 1 && (named == nullptr || medium_named(named) != nullptr)) {
    Medium& only = *media.front();
    only.transmit(encode(sender, target, layer, message, token, only));
    return;
  }
  std::vector<Medium*> chosen = select_media(sender, target, named);
  if (chosen.empty()) {
    // Media are at hand whenever a frame is made; a node without any has the interface of the first.
    const LayerCodec& codec = codecs[layer];
    Ref fallback = Ref::steal(PyUnicode_InternFromString("radio"));
    PyObject* interface = named == nullptr ? fallback.get() : named;
    FrameRef refused = make_frame(sender, target, layer, message, token, queue.now_us, interface, &codec);
    refused->size_bytes = words.header_bytes + static_cast<int64_t>(PyBytes_GET_SIZE(refused->encoded_body()));
    on_lost(*refused, sender, words.out_of_reach);
    // Reported from the event queue, because a handler must not be re-entered while it is sending.
    if (token != nullptr) queue.at(queue.now_us, refusal_action_.get(), refused.release());
    return;
  }
  for (Medium* medium : chosen) medium->transmit(encode(sender, target, layer, message, token, *medium));
}

std::vector<Medium*> Core::select_media(int64_t sender, int64_t target, PyObject* named) {
  const std::vector<Medium*>& own = node(sender).media;
  if (named != nullptr) {
    Medium* found = medium_named(named);
    if (found != nullptr && std::find(own.begin(), own.end(), found) != own.end()) return {found};
    return {};
  }
  if (target == kNoTarget || own.empty()) return own;
  std::vector<Medium*> by_cost = own;
  std::stable_sort(by_cost.begin(), by_cost.end(), [](Medium* a, Medium* b) { return a->cost_s() < b->cost_s(); });
  for (Medium* medium : by_cost) {
    if (medium->topology.is_linked(sender, target)) return {medium};
  }
  return {own.front()};
}

void Core::transmit_each(int64_t sender, PyObject* targets, int layer, PyObject* message) {
  Ref sequence = Ref::steal(PySequence_Fast(targets, "the targets are a sequence"));
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.get());
  std::vector<int64_t> ids;
  for (Py_ssize_t i = 0; i < count; i++) ids.push_back(to_int(PySequence_Fast_GET_ITEM(sequence.get(), i)));
  if (media.size() != 1) {
    for (int64_t target : ids) transmit(sender, target, layer, message, nullptr, nullptr);
    return;
  }
  FrameRef batch = encode(sender, kNoTarget, layer, message, nullptr, *media.front());
  batch->targets = new std::vector<int64_t>(std::move(ids));
  media.front()->transmit_each(std::move(batch));
}

// Receiving.

void Core::on_received(Frame& frame, NodeSpan receivers) {
  if (frame.sent_us < node(frame.sender).restarted_us) {
    // The frame was still queued when its sender crashed.
    static PyObject* const reason = PyUnicode_InternFromString("sender_crashed");
    on_lost(frame, frame.sender, reason);
    return;
  }
  if (disturbed) {
    Ref reach = call(words.reach, to_tuple(receivers).get());
    call_method(hooks.network.get(), "on_received", frame.object(), reach.get());
    return;
  }
  record_frame(frame, receivers);
  if (receivers.size == 0) return;
  if (protocol) {
    receive_native(frame, receivers);
    return;
  }
  if (beacons && frame.layer == kDiscovery) {
    // A beacon has no duration that waiting shortens.
    for (int32_t id : receivers) beacons->on_beacon(id, seconds_of(id), frame);
    return;
  }
  Ref message = Ref::borrow(frame.message);
  int64_t waited_us = queue.now_us - frame.sent_us;
  if (waited_us > kTransitUs) {
    message = age_message(*frame.kind, frame.message, static_cast<double>(waited_us) / kUsPerSecond);
    if (message.get() == Py_None) {
      on_missed(frame, receivers, words.lease_expired);
      return;
    }
  }
  PyObject* sender = id_of(frame.sender);
  for (int32_t id : receivers) {
    NodeStack* up = nodes[static_cast<size_t>(id)].up.get();
    if (up == nullptr) throw std::runtime_error("a node that is down receives");
    Ref time = now_of(id);
    PyObject* handler = up->layers[frame.layer].on_message.get();
    if (handler != nullptr) call(handler, time.get(), sender, message.get(), frame.interface);
    run_queued(*up, time.get());
  }
}

void Core::receive_native(Frame& frame, NodeSpan receivers) {
  double remaining_s = frame.remaining_s;
  int64_t waited_us = queue.now_us - frame.sent_us;
  if (waited_us > kTransitUs && frame.kind->carries == MessageKind::kEvent) {
    remaining_s -= static_cast<double>(waited_us) / kUsPerSecond;
    if (!(remaining_s > 0)) {
      on_missed(frame, receivers, words.lease_expired);
      return;
    }
  }
  for (int32_t id : receivers) protocol->on_message(id, frame, remaining_s);
}

void Core::record_frame(Frame& frame, NodeSpan receivers) {
  const Medium* medium = media.size() == 1 ? media.front().get() : medium_named(frame.interface);
  int64_t air_us = medium == nullptr ? -1 : medium->airtime_us(frame);
  ledger.on_frame(frame, receivers, air_us);
  if (hooks.frame) {
    Ref nodes_tuple = to_tuple(receivers);
    Ref airtime = air_us < 0 ? Ref::borrow(Py_None) : from_int(air_us);
    call(hooks.frame.get(), frame.object(), nodes_tuple.get(), airtime.get());
  }
  fingerprint.add_frame(queue.now_us, frame, receivers);
}

void Core::on_overheard(Frame& frame, NodeSpan overhearing) {
  if (frame.layer != kRouting) return;
  call_method(hooks.network.get(), "on_overheard", frame.object(), to_tuple(overhearing).get());
}

void Core::on_lost(Frame& frame, int64_t id, PyObject* reason) {
  int64_t peer = id == frame.sender ? frame.target : frame.sender;
  fingerprint.add(words.code_drop, queue.now_us, id, peer == kNoTarget ? -1 : peer);
  if (frame.has_event) {
    fingerprint.put(frame.source);
    fingerprint.put(frame.sequence);
  }
  if (hooks.lost) call(hooks.lost.get(), frame.object(), from_int(id).get(), reason);
}

void Core::on_missed(Frame& frame, NodeSpan missed, PyObject* reason) { record_missed(frame, missed, reason); }

void Core::record_missed(Frame& frame, NodeSpan missed, PyObject* reason) {
  fingerprint.add(words.code_miss, queue.now_us, frame.sender, static_cast<int64_t>(missed.size));
  fingerprint.put_nodes(missed);
  if (hooks.missed) call(hooks.missed.get(), frame.object(), to_tuple(missed).get(), reason);
}

// Outcomes.

bool Core::report_sent(Frame& frame, PyObject* failure) {
  if (protocol) {
    if (frame.token != nullptr) protocol->on_sent(frame, failure != nullptr);
    return true;
  }
  CoreNode& sender = node(frame.sender);
  if (!sender.up || frame.sent_us < sender.started_us) return false;
  if (frame.token != nullptr) {
    NodeStack& up = *sender.up;
    Ref time = now_of(frame.sender);
    PyObject* handler = up.layers[frame.layer].on_sent.get();
    if (handler != nullptr) call(handler, time.get(), frame.token, failure == nullptr ? Py_None : failure);
    run_queued(up, time.get());
  }
  return true;
}

void Core::on_outcome(Frame& frame, PyObject* failure) {
  if (failure == words.unreachable) {
    on_unreachable({FrameRef::borrow(&frame)});
  } else {
    report_sent(frame, failure);
  }
}

void Core::on_unreachable(const std::vector<FrameRef>& frames) {
  // Frames are reported before the link: a node that sends again at once then has its new frames on record.
  bool any = false;
  for (const FrameRef& frame : frames) any = report_sent(*frame, words.unreachable) || any;
  Frame& first = *frames.front();
  CoreNode& sender = node(first.sender);
  if (!any || !first.has_target() || !sender.up || !sender.up->has_discovery) return;
  if (beacons) {
    beacons->on_neighbor_failed(first.sender, first.target, first.interface, words.unreachable);
    return;
  }
  Ref neighbor = from_int(first.target);
  Ref time = now_of(first.sender);
  call_method(sender.up->stack.get(), "on_neighbor_failed", time.get(), neighbor.get(), first.interface,
              words.unreachable);
}

void Core::run_queued_of(int64_t id, PyObject* time) {
  if (node(id).up) run_queued(*node(id).up, time);
}

void Core::run_queued(NodeStack& stack, PyObject* time) {
  if (stack.queued && PyObject_Size(stack.queued.get()) > 0) call(stack.run_queued.get(), time);
}

// Native protocols.

void Core::transmit_native(FrameRef frame) {
  Medium& radio = *media.front();
  frame->sent_us = queue.now_us;
  frame->interface = Py_NewRef(radio.interface.get());
  frame->codec = &codecs[kDissemination];
  radio.transmit(std::move(frame));
}

void Core::deliver_if_fits(int64_t id, int64_t number, PyObject* event, PairId of, int64_t hops) {
  const SubscriptionRecord& subscription = ledger.subscription(number);
  EventRecord* record = ledger.find(of.first, of.second);
  if (record != nullptr && !ledger.fits(*record, subscription)) return;
  if (hooks.deliver || record == nullptr) {
    Ref to = get_attribute(subscription.subscription.get(), "id");
    deliver(id, to.get(), event, from_int(hops).get());
    return;
  }
  ledger.deliver(queue.now_us, queue.now_s, id, *record, number, hops);
  record_delivery(id, ledger.id_of(number), of, hops);
}

void Core::note_native(int64_t id, int64_t code, const char* kind, PairId event, PyObject* event_id, int64_t peer,
                       const char* reason) {
  if (code == words.code_store) {
    ledger.on_store(queue.now_s, id, event);
  } else if (code == words.code_evict) {
    ledger.on_evict(queue.now_s, id, event);
  }
  if (hooks.fact) {
    Ref other = peer < 0 ? Ref::borrow(Py_None) : from_int(peer);
    Ref why = Ref::steal(PyUnicode_FromString(reason == nullptr ? "" : reason));
    Ref named = Ref::steal(PyUnicode_FromString(kind));
    Ref fact = call(words.fact, named.get(), event_id, other.get(), why.get());
    call(hooks.fact.get(), id_of(id), layer_object(kDissemination), fact.get());
  }
  fingerprint.add(code, queue.now_us, id, peer);
  fingerprint.put(event.first);
  fingerprint.put(event.second);
}

// Facts.

void Core::record_delivery(int64_t id, PairId to, PairId of, int64_t hops) {
  fingerprint.add(words.code_deliver, queue.now_us, id, to.first);
  fingerprint.put(to.second);
  fingerprint.put(of.first);
  fingerprint.put(of.second);
  fingerprint.put(hops);
}

void Core::deliver(int64_t id, PyObject* subscription, PyObject* event, PyObject* hops) {
  PairId to = to_pair(subscription);
  PairId of = to_pair(fields.event_id.get(event));
  SubscriptionRecord* known = ledger.find_subscription(to);
  if (known != nullptr && known->by_processor) {
    call(hooks.processed.get(), id_of(id), subscription, event, hops);
  } else {
    ledger.on_deliver(queue.now_us, queue.now_s, id, to, event, to_int(hops));
  }
  if (hooks.deliver) call(hooks.deliver.get(), id_of(id), subscription, event, hops);
  record_delivery(id, to, of, to_int(hops));
}

void Core::note(int64_t id, int layer, PyObject* fact) {
  PyObject* event = unless_none(fields.fact_event.get(fact));
  PyObject* peer = unless_none(fields.fact_peer.get(fact));
  PyObject* value = unless_none(fields.fact_value.get(fact));
  PyObject* named = PyDict_GetItemWithError(words.fact_codes, fields.fact_kind.get(fact));
  if (named == nullptr && PyErr_Occurred()) throw PythonError();
  int64_t code = named == nullptr ? words.code_note : to_int(named);
  PairId of{0, 0};
  if (event != nullptr) {
    of = to_pair(event);
    if (code == words.code_store) {
      ledger.on_store(queue.now_s, id, of);
    } else if (code == words.code_evict) {
      ledger.on_evict(queue.now_s, id, of);
    }
  }
  if (hooks.fact) call(hooks.fact.get(), id_of(id), layer_object(layer), fact);
  fingerprint.add(code, queue.now_us, id, peer == nullptr ? -1 : to_int(peer));
  if (event != nullptr) {
    fingerprint.put(of.first);
    fingerprint.put(of.second);
  }
  if (value != nullptr) fingerprint.put(to_double(value));
}

}  // namespace carrycast
