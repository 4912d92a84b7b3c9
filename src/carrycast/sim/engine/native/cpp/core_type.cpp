// The Python type `Core`, by which the Python half of the engine sets up a run and calls the core.
#include <memory>

#include "core.h"
#include "beacons.h"
#include "csma.h"
#include "disk.h"
#include "protocol.h"

namespace carrycast {

namespace {

struct CoreObject {
  PyObject_HEAD
  Core* core;
};

PyTypeObject core_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

Core& core_of(PyObject* self) { return *reinterpret_cast<CoreObject*>(self)->core; }

// The positional arguments of a method, which are exactly `wanted`.
class Given {
 public:
  Given(PyObject* const* values, Py_ssize_t count, Py_ssize_t wanted) : values_(values) {
    if (count != wanted) {
      PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, count);
      throw PythonError();
    }
  }
  PyObject* operator[](int place) const { return values_[place]; }
  int64_t integer(int place) const { return to_int(values_[place]); }
  double real(int place) const { return to_double(values_[place]); }
  bool flag(int place) const { return is_true(values_[place]); }
  PyObject* optional(int place) const { return unless_none(values_[place]); }
  PairId pair(int place) const { return to_pair(values_[place]); }
  Ref kept(int place) const { return values_[place] == Py_None ? Ref() : Ref::borrow(values_[place]); }

 private:
  PyObject* const* values_;
};

// The nodes in a tuple.
std::vector<int32_t> to_nodes(PyObject* tuple) {
  std::vector<int32_t> found;
  Ref sequence = Ref::steal(PySequence_Fast(tuple, "nodes are a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++) {
    found.push_back(static_cast<int32_t>(to_int(PySequence_Fast_GET_ITEM(sequence.get(), i))));
  }
  return found;
}

// Defines a method of `Core` with positional arguments; its body returns a new reference.
#define CARRYCAST_METHOD(name, wanted, ...)                                             \
  PyObject* core_##name(PyObject* self, PyObject* const* values, Py_ssize_t count) {   \
    return guard_object([&]() -> PyObject* {                                            \
      [[maybe_unused]] Given given(values, count, wanted);                              \
      [[maybe_unused]] Core& core = core_of(self);                                      \
      __VA_ARGS__                                                                       \
    });                                                                                 \
  }

// The event queue.

CARRYCAST_METHOD(at, 3, {
  core.at_python(given.integer(0), given[1], given[2]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(timer, 3, { return core.python_timer(given.real(0), given[1], given[2]).release(); })
CARRYCAST_METHOD(cancel, 1, {
  core.cancel(as_timer(given[0]));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(run, 1, {
  core.queue.run(given.integer(0));
  Py_RETURN_NONE;
})

// Set-up.

CARRYCAST_METHOD(set_codec, 3, {
  LayerCodec& codec = core.codecs[given.integer(0)];
  codec.header = given.kept(1);
  codec.encode_body = given.kept(2);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_hash, 1, {
  core.fingerprint.set_hash(given[0]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_fail, 1, {
  core.ledger.set_fail(given[0]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_network, 3, {
  core.hooks.network = given.kept(0);
  core.disturbed = given.flag(1);
  core.hooks.extra_s = given.kept(2);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_observers, 7, {
  core.hooks.frame = given.kept(0);
  core.hooks.lost = given.kept(1);
  core.hooks.missed = given.kept(2);
  core.hooks.fact = given.kept(3);
  core.hooks.deliver = given.kept(4);
  core.hooks.link = given.kept(5);
  core.hooks.processed = given.kept(6);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_clock, 3, {
  if (core.clocks.empty()) core.clocks.resize(core.nodes.size());
  core.clocks.at(static_cast<size_t>(given.integer(0))) = Clock{true, given.real(1), given.real(2)};
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_applications, 1, {
  core.node(given.integer(0)).has_applications = true;
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_changes, 4, {
  Buffer<int64_t> time_us(given[0]);
  Buffer<int32_t> a(given[1]), b(given[2]);
  Buffer<uint8_t> up(given[3]);
  core.set_changes({time_us.begin(), time_us.end()}, {a.begin(), a.end()}, {b.begin(), b.end()},
                   std::vector<bool>(up.begin(), up.end()));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_media, 2, {
  CoreNode& node = core.node(given.integer(0));
  node.media.clear();
  Ref names = Ref::steal(PySequence_Fast(given[1], "interfaces are a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names.get()); i++) {
    Medium* medium = core.medium_named(PySequence_Fast_GET_ITEM(names.get(), i));
    if (medium == nullptr) throw std::runtime_error("there is no such interface");
    node.media.push_back(medium);
  }
  Py_RETURN_NONE;
})

// Nodes.

CARRYCAST_METHOD(port, 3, {
  core.node(given.integer(0));
  return make_port(self, &core, given.integer(0), static_cast<int>(given.integer(1)), given[2]).release();
})
// A node has started: its stack, the queue of its stack's calls and what runs it, whether it has discovery, and for
// each layer its handlers.
CARRYCAST_METHOD(attach, 6, {
  CoreNode& node = core.node(given.integer(0));
  auto up = std::make_unique<NodeStack>();
  up->stack = given.kept(1);
  up->queued = given.kept(2);
  up->run_queued = given.kept(3);
  up->has_discovery = given.flag(4);
  for (int layer = 0; layer < kLayers; layer++) {
    PyObject* handlers = check(PyTuple_GetItem(given[5], layer));
    if (handlers == Py_None) continue;
    Handlers& placed = up->layers[layer];
    Ref* places[] = {&placed.on_message, &placed.on_timer, &placed.on_sent, &placed.on_link_up, &placed.on_link_down};
    for (int i = 0; i < 5; i++) {
      PyObject* handler = check(PyTuple_GetItem(handlers, i));
      if (handler != Py_None) *places[i] = Ref::borrow(handler);
    }
  }
  node.up = std::move(up);
  node.started_us = node.restarted_us = core.queue.now_us;
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(detach, 1, {
  CoreNode& node = core.node(given.integer(0));
  node.up.reset();
  node.links.clear();
  core.cancel_timers(given.integer(0));
  if (core.beacons) core.beacons->stop(given.integer(0));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_timer, 4, {
  core.set_timer(given.integer(0), static_cast<int>(given.integer(1)), given[2], given.real(3));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(cancel_timer, 3, {
  core.cancel_timer(given.integer(0), static_cast<int>(given.integer(1)), given[2]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(armed_timers, 2, {
  return core.armed_timers(given.integer(0), static_cast<int>(given.integer(1))).release();
})

// Discovery by beacons.

CARRYCAST_METHOD(set_beacons, 5, {
  BeaconSettings settings{given.real(0), given.real(1), given.real(2), given.real(3)};
  core.beacons = std::make_unique<Beacons>(core, settings, given[4]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(start_beacons, 5, {
  std::vector<Medium*> interfaces;
  Ref names = Ref::steal(PySequence_Fast(given[4], "interfaces are a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names.get()); i++) {
    interfaces.push_back(core.medium_named(PySequence_Fast_GET_ITEM(names.get(), i)));
  }
  core.node(given.integer(0));
  core.beacons->start(given.integer(0), given.real(1), given.integer(2), given[3], std::move(interfaces));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(stop_beacons, 1, {
  core.node(given.integer(0));
  core.beacons->stop(given.integer(0));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(fail_neighbor, 4, {
  core.node(given.integer(0));
  core.beacons->on_neighbor_failed(given.integer(0), given.integer(1), given[2], given[3]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(knows_neighbor, 3, {
  core.node(given.integer(0));
  return PyBool_FromLong(core.beacons->knows(given.integer(0), given.integer(1), given[2]));
})

// Native protocols.

CARRYCAST_METHOD(set_protocol, 4, {
  const char* name = PyUnicode_AsUTF8(given[0]);
  if (name == nullptr) throw PythonError();
  core.protocol = make_protocol(core, name, given[1], given[2], given[3]);
  Py_RETURN_NONE;
})
// All nodes start or stop: one fact for each.
CARRYCAST_METHOD(add_lifecycle, 1, {
  for (size_t node = 0; node < core.nodes.size(); node++) {
    core.fingerprint.add(given.integer(0), core.queue.now_us, static_cast<int64_t>(node), -1);
  }
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(publish, 2, {
  core.protocol->publish(given.integer(0), given[1]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(subscribe, 2, {
  core.protocol->subscribe(given.integer(0), given[1]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(unsubscribe, 2, {
  core.protocol->unsubscribe(given.integer(0), given[1]);
  Py_RETURN_NONE;
})

// Links.

CARRYCAST_METHOD(report_link, 3, {
  Medium* medium = core.medium_named(given[2]);
  if (medium == nullptr) throw std::runtime_error("there is no such interface");
  core.report_link(given.integer(0), given.integer(1), *medium);
  Py_RETURN_NONE;
})
// Replaces the link that a node knows to a neighbor; returns whether it knows one.
CARRYCAST_METHOD(replace_link, 4, {
  for (KnownLink& known : core.node(given.integer(0)).links) {
    if (known.neighbor == given.integer(1) && known.medium == core.medium_named(given[2])) {
      known.link = given.kept(3);
      Py_RETURN_TRUE;
    }
  }
  Py_RETURN_FALSE;
})

// Frames.

CARRYCAST_METHOD(transmit, 6, {
  int64_t target = given[1] == Py_None ? kNoTarget : given.integer(1);
  core.transmit(given.integer(0), target, static_cast<int>(given.integer(2)), given[3], given.optional(4),
                given.optional(5));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(transmit_each, 4, {
  core.transmit_each(given.integer(0), given[1], static_cast<int>(given.integer(2)), given[3]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_frame, 2, {
  std::vector<int32_t> nodes = to_nodes(given[1]);
  core.record_frame(*as_frame(given[0]), {nodes.data(), nodes.size()});
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_lost, 3, {
  core.on_lost(*as_frame(given[0]), given.integer(1), given[2]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_missed, 3, {
  std::vector<int32_t> nodes = to_nodes(given[1]);
  core.on_missed(*as_frame(given[0]), {nodes.data(), nodes.size()}, given[2]);
  Py_RETURN_NONE;
})

// Facts.

CARRYCAST_METHOD(on_event, 4, {
  core.ledger.on_event(given[0], core.queue.now_us, given.real(1), given.flag(2), given.integer(3));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(set_eligible, 2, {
  core.ledger.set_eligible(given.pair(0), given[1]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_subscribe, 4, {
  core.ledger.on_subscribe(given[0], given.pair(1), given.integer(2), given.flag(3));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_unsubscribe, 1, {
  core.ledger.on_unsubscribe(given.pair(0));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_deliver, 4, {
  core.deliver(given.integer(0), given[1], given[2], given[3]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_fact, 3, {
  core.note(given.integer(0), static_cast<int>(given.integer(1)), given[2]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_crash, 1, {
  core.ledger.on_crash(given.integer(0));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(on_expired, 1, { return PyLong_FromLongLong(core.ledger.on_expired(given.pair(0))); })
CARRYCAST_METHOD(was_stored, 1, { return PyBool_FromLong(core.ledger.was_stored(given.pair(0))); })
CARRYCAST_METHOD(on_link, 4, {
  core.record_link(given.integer(0), given[1], given.integer(2), given.optional(3));
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(add_fact, 5, {
  core.fingerprint.add(given.integer(0), given.integer(1), given.integer(2), given.integer(3));
  core.fingerprint.put_bytes(given[4]);
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(flush, 0, {
  core.fingerprint.flush();
  Py_RETURN_NONE;
})
CARRYCAST_METHOD(close, 0, {
  core.close();
  Py_RETURN_NONE;
})

#undef CARRYCAST_METHOD

// The sums of the built-in folds.
PyObject* core_sums(PyObject* self, PyObject*) {
  return guard_object([&] {
    const Ledger& ledger = core_of(self).ledger;
    Ref delays = Ref::steal(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(ledger.delays_s.data()),
                                                      static_cast<Py_ssize_t>(ledger.delays_s.size() * sizeof(double))));
    return check(Py_BuildValue(
        "{s(LLL)s(LLL)sLsLsLsLsLsLsO}", "sent", ledger.sent[0], ledger.sent[1], ledger.sent[2], "bytes",
        ledger.bytes[0], ledger.bytes[1], ledger.bytes[2], "airtime_us", ledger.airtime_us, "receptions",
        ledger.receptions, "forwards", ledger.forwards, "duplicates", ledger.duplicates, "hops", ledger.hops,
        "buffer_peak", ledger.buffer_peak, "delays_s", delays.get()));
  });
}

// The Python view of a medium.
struct MediumObject {
  PyObject_HEAD
  PyObject* core_object;
  Medium* medium;
  PyObject* topology;
};

PyTypeObject medium_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

MediumObject& medium_of(PyObject* self) { return *reinterpret_cast<MediumObject*>(self); }

PyObject* medium_interface(PyObject* self, void*) { return Py_NewRef(medium_of(self).medium->interface.get()); }
PyObject* medium_topology(PyObject* self, void*) { return Py_NewRef(medium_of(self).topology); }
PyObject* medium_promiscuous(PyObject* self, void*) { return PyBool_FromLong(medium_of(self).medium->promiscuous); }
int set_medium_promiscuous(PyObject* self, PyObject* value, void*) {
  return guard(-1, [&] {
    medium_of(self).medium->promiscuous = is_true(value);
    return 0;
  });
}
PyObject* medium_cost_s(PyObject* self, PyObject*) { return PyFloat_FromDouble(medium_of(self).medium->cost_s()); }

void medium_dealloc(PyObject* self) {
  Py_XDECREF(medium_of(self).topology);
  Py_XDECREF(medium_of(self).core_object);
  PyObject_Free(self);
}

PyGetSetDef medium_values[] = {
    {"interface", medium_interface, nullptr, nullptr, nullptr},
    {"topology", medium_topology, nullptr, nullptr, nullptr},
    {"promiscuous", medium_promiscuous, set_medium_promiscuous, "Whether overheard unicasts are reported.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef medium_methods[] = {{"cost_s", medium_cost_s, METH_NOARGS, "The cost of a link."},
                                {nullptr, nullptr, 0, nullptr}};

// Adds a medium to the core, and returns the Python view of it.
PyObject* add_medium(PyObject* self, std::unique_ptr<Medium> added) {
  core_of(self).media.push_back(std::move(added));
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(PyObject_New(MediumObject, &medium_type)));
  MediumObject& medium = medium_of(made.get());
  medium.core_object = Py_NewRef(self);
  medium.medium = core_of(self).media.back().get();
  medium.topology = nullptr;
  medium.topology = wrap_topology(&medium.medium->topology, self).release();
  return made.release();
}

// Adds a disk medium: interface, delay_us, rate_bps or None, queue, loss, retries, generator.
PyObject* core_add_disk(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  return guard_object([&] {
    Given given(values, count, 7);
    Core& core = core_of(self);
    DiskSettings settings{given.integer(1), given.optional(2) == nullptr ? 0.0 : given.real(2), given.integer(3),
                          given.real(4), given.integer(5)};
    return add_medium(
        self, std::make_unique<DiskMedium>(settings, given[0], core.nodes.size(), core.queue, core, given[6]));
  });
}

// The columns of a contact plan's changes: times in microseconds, one node, the other, whether the contact begins.
ContactChanges read_changes(PyObject* columns) {
  Buffer<int64_t> time_us(check(PyTuple_GetItem(columns, 0)));
  Buffer<int32_t> a(check(PyTuple_GetItem(columns, 1))), b(check(PyTuple_GetItem(columns, 2)));
  Buffer<uint8_t> up(check(PyTuple_GetItem(columns, 3)));
  return {{time_us.begin(), time_us.end()}, {a.begin(), a.end()}, {b.begin(), b.end()}, {up.begin(), up.end()}};
}

// Adds a contended medium: interface, settings by name, the changes of the contacts that are sensed, those of the
// contacts that interfere or None if they are the same, generator.
PyObject* core_add_csma(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  return guard_object([&] {
    Given given(values, count, 5);
    Core& core = core_of(self);
    std::unique_ptr<ContactChanges> interfering;
    if (given.optional(3) != nullptr) interfering = std::make_unique<ContactChanges>(read_changes(given[3]));
    return add_medium(self, std::make_unique<CsmaMedium>(read_csma_settings(given[1]), given[0], core.nodes.size(),
                                                         core.queue, core, given[4], core.places.get(),
                                                         read_changes(given[2]), std::move(interfering)));
  });
}

// Sets the legs of all nodes: first, start_s, end_s, x_m, y_m, vx_mps, vy_mps.
PyObject* core_set_places(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  return guard_object([&]() -> PyObject* {
    Given given(values, count, 7);
    auto column = [&given](int place) {
      Buffer<double> numbers(given[place]);
      return std::vector<double>(numbers.begin(), numbers.end());
    };
    Buffer<int64_t> first(given[0]);
    core_of(self).places = std::make_unique<Places>(
        Legs{{first.begin(), first.end()}, column(1), column(2), column(3), column(4), column(5), column(6)});
    Py_RETURN_NONE;
  });
}

PyObject* core_now_us(PyObject* self, void*) { return PyLong_FromLongLong(core_of(self).queue.now_us); }
PyObject* core_now_s(PyObject* self, void*) {
  return guard_object([&] { return Py_NewRef(core_of(self).now()); });
}
PyObject* core_popped(PyObject* self, void*) { return PyLong_FromLongLong(core_of(self).queue.popped); }
Py_ssize_t core_length(PyObject* self) { return static_cast<Py_ssize_t>(core_of(self).queue.size()); }

PyObject* core_new(PyTypeObject* type, PyObject* values, PyObject*) {
  return guard_object([&]() -> PyObject* {
    long long nodes = 0;
    int oracle = 0;
    if (!PyArg_ParseTuple(values, "Lp", &nodes, &oracle)) throw PythonError();
    auto core = std::make_unique<Core>(static_cast<size_t>(nodes), oracle != 0);
    PyObject* made = check(type->tp_alloc(type, 0));
    reinterpret_cast<CoreObject*>(made)->core = core.release();
    return made;
  });
}

void core_dealloc(PyObject* self) {
  delete reinterpret_cast<CoreObject*>(self)->core;
  Py_TYPE(self)->tp_free(self);
}

PyGetSetDef core_values[] = {{"now_us", core_now_us, nullptr, nullptr, nullptr},
                             {"now_s", core_now_s, nullptr, nullptr, nullptr},
                             {"popped", core_popped, nullptr, nullptr, nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};

#define CARRYCAST_ENTRY(name) \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(core_##name)), METH_FASTCALL, nullptr}
PyMethodDef core_methods[] = {
    CARRYCAST_ENTRY(at),           CARRYCAST_ENTRY(timer),         CARRYCAST_ENTRY(cancel),
    CARRYCAST_ENTRY(run),          CARRYCAST_ENTRY(set_codec),     CARRYCAST_ENTRY(set_hash),
    CARRYCAST_ENTRY(set_fail),     CARRYCAST_ENTRY(set_network),   CARRYCAST_ENTRY(set_observers),
    CARRYCAST_ENTRY(set_clock), CARRYCAST_ENTRY(set_applications),   CARRYCAST_ENTRY(set_changes),   CARRYCAST_ENTRY(set_media),
    CARRYCAST_ENTRY(port),         CARRYCAST_ENTRY(attach),        CARRYCAST_ENTRY(detach),
    CARRYCAST_ENTRY(set_timer),    CARRYCAST_ENTRY(cancel_timer),  CARRYCAST_ENTRY(armed_timers),
    CARRYCAST_ENTRY(report_link),  CARRYCAST_ENTRY(replace_link),  CARRYCAST_ENTRY(transmit),
    CARRYCAST_ENTRY(transmit_each), CARRYCAST_ENTRY(on_frame),     CARRYCAST_ENTRY(on_lost),
    CARRYCAST_ENTRY(on_missed),    CARRYCAST_ENTRY(on_event),      CARRYCAST_ENTRY(set_eligible),
    CARRYCAST_ENTRY(on_subscribe), CARRYCAST_ENTRY(on_unsubscribe), CARRYCAST_ENTRY(on_deliver),
    CARRYCAST_ENTRY(on_fact),      CARRYCAST_ENTRY(on_crash),      CARRYCAST_ENTRY(on_expired),
    CARRYCAST_ENTRY(was_stored),   CARRYCAST_ENTRY(on_link),       CARRYCAST_ENTRY(add_fact),
    CARRYCAST_ENTRY(set_beacons),  CARRYCAST_ENTRY(start_beacons), CARRYCAST_ENTRY(stop_beacons),
    CARRYCAST_ENTRY(fail_neighbor), CARRYCAST_ENTRY(knows_neighbor),
    CARRYCAST_ENTRY(set_protocol), CARRYCAST_ENTRY(add_lifecycle), CARRYCAST_ENTRY(publish),
    CARRYCAST_ENTRY(subscribe),    CARRYCAST_ENTRY(unsubscribe),
    CARRYCAST_ENTRY(flush),        CARRYCAST_ENTRY(close),         CARRYCAST_ENTRY(add_disk),
    CARRYCAST_ENTRY(add_csma),     CARRYCAST_ENTRY(set_places),
    {"sums", core_sums, METH_NOARGS, "The sums of the built-in folds."},
    {nullptr, nullptr, 0, nullptr}};
#undef CARRYCAST_ENTRY

PySequenceMethods core_sequence = {};

}  // namespace

void add_core_type(PyObject* module) {
  medium_type.tp_name = "carrycast._native.Medium";
  medium_type.tp_basicsize = sizeof(MediumObject);
  medium_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  medium_type.tp_doc = "One interface of all nodes.";
  medium_type.tp_dealloc = medium_dealloc;
  medium_type.tp_getset = medium_values;
  medium_type.tp_methods = medium_methods;
  check_status(PyType_Ready(&medium_type));
  check_status(PyModule_AddObjectRef(module, "Medium", reinterpret_cast<PyObject*>(&medium_type)));
  core_sequence.sq_length = core_length;
  core_type.tp_name = "carrycast._native.Core";
  core_type.tp_basicsize = sizeof(CoreObject);
  core_type.tp_flags = Py_TPFLAGS_DEFAULT;
  core_type.tp_doc = "The native core of one run.";
  core_type.tp_new = core_new;
  core_type.tp_dealloc = core_dealloc;
  core_type.tp_as_sequence = &core_sequence;
  core_type.tp_getset = core_values;
  core_type.tp_methods = core_methods;
  check_status(PyType_Ready(&core_type));
  check_status(PyModule_AddObjectRef(module, "Core", reinterpret_cast<PyObject*>(&core_type)));
}

}  // namespace carrycast
