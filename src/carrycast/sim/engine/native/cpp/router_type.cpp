// The Python type `Router`: the handlers of one node's router.
#include "router.h"

namespace carrycast {

namespace {

struct RouterObject {
  PyObject_HEAD
  NativeRouter* router;
  PyObject* port;  // Keeps the core alive.
};

PyTypeObject router_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

NativeRouter& router_of(PyObject* self) { return *reinterpret_cast<RouterObject*>(self)->router; }

void check_count(Py_ssize_t count, Py_ssize_t wanted) {
  if (count == wanted) return;
  PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, count);
  throw PythonError();
}

// Defines a handler with positional arguments, the first of which is the time.
#define CARRYCAST_HANDLER(name, wanted, ...)                                            \
  PyObject* router_##name(PyObject* self, PyObject* const* values, Py_ssize_t count) {  \
    return guard_object([&]() -> PyObject* {                                            \
      check_count(count, wanted);                                                       \
      router_of(self).name(to_double(values[0]) __VA_OPT__(, ) __VA_ARGS__);            \
      Py_RETURN_NONE;                                                                   \
    });                                                                                 \
  }
CARRYCAST_HANDLER(on_start, 1)
CARRYCAST_HANDLER(on_stop, 1)
CARRYCAST_HANDLER(on_timer, 2, values[1])
CARRYCAST_HANDLER(on_message, 4, to_int(values[1]), values[2])
CARRYCAST_HANDLER(on_overheard, 4, to_int(values[1]), values[2])
CARRYCAST_HANDLER(on_sent, 3, to_int(values[1]), values[2])
CARRYCAST_HANDLER(on_link_up, 2, values[1])
CARRYCAST_HANDLER(on_link_down, 3, values[1])
CARRYCAST_HANDLER(on_route, 3, values[1], values[2])
CARRYCAST_HANDLER(on_route_each, 3, values[1], values[2])
#undef CARRYCAST_HANDLER

PyObject* router_hops_to(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  return guard_object([&]() -> PyObject* {
    check_count(count, 2);
    int64_t hops = router_of(self).hops_to(to_double(values[0]), to_int(values[1]));
    if (hops < 0) Py_RETURN_NONE;
    return from_int(hops).release();
  });
}

#define CARRYCAST_ENTRY(name) \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(router_##name)), METH_FASTCALL, nullptr}
PyMethodDef router_methods[] = {CARRYCAST_ENTRY(on_start),
                                CARRYCAST_ENTRY(on_stop),
                                CARRYCAST_ENTRY(on_timer),
                                CARRYCAST_ENTRY(on_message),
                                CARRYCAST_ENTRY(on_overheard),
                                CARRYCAST_ENTRY(on_sent),
                                CARRYCAST_ENTRY(on_link_up),
                                CARRYCAST_ENTRY(on_link_down),
                                CARRYCAST_ENTRY(on_route),
                                CARRYCAST_ENTRY(on_route_each),
                                CARRYCAST_ENTRY(hops_to),
                                {nullptr, nullptr, 0, nullptr}};
#undef CARRYCAST_ENTRY

// Arguments: the router's name, its parts, port, settings, host, whether only the host knows the position, incarnation,
// generator, upcalls.
PyObject* router_new(PyTypeObject* type, PyObject* values, PyObject*) {
  return guard_object([&]() -> PyObject* {
    const char* name;
    PyObject *parts, *port, *settings, *host, *generator, *up;
    int asks_host = 0;
    long long incarnation = 0;
    if (!PyArg_ParseTuple(values, "sOOOOpLOO", &name, &parts, &port, &settings, &host, &asks_host, &incarnation,
                          &generator, &up)) {
      throw PythonError();
    }
    PortOwner owner = owner_of(port);
    RouterContext context{parts, settings, *owner.core, owner.node, host, asks_host != 0, incarnation, generator, up};
    std::string wanted = name;
    std::unique_ptr<NativeRouter> router;
    if (wanted == "gpsr") router = make_gpsr(context);
    if (wanted == "aodv") router = make_aodv(context);
    if (!router) {
      PyErr_Format(PyExc_ValueError, "there is no native router %s", name);
      throw PythonError();
    }
    PyObject* made = check(type->tp_alloc(type, 0));
    reinterpret_cast<RouterObject*>(made)->router = router.release();
    reinterpret_cast<RouterObject*>(made)->port = Py_NewRef(port);
    return made;
  });
}

int router_traverse(PyObject* self, visitproc visit, void* arg) {
  RouterObject* object = reinterpret_cast<RouterObject*>(self);
  Py_VISIT(object->port);
  return object->router == nullptr ? 0 : object->router->traverse(visit, arg);
}

int router_clear(PyObject* self) {
  RouterObject* object = reinterpret_cast<RouterObject*>(self);
  if (object->router != nullptr) object->router->clear();
  Py_CLEAR(object->port);
  return 0;
}

void router_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  router_clear(self);
  delete reinterpret_cast<RouterObject*>(self)->router;
  Py_TYPE(self)->tp_free(self);
}

}  // namespace

PyObject* RouterContext::part(const char* name) const {
  PyObject* found = PyDict_GetItemString(parts, name);
  if (found == nullptr) {
    PyErr_Format(PyExc_KeyError, "the native router needs %s", name);
    throw PythonError();
  }
  return found;
}

double RouterContext::real(const char* setting) const { return to_double(get_attribute(settings, setting).get()); }
int64_t RouterContext::integer(const char* setting) const { return to_int(get_attribute(settings, setting).get()); }
bool RouterContext::flag(const char* setting) const { return is_true(get_attribute(settings, setting).get()); }
bool RouterContext::is_text(const char* setting, const char* text) const {
  return PyUnicode_CompareWithASCIIString(get_attribute(settings, setting).get(), text) == 0;
}

void add_router_type(PyObject* module) {
  router_type.tp_name = "carrycast._native.Router";
  router_type.tp_basicsize = sizeof(RouterObject);
  router_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  router_type.tp_doc = "The handlers of a router at one node.";
  router_type.tp_new = router_new;
  router_type.tp_traverse = router_traverse;
  router_type.tp_clear = router_clear;
  router_type.tp_dealloc = router_dealloc;
  router_type.tp_methods = router_methods;
  check_status(PyType_Ready(&router_type));
  check_status(PyModule_AddObjectRef(module, "Router", reinterpret_cast<PyObject*>(&router_type)));
}

}  // namespace carrycast
