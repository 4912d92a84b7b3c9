// Routers in C++. Each follows its Python class, which is the specification, step for step. The Python class says which
// settings are covered, and which classes, functions and constants of its modules the C++ class needs
// (`Router.native_parts`).
#pragma once
#include <memory>

#include "core.h"

namespace carrycast {

// The router of one node: the handlers of carrycast.core.protocol.Router.
class NativeRouter {
 public:
  virtual ~NativeRouter() = default;

  virtual void on_start(double now) = 0;
  virtual void on_stop(double now) = 0;
  virtual void on_timer(double now, PyObject* key) = 0;
  virtual void on_message(double now, int64_t sender, PyObject* message) = 0;
  virtual void on_overheard(double /*now*/, int64_t /*sender*/, PyObject* /*message*/) {}
  virtual void on_sent(double now, int64_t token, PyObject* failure) = 0;
  virtual void on_link_up(double now, PyObject* link) = 0;
  virtual void on_link_down(double now, PyObject* link) = 0;
  virtual void on_route(double now, PyObject* target, PyObject* parcel) = 0;
  virtual void on_route_each(double now, PyObject* targets, PyObject* parcel) = 0;
  // The hop count to a node, 0 for this node; -1 without a route.
  virtual int64_t hops_to(double now, int64_t node) const = 0;

  virtual int traverse(visitproc visit, void* arg) = 0;
  virtual void clear() = 0;
};

// What a router is made of.
struct RouterContext {
  PyObject* parts;     // The classes, functions and constants of the Python router, by name.
  PyObject* settings;  // The settings of the Python router.
  Core& core;
  int64_t node;
  PyObject* host;
  bool asks_host;  // Whether only the host knows the position that the node is told.
  int64_t incarnation;
  PyObject* generator;
  PyObject* up;  // The upcalls to the layer above.

  PyObject* part(const char* name) const;
  double real(const char* setting) const;
  int64_t integer(const char* setting) const;
  bool flag(const char* setting) const;
  bool is_text(const char* setting, const char* text) const;
};

std::unique_ptr<NativeRouter> make_gpsr(const RouterContext& context);
std::unique_ptr<NativeRouter> make_aodv(const RouterContext& context);

void add_router_type(PyObject* module);

}  // namespace carrycast
