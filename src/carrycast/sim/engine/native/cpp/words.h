// The Python objects that the core needs by name, set once by `configure`, and interned strings.
#pragma once
#include "python.h"

namespace carrycast {

enum LayerNumber { kDiscovery = 0, kRouting = 1, kDissemination = 2, kLayers = 3 };
enum TrafficNumber { kData = 0, kControl = 1, kBeacons = 2, kTraffics = 3 };

struct Words {
  PyObject* event_message = nullptr;   // the class EventMessage
  PyObject* parcel_message = nullptr;  // the class ParcelMessage
  PyObject* message = nullptr;         // the class Message
  PyObject* parcel = nullptr;          // the class Parcel
  PyObject* event = nullptr;           // the class Event
  PyObject* fact = nullptr;            // the class Fact
  PyObject* link = nullptr;            // the class Link
  PyObject* reach = nullptr;           // the class Reach
  PyObject* event_id = nullptr;        // the class EventId
  PyObject* layers = nullptr;          // the members of Layer, in order
  PyObject* traffics = nullptr;        // the members of Traffic, in order
  PyObject* unreachable = nullptr;     // Failure.UNREACHABLE
  PyObject* out_of_reach = nullptr;    // Failure.OUT_OF_REACH
  PyObject* queue_full = nullptr;      // Failure.QUEUE_FULL
  PyObject* restarted = nullptr;       // Failure.RESTARTED
  PyObject* silent = nullptr;          // Failure.SILENT
  PyObject* lease_expired = nullptr;   // the drop reason LEASE_EXPIRED
  PyObject* serves = nullptr;          // the function `serves` of the matcher
  PyObject* local_subscriptions = nullptr;  // the class LocalSubscriptions of protocols
  PyObject* pack = nullptr;            // encodes a value as MessagePack
  PyObject* fact_codes = nullptr;      // dict: kind of fact -> its code in fingerprints
  int64_t code_frame = 0, code_drop = 0, code_miss = 0, code_link_up = 0, code_link_down = 0, code_deliver = 0;
  int64_t code_note = 0, code_store = 0, code_evict = 0;
  int64_t header_bytes = 0;
  int64_t broadcast_us = 0, unicast_us = 0, overhead_bytes = 0, byte_us = 0, rate_mbps = 0;
};

extern Words words;

// Sets `words` from a dictionary with the same names.
void configure(PyObject* named);

inline PyObject* layer_object(int layer) { return PyTuple_GET_ITEM(words.layers, layer); }

// A field of msgspec structs of one class, read at its place in memory.
class Field {
 public:
  void find(PyObject* type, const char* name);

  // A borrowed reference, which the object keeps.
  PyObject* get(PyObject* object) const {
    PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
    if (value == nullptr) {
      PyErr_SetString(PyExc_AttributeError, "a field is not set");
      throw PythonError();
    }
    return value;
  }

  // Replaces the value of an object that nobody else has seen yet.
  void set(PyObject* object, Ref value) const {
    PyObject** place = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
    PyObject* old = std::exchange(*place, value.release());
    Py_XDECREF(old);
  }

 private:
  Py_ssize_t offset_ = 0;
};

struct Fields {
  Field message_event, message_hops, message_remaining_s, message_parcel;
  Field parcel_traffic, parcel_event, parcel_waited_s;
  Field event_id, event_lease_s;
  Field fact_kind, fact_event, fact_peer, fact_reason, fact_value;
};

extern Fields fields;

// An id of two numbers, such as EventId: a named tuple.
struct PairId {
  int64_t first, second;
};

inline PairId to_pair(PyObject* object) {
  if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 2) {
    PyErr_Format(PyExc_TypeError, "an id of two numbers is needed, not %R", object);
    throw PythonError();
  }
  return {to_int(PyTuple_GET_ITEM(object, 0)), to_int(PyTuple_GET_ITEM(object, 1))};
}

}  // namespace carrycast
