#include "words.h"

#include <structmember.h>

namespace carrycast {

Words words;
Fields fields;

void Field::find(PyObject* type, const char* name) {
  Ref descriptor = get_attribute(type, name);
  if (Py_TYPE(descriptor.get()) != &PyMemberDescr_Type) {
    PyErr_Format(PyExc_TypeError, "%R has no field %s at a fixed place", type, name);
    throw PythonError();
  }
  offset_ = reinterpret_cast<PyMemberDescrObject*>(descriptor.get())->d_member->offset;
}

void configure(PyObject* named) {
  auto find = [named](const char* name) {
    PyObject* found = PyDict_GetItemString(named, name);
    if (found == nullptr) {
      PyErr_Format(PyExc_KeyError, "configure: %s is missing", name);
      throw PythonError();
    }
    return found;
  };
  auto keep = [&find](PyObject*& place, const char* name) {
    PyObject* found = find(name);
    Py_INCREF(found);
    Py_XSETREF(place, found);
  };
  keep(words.event_message, "event_message");
  keep(words.parcel_message, "parcel_message");
  keep(words.message, "message");
  keep(words.parcel, "parcel");
  keep(words.event, "event");
  keep(words.fact, "fact");
  keep(words.link, "link");
  keep(words.reach, "reach");
  keep(words.event_id, "event_id");
  keep(words.layers, "layers");
  keep(words.traffics, "traffics");
  keep(words.unreachable, "unreachable");
  keep(words.out_of_reach, "out_of_reach");
  keep(words.queue_full, "queue_full");
  keep(words.restarted, "restarted");
  keep(words.silent, "silent");
  keep(words.lease_expired, "lease_expired");
  keep(words.serves, "serves");
  keep(words.local_subscriptions, "local_subscriptions");
  keep(words.pack, "pack");
  keep(words.fact_codes, "fact_codes");
  const std::pair<int64_t*, const char*> numbers[] = {
      {&words.code_frame, "code_frame"},       {&words.code_drop, "code_drop"},
      {&words.code_miss, "code_miss"},         {&words.code_link_up, "code_link_up"},
      {&words.code_link_down, "code_link_down"}, {&words.code_deliver, "code_deliver"},
      {&words.code_note, "code_note"},         {&words.code_store, "code_store"},
      {&words.code_evict, "code_evict"},       {&words.header_bytes, "header_bytes"},
      {&words.broadcast_us, "broadcast_us"},   {&words.unicast_us, "unicast_us"},
      {&words.overhead_bytes, "overhead_bytes"}, {&words.byte_us, "byte_us"},
      {&words.rate_mbps, "rate_mbps"}};
  for (const auto& [place, name] : numbers) *place = to_int(find(name));
  fields.message_event.find(words.event_message, "event");
  fields.message_hops.find(words.event_message, "hops");
  fields.message_remaining_s.find(words.event_message, "remaining_s");
  fields.message_parcel.find(words.parcel_message, "parcel");
  fields.parcel_traffic.find(words.parcel, "traffic");
  fields.parcel_event.find(words.parcel, "event");
  fields.parcel_waited_s.find(words.parcel, "waited_s");
  fields.event_id.find(words.event, "id");
  fields.event_lease_s.find(words.event, "lease_s");
  fields.fact_kind.find(words.fact, "kind");
  fields.fact_event.find(words.fact, "event");
  fields.fact_peer.find(words.fact, "peer");
  fields.fact_reason.find(words.fact, "reason");
  fields.fact_value.find(words.fact, "value");
}

}  // namespace carrycast
