#include "router_parts.h"

#include <algorithm>
#include <unordered_map>

namespace carrycast {

namespace {

bool is_same(PyObject* a, PyObject* b) {
  int same = PyObject_RichCompareBool(a, b, Py_EQ);
  check_status(same);
  return same != 0;
}

}  // namespace

PyObject* interned(const char* text) {
  // By address: the texts are literals.
  static std::unordered_map<const char*, PyObject*> known;
  PyObject*& string = known[text];
  if (string == nullptr) string = check(PyUnicode_InternFromString(text));
  return string;
}

Ref named_tuple(PyObject* type, std::initializer_list<Ref> values) {
  PyTypeObject* named = reinterpret_cast<PyTypeObject*>(type);
  Ref made = Ref::steal(named->tp_alloc(named, static_cast<Py_ssize_t>(values.size())));
  Py_ssize_t place = 0;
  for (const Ref& value : values) PyTuple_SET_ITEM(made.get(), place++, Py_NewRef(value.get()));
  return made;
}

void LinkedNeighbors::add(PyObject* link) {
  std::vector<Ref>& known = interfaces_[to_int(get_attribute(link, "neighbor").get())];
  Ref interface = get_attribute(link, "interface");
  for (const Ref& other : known) {
    if (is_same(other.get(), interface.get())) return;
  }
  known.push_back(std::move(interface));
}

int64_t LinkedNeighbors::remove(PyObject* link) {
  int64_t neighbor = to_int(get_attribute(link, "neighbor").get());
  auto place = interfaces_.find(neighbor);
  if (place == interfaces_.end()) return -1;
  Ref interface = get_attribute(link, "interface");
  std::vector<Ref>& known = place->second;
  known.erase(std::remove_if(known.begin(), known.end(), [&](const Ref& other) { return is_same(other.get(), interface.get()); }),
              known.end());
  if (!known.empty()) return -1;
  interfaces_.erase(place);
  return neighbor;
}

Ref position_of(Point at) {
  Ref x = Ref::steal(PyFloat_FromDouble(at.x)), y = Ref::steal(PyFloat_FromDouble(at.y));
  return named_tuple(gpsr_classes.position, {std::move(x), std::move(y)});
}

Ref aged_parcel(PyObject* parcel, double received_at, double now) {
  if (!(now > received_at)) return Ref::borrow(parcel);
  return age_parcel(parcel, now - received_at);
}

}  // namespace carrycast
