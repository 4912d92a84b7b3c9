// The port of one layer of one node: the calls by which a protocol acts, as `SimPort` in sim/engine/node.py.
#include <limits>

#include "core.h"

namespace carrycast {

namespace {

struct PortObject {
  PyObject_HEAD
  PyObject* core_object;
  Core* core;
  int64_t node;
  int layer;
  PyObject* python_node;
  PyObject* python_port;  // The port of the Python engine, for calls that are rare. Made when it is needed.
};

PyTypeObject port_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PortObject& port_of(PyObject* self) { return *reinterpret_cast<PortObject*>(self); }

// The port of the Python engine.
PyObject* python_port(PortObject& port) {
  if (port.python_port == nullptr) {
    port.python_port = call_method(port.python_node, "make_python_port", layer_object(port.layer)).release();
  }
  return port.python_port;
}

PyObject* delegate(PyObject* self, const char* name, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&] {
    Ref method = get_attribute(python_port(port_of(self)), name);
    return check(PyObject_Vectorcall(method.get(), values, static_cast<size_t>(count), names));
  });
}

PyObject* port_send(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("send", values, count, names);
    given.limit(4);
    PortObject& port = port_of(self);
    PyObject* via = given.find(2, "via");
    PyObject* token = given.find(3, "token");
    port.core->transmit(port.node, to_int(given.get(0, "target")), port.layer, given.get(1, "message"),
                        via == nullptr ? nullptr : unless_none(via), token == nullptr ? nullptr : unless_none(token));
    Py_RETURN_NONE;
  });
}

PyObject* port_broadcast(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("broadcast", values, count, names);
    given.limit(2);
    PortObject& port = port_of(self);
    PyObject* on = given.find(1, "on");
    port.core->transmit(port.node, kNoTarget, port.layer, given.get(0, "message"),
                        on == nullptr ? nullptr : unless_none(on), nullptr);
    Py_RETURN_NONE;
  });
}

PyObject* port_send_each(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("send_each", values, count, names);
    given.limit(2);
    PortObject& port = port_of(self);
    port.core->transmit_each(port.node, given.get(0, "targets"), port.layer, given.get(1, "message"));
    Py_RETURN_NONE;
  });
}

PyObject* port_set_timer(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("set_timer", values, count, names);
    given.limit(2);
    PortObject& port = port_of(self);
    port.core->set_timer(port.node, port.layer, given.get(0, "key"), to_double(given.get(1, "delay_s")));
    Py_RETURN_NONE;
  });
}

PyObject* port_cancel_timer(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("cancel_timer", values, count, names);
    given.limit(1);
    PortObject& port = port_of(self);
    port.core->cancel_timer(port.node, port.layer, given.get(0, "key"));
    Py_RETURN_NONE;
  });
}

PyObject* port_deliver(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("deliver", values, count, names);
    given.limit(3);
    PortObject& port = port_of(self);
    if (port.core->node(port.node).has_applications) {
      return delegate(self, "deliver", values, count, names);
    }
    port.core->deliver(port.node, given.get(0, "subscription"), given.get(1, "event"), given.get(2, "hops"));
    Py_RETURN_NONE;
  });
}

PyObject* port_note(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guard_object([&]() -> PyObject* {
    Arguments given("note", values, count, names);
    given.limit(1);
    PortObject& port = port_of(self);
    port.core->note(port.node, port.layer, given.get(0, "fact"));
    Py_RETURN_NONE;
  });
}

// Defines a method that the port of the Python engine carries out.
#define CARRYCAST_DELEGATED(name)                                                                           \
  PyObject* port_##name(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {      \
    return delegate(self, #name, values, count, names);                                                    \
  }
CARRYCAST_DELEGATED(route)
CARRYCAST_DELEGATED(route_each)
CARRYCAST_DELEGATED(answer)
CARRYCAST_DELEGATED(close_request)
CARRYCAST_DELEGATED(close_history)
CARRYCAST_DELEGATED(acknowledge_replica)
CARRYCAST_DELEGATED(process)
#undef CARRYCAST_DELEGATED

#define CARRYCAST_METHOD(name)                                                                        \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(port_##name)), METH_FASTCALL | METH_KEYWORDS, \
   nullptr}
PyMethodDef port_methods[] = {CARRYCAST_METHOD(send),
                              CARRYCAST_METHOD(send_each),
                              CARRYCAST_METHOD(broadcast),
                              CARRYCAST_METHOD(route),
                              CARRYCAST_METHOD(route_each),
                              CARRYCAST_METHOD(set_timer),
                              CARRYCAST_METHOD(cancel_timer),
                              CARRYCAST_METHOD(deliver),
                              CARRYCAST_METHOD(answer),
                              CARRYCAST_METHOD(close_request),
                              CARRYCAST_METHOD(close_history),
                              CARRYCAST_METHOD(acknowledge_replica),
                              CARRYCAST_METHOD(process),
                              CARRYCAST_METHOD(note),
                              {nullptr, nullptr, 0, nullptr}};
#undef CARRYCAST_METHOD

int port_traverse(PyObject* self, visitproc visit, void* arg) {
  PortObject& port = port_of(self);
  Py_VISIT(port.core_object);
  Py_VISIT(port.python_node);
  Py_VISIT(port.python_port);
  return 0;
}

int port_clear(PyObject* self) {
  PortObject& port = port_of(self);
  Py_CLEAR(port.python_node);
  Py_CLEAR(port.python_port);
  return 0;
}

void port_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  port_clear(self);
  Py_CLEAR(port_of(self).core_object);
  PyObject_GC_Del(self);
}

}  // namespace

PortOwner owner_of(PyObject* port) {
  if (Py_TYPE(port) != &port_type) {
    PyErr_Format(PyExc_TypeError, "a port of the native engine is needed, not %R", port);
    throw PythonError();
  }
  return {port_of(port).core, port_of(port).node};
}

Ref make_port(PyObject* core_object, Core* core, int64_t node, int layer, PyObject* python_node) {
  PortObject* port = PyObject_GC_New(PortObject, &port_type);
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(port));
  port->core_object = Py_NewRef(core_object);
  port->core = core;
  port->node = node;
  port->layer = layer;
  port->python_node = Py_NewRef(python_node);
  port->python_port = nullptr;
  PyObject_GC_Track(made.get());
  return made;
}

void add_port_type(PyObject* module) {
  port_type.tp_name = "carrycast._native.Port";
  port_type.tp_basicsize = sizeof(PortObject);
  port_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  port_type.tp_doc = "The port of one layer of one node.";
  port_type.tp_traverse = port_traverse;
  port_type.tp_clear = port_clear;
  port_type.tp_dealloc = port_dealloc;
  port_type.tp_methods = port_methods;
  check_status(PyType_Ready(&port_type));
  check_status(PyModule_AddObjectRef(module, "Port", reinterpret_cast<PyObject*>(&port_type)));
}

}  // namespace carrycast
