#include "protocol.h"

#include <cstring>

#include "core.h"
#include "epidemic.h"
#include "flood.h"

namespace carrycast {

NativeProtocol::NativeProtocol(Core& core, PyObject* make_rng, PyObject* messages)
    : core_(core), make_rng_(Ref::borrow(make_rng)), random_(core.nodes.size()), local_(core.nodes.size()) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(messages); i++) {
    PyObject* type = PyTuple_GET_ITEM(messages, i);
    size_t tag = MessageKind::of_type(type).tag;
    if (classes_.size() <= tag) classes_.resize(tag + 1);
    classes_[tag] = Ref::borrow(type);
  }
}

const MessageKind& NativeProtocol::kind_of(uint16_t tag) const { return MessageKind::of_type(class_of(tag)); }

PyObject* NativeProtocol::class_of(uint16_t tag) const { return classes_.at(tag).get(); }

void NativeProtocol::publish(int64_t node, PyObject* event) {
  EventInfo info;
  info.event = Ref::borrow(event);
  info.id_object = Ref::borrow(fields.event_id.get(event));
  info.id = to_pair(info.id_object.get());
  info.lease_s = to_double(fields.event_lease_s.get(event));
  EventRecord* record = core_.ledger.find(info.id.first, info.id.second);
  if (record == nullptr) throw std::runtime_error("an event that was not reported is published");
  info.size_bytes = record->size_bytes;
  Ref packed = call(words.pack, info.id_object.get());
  info.id_bytes.assign(PyBytes_AS_STRING(packed.get()), static_cast<size_t>(PyBytes_GET_SIZE(packed.get())));
  events_.push_back(std::move(info));
  on_publish(node, static_cast<int32_t>(events_.size() - 1));
}

void NativeProtocol::subscribe(int64_t node, PyObject* subscription) {
  Local& local = local_[static_cast<size_t>(node)];
  Ref id = get_attribute(subscription, "id");
  int64_t number = core_.ledger.number_of(to_pair(id.get()));
  if (local.number < 0 && !local.several) {
    local.number = number;
    return;
  }
  if (!local.several) {
    local.several = call(words.local_subscriptions, Py_None);
    call_method(local.several.get(), "add", core_.ledger.subscription(local.number).subscription.get());
    local.number = -1;
  }
  call_method(local.several.get(), "add", subscription);
}

void NativeProtocol::unsubscribe(int64_t node, PyObject* id) {
  Local& local = local_[static_cast<size_t>(node)];
  if (local.several) {
    call_method(local.several.get(), "remove", id);
  } else if (local.number == core_.ledger.number_of(to_pair(id))) {
    local.number = -1;
  }
}

void NativeProtocol::deliver(int64_t node, int32_t event, int64_t hops) {
  const Local& local = local_[static_cast<size_t>(node)];
  EventInfo& info = events_[static_cast<size_t>(event)];
  if (local.several) {
    Ref ids = call_method(local.several.get(), "matching_ids", info.event.get());
    Ref count = from_int(hops);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids.get()); i++) {
      core_.deliver(node, PyList_GET_ITEM(ids.get(), i), info.event.get(), count.get());
    }
    return;
  }
  if (local.number < 0) return;
  core_.deliver_if_fits(node, local.number, info.event.get(), info.id, hops);
}

FrameRef NativeProtocol::make_event_frame(int64_t node, int64_t target, uint16_t tag, int32_t event, int64_t hops,
                                          double remaining_s) {
  const EventInfo& info = events_[static_cast<size_t>(event)];
  FrameRef frame = make_native_frame(node, target, kind_of(tag), class_of(tag), &events_);
  frame->number = event;
  frame->hops = hops;
  frame->remaining_s = remaining_s;
  frame->has_event = true;
  frame->source = info.id.first;
  frame->sequence = info.id.second;
  // An array of tag, event, hops and remaining lease.
  frame->size_bytes = words.header_bytes + 2 + info.size_bytes + packed_length(hops) + 9;
  return frame;
}

void NativeProtocol::send(int64_t node, int64_t target, FrameRef frame) {
  frame->sender = node;
  frame->target = target;
  core_.transmit_native(std::move(frame));
}

void NativeProtocol::note(int64_t node, int64_t code, const char* kind, int32_t event, int64_t peer,
                          const char* reason) {
  const EventInfo& info = events_[static_cast<size_t>(event)];
  core_.note_native(node, code, kind, info.id, info.id_object.get(), peer, reason);
}

Random& NativeProtocol::random_of(int64_t node) {
  std::unique_ptr<Random>& random = random_[static_cast<size_t>(node)];
  if (!random) {
    random = std::make_unique<Random>();
    random->take_over(call(make_rng_.get(), core_.id_of(node)).get());
  }
  return *random;
}

double setting(PyObject* settings, const char* name) {
  PyObject* value = PyDict_GetItemString(settings, name);
  if (value == nullptr) {
    PyErr_Format(PyExc_KeyError, "the setting %s is missing", name);
    throw PythonError();
  }
  return to_double(value);
}

std::unique_ptr<NativeProtocol> make_protocol(Core& core, const char* name, PyObject* settings, PyObject* make_rng,
                                              PyObject* messages) {
  if (std::strcmp(name, "flooding") == 0 || std::strcmp(name, "gossip") == 0) {
    return std::make_unique<FloodProtocol>(core, name, settings, make_rng, messages);
  }
  if (std::strcmp(name, "epidemic") == 0) return std::make_unique<EpidemicProtocol>(core, settings, make_rng, messages);
  throw std::runtime_error("there is no such native protocol");
}

}  // namespace carrycast
