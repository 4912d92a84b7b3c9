// Protocols in C++. Each follows its Python class, which is the specification, step for step; native/protocols.py says
// for which settings. A native protocol has the state of all nodes, so a node costs no Python object.
#pragma once
#include <memory>
#include <vector>

#include "frame.h"
#include "random.h"
#include "tables.h"

namespace carrycast {

class Core;

// An event of the workload. Protocols refer to it by its number, in the order of publication.
struct EventInfo {
  Ref event, id_object;
  PairId id;
  double lease_s = 0.0;
  int64_t size_bytes = 0;  // Encoded, as a part of messages.
  std::string id_bytes;    // The encoded id.
};

class NativeProtocol {
 public:
  // `make_rng` returns the Python generator of a node; `messages` are the classes of the protocol's messages.
  NativeProtocol(Core& core, PyObject* make_rng, PyObject* messages);
  virtual ~NativeProtocol() = default;
  NativeProtocol(const NativeProtocol&) = delete;
  NativeProtocol& operator=(const NativeProtocol&) = delete;

  // A message; `remaining_s` is the remaining lease of its event, without the time that the frame waited.
  virtual void on_message(int64_t node, const Frame& frame, double remaining_s) = 0;
  virtual void on_sent(const Frame&, bool /*failed*/) {}
  virtual void on_link_up(int64_t /*node*/, int64_t /*neighbor*/) {}
  virtual void on_link_down(int64_t /*node*/, int64_t /*neighbor*/) {}

  void publish(int64_t node, PyObject* event);
  void subscribe(int64_t node, PyObject* subscription);
  void unsubscribe(int64_t node, PyObject* id);
  const std::vector<EventInfo>& events() const { return events_; }

 protected:
  virtual void on_publish(int64_t node, int32_t event) = 0;

  // Delivers an event to the subscriptions of a node that it is for.
  void deliver(int64_t node, int32_t event, int64_t hops);
  void send(int64_t node, int64_t target, FrameRef frame);
  FrameRef make_event_frame(int64_t node, int64_t target, uint16_t tag, int32_t event, int64_t hops, double remaining_s);
  // Reports a fact; `peer` is -1 if there is none, `reason` null.
  void note(int64_t node, int64_t code, const char* kind, int32_t event, int64_t peer, const char* reason);
  Random& random_of(int64_t node);
  const MessageKind& kind_of(uint16_t tag) const;
  PyObject* class_of(uint16_t tag) const;

  Core& core_;
  std::vector<EventInfo> events_;

 private:
  // The subscriptions of one node: the number of the only one, or a Python object with all of them.
  struct Local {
    int64_t number = -1;
    Ref several;
  };

  Ref make_rng_;
  std::vector<Ref> classes_;  // By tag.
  std::vector<std::unique_ptr<Random>> random_;
  std::vector<Local> local_;
};

// Makes a native protocol from its name and the values of its settings; throws for an unknown one.
std::unique_ptr<NativeProtocol> make_protocol(Core& core, const char* name, PyObject* settings, PyObject* make_rng,
                                              PyObject* messages);

double setting(PyObject* settings, const char* name);

}  // namespace carrycast
