// What the native routers share: named tuples, positions, parcels, and the classes of their messages.
#pragma once
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "frame.h"
#include "gpsr_geometry.h"
#include "words.h"

namespace carrycast {

// The entry of a tuple.
inline PyObject* item(PyObject* tuple, Py_ssize_t place) {
  if (!PyTuple_Check(tuple) || place >= PyTuple_GET_SIZE(tuple)) {
    PyErr_Format(PyExc_TypeError, "a longer tuple is needed, not %R", tuple);
    throw PythonError();
  }
  return PyTuple_GET_ITEM(tuple, place);
}

inline Point read_point(PyObject* position) { return {to_double(item(position, 0)), to_double(item(position, 1))}; }

// An interned string. Borrowed; interned strings of the core live as long as the process.
PyObject* interned(const char* text);
// A tuple of a named class.
Ref named_tuple(PyObject* type, std::initializer_list<Ref> values);
Ref position_of(Point at);
// A parcel with the time that it has spent at this node.
Ref aged_parcel(PyObject* parcel, double received_at, double now);

// The nodes with at least one link, as in core/parts/neighbors.py.
class LinkedNeighbors {
 public:
  void add(PyObject* link);
  // The neighbor if the link was the last one to it, else -1.
  int64_t remove(PyObject* link);

 private:
  std::unordered_map<int64_t, std::vector<Ref>> interfaces_;
};

struct GeoPacketFields {
  Field parcel, origin, number, place, hops, at, perimeter;
};

// The classes of routers/gpsr/messages.py, and of the protocol interface.
struct GpsrClasses {
  PyObject *beacon = nullptr, *packet = nullptr, *bundle = nullptr, *perimeter_header = nullptr;
  PyObject *place = nullptr, *position = nullptr;
  PyObject *packet_names = nullptr, *bundle_names = nullptr, *beacon_key = nullptr;
  Field beacon_position, bundle_others;
  GeoPacketFields packet_fields, bundle_fields;
  const GeoPacketFields& fields_of(bool is_bundle) const { return is_bundle ? bundle_fields : packet_fields; }
};
extern GpsrClasses gpsr_classes;

}  // namespace carrycast
