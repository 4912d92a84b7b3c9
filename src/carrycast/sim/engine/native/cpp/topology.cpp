#include "topology.h"

#include <algorithm>

#include "words.h"

namespace carrycast {

Ref to_tuple(NodeSpan nodes) {
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(nodes.size)));
  for (size_t i = 0; i < nodes.size; i++) {
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLong(nodes.data[i])));
  }
  return made;
}

Topology::Topology(size_t nodes) : contacts_(nodes), up_(nodes, true) {}

NodeSpan Topology::reach(int64_t node) {
  std::vector<int32_t>& contacts = contacts_[static_cast<size_t>(node)];
  if (down_ == 0 && cuts_.empty()) return {contacts.data(), contacts.size()};
  if (filtered_.empty()) {
    filtered_.resize(contacts_.size());
    is_filtered_.assign(contacts_.size(), false);
  }
  size_t place = static_cast<size_t>(node);
  std::vector<int32_t>& found = filtered_[place];
  if (!is_filtered_[place]) {
    is_filtered_[place] = true;
    found.clear();
    for (int32_t other : contacts) {
      if (is_linked(node, other)) found.push_back(other);
    }
  }
  return {found.data(), found.size()};
}

bool Topology::is_linked(int64_t a, int64_t b) const {
  if (!has(a) || !has(b)) return false;
  const std::vector<int32_t>& contacts = contacts_[static_cast<size_t>(a)];
  if (std::find(contacts.begin(), contacts.end(), static_cast<int32_t>(b)) == contacts.end()) return false;
  if (down_ > 0 && (!up_[static_cast<size_t>(a)] || !up_[static_cast<size_t>(b)])) return false;
  return cuts_.empty() || cuts_.count(std::minmax(a, b)) == 0;
}

void Topology::set_contact(int64_t a, int64_t b, bool up) {
  for (auto [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    std::vector<int32_t>& contacts = contacts_[static_cast<size_t>(one)];
    auto place = std::find(contacts.begin(), contacts.end(), static_cast<int32_t>(other));
    if (up && place == contacts.end()) {
      contacts.push_back(static_cast<int32_t>(other));
    } else if (!up && place != contacts.end()) {
      contacts.erase(place);
    }
  }
  forget(a);
  forget(b);
  version++;
}

void Topology::set_node(int64_t node, bool up) {
  size_t place = static_cast<size_t>(node);
  if (up_[place] != up) down_ = up ? down_ - 1 : down_ + 1;
  up_[place] = up;
  version++;
  forget(node);
  for (int32_t other : contacts_[place]) forget(other);
  if (!up && on_node_down) on_node_down(node);
}

void Topology::set_cut(int64_t a, int64_t b, bool cut) {
  auto pair = std::pair<int64_t, int64_t>(std::minmax(a, b));
  int64_t left = (cuts_[pair] += cut ? 1 : -1);
  if (left < 0) throw std::runtime_error("a cut ends that never began");
  if (left == 0) cuts_.erase(pair);
  forget(a);
  forget(b);
  version++;
}

void Topology::forget(int64_t node) {
  size_t place = static_cast<size_t>(node);
  if (!is_filtered_.empty()) is_filtered_[place] = false;
  if (!shown_.empty()) shown_[place] = Ref();
}

PyObject* Topology::show_reach(int64_t node) {
  if (shown_.empty()) shown_.resize(contacts_.size());
  Ref& shown = shown_[static_cast<size_t>(node)];
  if (!shown) shown = call(words.reach, to_tuple(reach(node)).get());
  return shown.get();
}

// The Python type.

namespace {

struct TopologyObject {
  PyObject_HEAD
  Topology* topology;
  PyObject* owner;
};

Topology& topology_of(PyObject* self) { return *reinterpret_cast<TopologyObject*>(self)->topology; }

int64_t node_of(PyObject* self, PyObject* object) {
  int64_t node = to_int(object);
  if (node < 0 || static_cast<size_t>(node) >= topology_of(self).nodes()) {
    PyErr_SetString(PyExc_IndexError, "there is no such node");
    throw PythonError();
  }
  return node;
}

void expect(Py_ssize_t count, Py_ssize_t wanted) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, count);
    throw PythonError();
  }
}

PyObject* topology_reach(PyObject* self, PyObject* node) {
  return guard_object([&] { return Py_NewRef(topology_of(self).show_reach(node_of(self, node))); });
}

PyObject* topology_is_linked(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  return guard_object([&] {
    expect(count, 2);
    return PyBool_FromLong(topology_of(self).is_linked(to_int(values[0]), to_int(values[1])));
  });
}

PyObject* topology_set_contact(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("set_contact", values, count, names);
    bool up = is_true(given.get(2, "up"));
    topology_of(self).set_contact(node_of(self, given.get(0, "a")), node_of(self, given.get(1, "b")), up);
    Py_RETURN_NONE;
  });
}

PyObject* topology_set_node(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("set_node", values, count, names);
    topology_of(self).set_node(node_of(self, given.get(0, "node")), is_true(given.get(1, "up")));
    Py_RETURN_NONE;
  });
}

PyObject* topology_set_cut(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("set_cut", values, count, names);
    bool cut = is_true(given.get(2, "cut"));
    topology_of(self).set_cut(node_of(self, given.get(0, "a")), node_of(self, given.get(1, "b")), cut);
    Py_RETURN_NONE;
  });
}

PyObject* topology_version(PyObject* self, void*) {
  return PyLong_FromLongLong(topology_of(self).version);
}

void topology_dealloc(PyObject* self) {
  Py_XDECREF(reinterpret_cast<TopologyObject*>(self)->owner);
  PyObject_Free(self);
}

PyMethodDef topology_methods[] = {
    {"reach", topology_reach, METH_O, "All neighbors of a node."},
    {"is_linked", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(topology_is_linked)), METH_FASTCALL,
     "Whether two nodes are linked."},
    {"set_contact", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(topology_set_contact)),
     METH_FASTCALL | METH_KEYWORDS, "Record that two nodes come into range or leave it."},
    {"set_node", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(topology_set_node)),
     METH_FASTCALL | METH_KEYWORDS, "Record that a node goes down or comes up."},
    {"set_cut", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(topology_set_cut)),
     METH_FASTCALL | METH_KEYWORDS, "Begin or end a cut of a link."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef topology_values[] = {
    {"version", topology_version, nullptr, "Changes with every change of a link.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject topology_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

void add_topology_type(PyObject* module) {
  topology_type.tp_name = "carrycast._native.Topology";
  topology_type.tp_basicsize = sizeof(TopologyObject);
  topology_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  topology_type.tp_doc = "The links between nodes over one medium.";
  topology_type.tp_dealloc = topology_dealloc;
  topology_type.tp_methods = topology_methods;
  topology_type.tp_getset = topology_values;
  check_status(PyType_Ready(&topology_type));
  check_status(PyModule_AddObjectRef(module, "Topology", reinterpret_cast<PyObject*>(&topology_type)));
}

Ref wrap_topology(Topology* topology, PyObject* owner) {
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(PyObject_New(TopologyObject, &topology_type)));
  auto* object = reinterpret_cast<TopologyObject*>(made.get());
  object->topology = topology;
  object->owner = Py_NewRef(owner);
  return made;
}

}  // namespace carrycast
