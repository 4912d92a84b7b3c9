// Timers, calls of Python functions, and link changes: the entries of the event queue that the core makes.
#include <algorithm>
#include <cmath>

#include "core.h"
#include "protocol.h"

namespace carrycast {

// A call `action(argument)` of Python.
struct Core::PythonCall {
  Ref action, argument;
};

class Core::PythonAction : public Action {
 public:
  void fire(void* data) override {
    std::unique_ptr<PythonCall> scheduled(static_cast<PythonCall*>(data));
    call(scheduled->action.get(), scheduled->argument.get());
  }
  void discard(void* data) override { delete static_cast<PythonCall*>(data); }
};

class Core::TimerAction : public Action {
 public:
  explicit TimerAction(Core& core) : core_(core) {}
  void fire(void* data) override {
    Ref owned = Ref::steal(static_cast<PyObject*>(data));
    Timer* timer = reinterpret_cast<Timer*>(owned.get());
    if (!timer->alive) {
      core_.queue.on_cancelled_popped();
      return;
    }
    timer->alive = false;
    core_.fire_timer(timer);
  }
  void discard(void* data) override { Py_DECREF(static_cast<PyObject*>(data)); }
  bool is_cancelled(void* data) const override { return !static_cast<Timer*>(data)->alive; }

 private:
  Core& core_;
};

class Core::ChangeAction : public Action {
 public:
  explicit ChangeAction(Core& core) : core_(core) {}
  void fire(void*) override { core_.change_links(); }
  void discard(void*) override {}

 private:
  Core& core_;
};

// Tells a sender that a frame never left it.
class Core::RefusalAction : public Action {
 public:
  explicit RefusalAction(Core& core) : core_(core) {}
  void fire(void* data) override {
    FrameRef frame(static_cast<Frame*>(data));
    core_.on_outcome(*frame, words.unreachable);
  }
  void discard(void* data) override { FrameRef(static_cast<Frame*>(data)); }

 private:
  Core& core_;
};

void Core::make_actions() {
  python_action_ = std::make_unique<PythonAction>();
  timer_action_ = std::make_unique<TimerAction>(*this);
  change_action_ = std::make_unique<ChangeAction>(*this);
  refusal_action_ = std::make_unique<RefusalAction>(*this);
}

void Core::at_python(int64_t time_us, PyObject* action, PyObject* argument) {
  queue.at(time_us, python_action_.get(), new PythonCall{Ref::borrow(action), Ref::borrow(argument)});
}

Ref Core::python_timer(double delay_s, PyObject* action, PyObject* argument) {
  Ref made = make_timer();
  Timer* timer = as_timer(made.get());
  timer->action = Py_NewRef(action);
  timer->argument = Py_NewRef(argument);
  queue.at(queue.now_us + delay_us(delay_s), timer_action_.get(), Py_NewRef(made.get()));
  return made;
}

void Core::cancel(Timer* timer) {
  if (!timer->alive) return;
  timer->alive = false;
  queue.on_cancelled();
}

void Core::set_timer(int64_t id, int layer, PyObject* key, double delay_s) {
  Ref& table = timers_of(id, layer);
  PyObject* armed = PyDict_GetItemWithError(table.get(), key);
  if (armed != nullptr) {
    cancel(as_timer(armed));
  } else if (PyErr_Occurred()) {
    throw PythonError();
  }
  if (std::isinf(delay_s) && delay_s > 0) {
    if (armed != nullptr) check_status(PyDict_DelItem(table.get(), key));
    return;
  }
  delay_s = stretch(id, delay_s);
  Ref made = make_timer();
  Timer* timer = as_timer(made.get());
  timer->layer = static_cast<int8_t>(layer);
  timer->node = id;
  timer->argument = Py_NewRef(key);
  check_status(PyDict_SetItem(table.get(), key, made.get()));
  queue.at(queue.now_us + delay_us(delay_s), timer_action_.get(), made.release());
}

void Core::cancel_timer(int64_t id, int layer, PyObject* key) {
  Ref& table = timers_of(id, layer);
  PyObject* armed = PyDict_GetItemWithError(table.get(), key);
  if (armed == nullptr) {
    if (PyErr_Occurred()) throw PythonError();
    return;
  }
  Ref timer = Ref::borrow(armed);
  check_status(PyDict_DelItem(table.get(), key));
  cancel(as_timer(timer.get()));
}

void Core::cancel_timers(int64_t id) {
  for (Ref& table : node(id).timers) {
    if (!table) continue;
    Ref timers = Ref::steal(PyDict_Values(table.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(timers.get()); i++) cancel(as_timer(PyList_GET_ITEM(timers.get(), i)));
    PyDict_Clear(table.get());
  }
}

Ref Core::armed_timers(int64_t id, int layer) {
  return Ref::steal(PyDict_Keys(timers_of(id, layer).get()));
}

Ref& Core::timers_of(int64_t id, int layer) {
  Ref& table = node(id).timers[layer];
  if (!table) table = Ref::steal(PyDict_New());
  return table;
}

void Core::fire_timer(Timer* timer) {
  if (timer->layer < 0) {
    call(timer->action, timer->argument);
    return;
  }
  check_status(PyDict_DelItem(timers_of(timer->node, timer->layer).get(), timer->argument));
  NodeStack* up = node(timer->node).up.get();
  if (up == nullptr) throw std::runtime_error("a timer of a node that is down");
  Ref time = now_of(timer->node);
  PyObject* handler = up->layers[timer->layer].on_timer.get();
  if (handler != nullptr) call(handler, time.get(), timer->argument);
  run_queued(*up, time.get());
}

// Links.

void Core::set_changes(std::vector<int64_t> time_us, std::vector<int32_t> a, std::vector<int32_t> b,
                       std::vector<bool> up) {
  change_us_ = std::move(time_us);
  change_a_ = std::move(a);
  change_b_ = std::move(b);
  change_up_ = std::move(up);
  next_change_ = 0;
  if (!change_us_.empty()) queue.at(change_us_.front(), change_action_.get(), nullptr);
}

void Core::change_links() {
  Medium& radio = *media.front();
  while (next_change_ < change_us_.size() && change_us_[next_change_] <= queue.now_us) {
    size_t place = next_change_++;
    if (protocol) {
      change_native(radio, change_a_[place], change_b_[place], change_up_[place]);
      continue;
    }
    radio.topology.set_contact(change_a_[place], change_b_[place], change_up_[place]);
    report_link(change_a_[place], change_b_[place], radio);
  }
  if (next_change_ < change_us_.size()) queue.at(change_us_[next_change_], change_action_.get(), nullptr);
}

void Core::change_native(Medium& radio, int64_t a, int64_t b, bool up) {
  bool was_up = radio.topology.is_linked(a, b);
  radio.topology.set_contact(a, b, up);
  if (was_up == up) return;
  for (auto [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    fingerprint.add(up ? words.code_link_up : words.code_link_down, queue.now_us, one, other);
    if (hooks.link) {
      Ref link = make_link(one, other, radio);
      call(hooks.link.get(), id_of(one), link.get(), up ? Py_None : words.out_of_reach);
    }
    if (up) {
      protocol->on_link_up(one, other);
    } else {
      protocol->on_link_down(one, other);
    }
  }
}

void Core::report_link(int64_t a, int64_t b, Medium& medium) {
  if (!oracle_) return;
  bool up = medium.topology.is_linked(a, b);
  for (auto [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (node(one).up) report_to(one, make_link(one, other, medium).get(), medium, other, up);
  }
}

Ref Core::make_link(int64_t id, int64_t neighbor, Medium& medium) {
  if (hooks.extra_s) {
    Ref extra_s = call(hooks.extra_s.get(), id_of(id), id_of(neighbor));
    Ref cost_s = Ref::steal(PyFloat_FromDouble(medium.cost_s() + to_double(extra_s.get())));
    return call(words.link, id_of(neighbor), medium.interface.get(), cost_s.get());
  }
  bool is_first = &medium == media.front().get();
  if (is_first && links_.empty()) links_.resize(nodes.size());
  if (is_first && links_[static_cast<size_t>(neighbor)]) return links_[static_cast<size_t>(neighbor)];
  Ref cost_s = Ref::steal(PyFloat_FromDouble(medium.cost_s()));
  Ref link = call(words.link, id_of(neighbor), medium.interface.get(), cost_s.get());
  if (is_first) links_[static_cast<size_t>(neighbor)] = link;
  return link;
}

void Core::report_to(int64_t id, PyObject* link, Medium& medium, int64_t neighbor, bool up) {
  CoreNode& one = node(id);
  auto place = std::find_if(one.links.begin(), one.links.end(), [&](const KnownLink& known) {
    return known.neighbor == neighbor && known.medium == &medium;
  });
  if (up == (place != one.links.end())) return;
  Ref time = now_of(id);
  record_link(id, link, neighbor, up ? nullptr : words.out_of_reach);
  Ref reported = Ref::borrow(link);
  if (up) {
    one.links.push_back({neighbor, &medium, reported});
  } else {
    reported = place->link;
    one.links.erase(place);
  }
  NodeStack& stack = *one.up;
  for (int layer : {kRouting, kDissemination}) {
    const Handlers& handlers = stack.layers[layer];
    PyObject* handler = up ? handlers.on_link_up.get() : handlers.on_link_down.get();
    if (handler != nullptr && up) call(handler, time.get(), reported.get());
    if (handler != nullptr && !up) call(handler, time.get(), reported.get(), words.out_of_reach);
    run_queued(stack, time.get());
  }
}

void Core::call_link_handlers(int64_t id, PyObject* time, PyObject* link, PyObject* cause) {
  NodeStack& stack = *node(id).up;
  for (int layer : {kRouting, kDissemination}) {
    const Handlers& handlers = stack.layers[layer];
    PyObject* handler = cause == nullptr ? handlers.on_link_up.get() : handlers.on_link_down.get();
    if (handler == nullptr) continue;
    if (cause == nullptr) {
      call(handler, time, link);
    } else {
      call(handler, time, link, cause);
    }
  }
}

void Core::record_link(int64_t id, PyObject* link, int64_t neighbor, PyObject* lost) {
  fingerprint.add(lost == nullptr ? words.code_link_up : words.code_link_down, queue.now_us, id, neighbor);
  if (hooks.link) call(hooks.link.get(), id_of(id), link, lost == nullptr ? Py_None : lost);
}

// The type of timers.

namespace {

std::vector<Timer*> spare_timers;
constexpr size_t kMostSpareTimers = 4096;

PyTypeObject timer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

void timer_dealloc(PyObject* self) {
  Timer* timer = reinterpret_cast<Timer*>(self);
  Py_CLEAR(timer->action);
  Py_CLEAR(timer->argument);
  if (spare_timers.size() < kMostSpareTimers) {
    spare_timers.push_back(timer);
  } else {
    PyObject_Free(self);
  }
}

PyObject* timer_alive(PyObject* self, void*) { return PyBool_FromLong(reinterpret_cast<Timer*>(self)->alive); }

PyGetSetDef timer_values[] = {{"alive", timer_alive, nullptr, "Whether the call is still to come.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

Ref make_timer() {
  Timer* timer = nullptr;
  if (spare_timers.empty()) {
    timer = PyObject_New(Timer, &timer_type);
  } else {
    timer = spare_timers.back();
    spare_timers.pop_back();
    PyObject_Init(reinterpret_cast<PyObject*>(timer), &timer_type);
  }
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(timer));
  timer->alive = true;
  timer->layer = -1;
  timer->node = -1;
  timer->action = nullptr;
  timer->argument = nullptr;
  return made;
}

Timer* as_timer(PyObject* object) {
  if (Py_TYPE(object) != &timer_type) {
    PyErr_Format(PyExc_TypeError, "a timer of the native engine is needed, not %R", object);
    throw PythonError();
  }
  return reinterpret_cast<Timer*>(object);
}

void add_timer_type(PyObject* module) {
  timer_type.tp_name = "carrycast._native.Timer";
  timer_type.tp_basicsize = sizeof(Timer);
  timer_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  timer_type.tp_doc = "A scheduled call that can be cancelled.";
  timer_type.tp_dealloc = timer_dealloc;
  timer_type.tp_getset = timer_values;
  check_status(PyType_Ready(&timer_type));
  check_status(PyModule_AddObjectRef(module, "Timer", reinterpret_cast<PyObject*>(&timer_type)));
}

}  // namespace carrycast
