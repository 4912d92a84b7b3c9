// The extension module `carrycast._native`.
#include "core.h"
#include "router.h"

#ifndef CARRYCAST_SOURCE_DIGEST
#define CARRYCAST_SOURCE_DIGEST ""
#endif

namespace {

using namespace carrycast;

PyObject* module_configure(PyObject*, PyObject* named) {
  return guard_object([&]() -> PyObject* {
    configure(named);
    Py_RETURN_NONE;
  });
}

PyMethodDef module_methods[] = {
    {"configure", module_configure, METH_O, "Set the Python objects that the core needs, by name."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "carrycast._native", "The native simulation core.", -1, module_methods,
    nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  return guard_object([]() -> PyObject* {
    Ref module = Ref::steal(PyModule_Create(&module_definition));
    add_topology_type(module.get());
    add_frame_type(module.get());
    add_timer_type(module.get());
    add_port_type(module.get());
    add_core_type(module.get());
    add_router_type(module.get());
    check_status(PyModule_AddStringConstant(module.get(), "SOURCE_DIGEST", CARRYCAST_SOURCE_DIGEST));
    return module.release();
  });
}
