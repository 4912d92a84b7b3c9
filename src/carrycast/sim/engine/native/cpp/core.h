// The native core of one run: its event queue, its media, the nodes' timers and handlers, the ledger, the fingerprint.
//
// Protocols are the same Python objects as in the Python engine. What happens rarely (starts, crashes, faults on frames,
// applications, processors) is done by the Python classes of the engine, which call the core.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fingerprint.h"
#include "ledger.h"
#include "medium.h"
#include "places.h"
#include "queue.h"

namespace carrycast {

class Core;
class Beacons;
class NativeProtocol;

// A scheduled call that can be cancelled: of a Python function, or of a node's handler of timers.
struct Timer {
  PyObject_HEAD
  bool alive;
  int8_t layer;      // -1 for a Python function.
  int64_t node;
  PyObject* action;  // Only of a Python function.
  PyObject* argument;  // Or the key of the timer.
};

// The handlers of one state machine; null where it does nothing.
struct Handlers {
  Ref on_message, on_timer, on_sent, on_link_up, on_link_down;
};

// The machines of a node that is up.
struct NodeStack {
  Ref stack;       // The Python stack.
  Ref queued;      // Its queue of calls between layers; null if it has one layer.
  Ref run_queued;  // Runs that queue.
  bool has_discovery = false;
  Handlers layers[kLayers];
};

// A link that was reported to a node.
struct KnownLink {
  int64_t neighbor;
  const Medium* medium;
  Ref link;
};

struct CoreNode {
  std::unique_ptr<NodeStack> up;  // Null while the node is down.
  int64_t started_us = 0;
  int64_t restarted_us = 0;
  bool has_applications = false;
  std::vector<KnownLink> links;  // Only with oracle discovery.
  std::vector<Medium*> media;    // The media that the node has, in the order of the scenario.
  Ref timers[kLayers];           // dict: key -> Timer
};

// The error of a clock that drifts.
struct Clock {
  bool wrong = false;
  double offset_s = 0.0, drift = 0.0;
};

// The Python methods that are called beside the core's own work; null if there is nothing for them to do.
struct Hooks {
  Ref network;  // The Python network, for everything that the core leaves to it.
  Ref frame, lost, missed, fact, deliver, link;
  Ref processed;  // Checks and counts a delivery to a subscription that names a processor.
  Ref extra_s;  // Additional delay of a link, if a fault makes links slow.
};

class Core : public MediumUpcalls {
 public:
  Core(size_t nodes, bool oracle);
  ~Core() override;

  // Releases all Python objects. Called when a run has ended, because they refer to the core.
  void close();

  Queue queue;
  Ledger ledger;
  Fingerprint fingerprint;
  Hooks hooks;
  LayerCodec codecs[kLayers];
  std::unique_ptr<Places> places;  // Null if nodes have no positions. Before the media, which refer to it.
  std::vector<std::unique_ptr<Medium>> media;
  std::vector<CoreNode> nodes;
  std::vector<Clock> clocks;  // Empty if all clocks are right.
  std::unique_ptr<NativeProtocol> protocol;  // Null if the protocol is in Python. Then no node has a Python object.
  std::unique_ptr<Beacons> beacons;  // Null if discovery is in Python, or by an oracle.
  bool disturbed = false;     // Receptions are left to the Python network: frame faults, slow links, service queues.

  // The current time as a Python number. Borrowed; valid until the time changes.
  PyObject* now();
  // The time on a node's clock.
  Ref now_of(int64_t node);
  double seconds_of(int64_t node) const;
  // A delay on a node's clock as a delay in simulated time.
  double stretch(int64_t node, double delay_s) const;
  PyObject* id_of(int64_t node);  // Borrowed.
  Medium* medium_named(PyObject* interface) const;
  CoreNode& node(int64_t id);

  void at_python(int64_t time_us, PyObject* action, PyObject* argument);
  Ref python_timer(double delay_s, PyObject* action, PyObject* argument);
  void cancel(Timer* timer);

  // Calls of ports.
  void transmit(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* interface, PyObject* token);
  void transmit_each(int64_t sender, PyObject* targets, int layer, PyObject* message);
  void set_timer(int64_t node, int layer, PyObject* key, double delay_s);
  void cancel_timer(int64_t node, int layer, PyObject* key);
  void cancel_timers(int64_t node);
  // The keys of the timers that have not fired.
  Ref armed_timers(int64_t node, int layer);
  void deliver(int64_t node, PyObject* subscription, PyObject* event, PyObject* hops);
  void note(int64_t node, int layer, PyObject* fact);

  // Calls of native protocols.
  void transmit_native(FrameRef frame);
  void deliver_if_fits(int64_t node, int64_t subscription, PyObject* event, PairId id, int64_t hops);
  void note_native(int64_t node, int64_t code, const char* kind, PairId event, PyObject* event_id, int64_t peer,
                   const char* reason);

  // Links.
  void set_changes(std::vector<int64_t> time_us, std::vector<int32_t> a, std::vector<int32_t> b, std::vector<bool> up);
  void report_link(int64_t a, int64_t b, Medium& medium);
  void report_to(int64_t node, PyObject* link, Medium& medium, int64_t neighbor, bool up);
  // Calls the handlers of the layers above discovery for a link that is up, or down for a cause.
  void call_link_handlers(int64_t node, PyObject* time, PyObject* link, PyObject* cause);
  // Runs the calls between layers that a node's handlers have made.
  void run_queued_of(int64_t node, PyObject* time);
  Ref make_link(int64_t node, int64_t neighbor, Medium& medium);
  void record_link(int64_t node, PyObject* link, int64_t neighbor, PyObject* lost);
  void record_frame(Frame& frame, NodeSpan receivers);
  void record_missed(Frame& frame, NodeSpan nodes, PyObject* reason);

  // Calls of media.
  void on_received(Frame& frame, NodeSpan receivers) override;
  void on_outcome(Frame& frame, PyObject* failure) override;
  void on_unreachable(const std::vector<FrameRef>& frames) override;
  void on_lost(Frame& frame, int64_t node, PyObject* reason) override;
  void on_missed(Frame& frame, NodeSpan nodes, PyObject* reason) override;
  void on_overheard(Frame& frame, NodeSpan nodes) override;

 private:
  struct PythonCall;
  class PythonAction;
  class TimerAction;
  class ChangeAction;
  class RefusalAction;

  void make_actions();
  Ref& timers_of(int64_t node, int layer);
  FrameRef encode(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* token, Medium& medium);
  std::vector<Medium*> select_media(int64_t sender, int64_t target, PyObject* named);
  bool report_sent(Frame& frame, PyObject* failure);
  void receive_native(Frame& frame, NodeSpan receivers);
  void record_delivery(int64_t node, PairId to, PairId of, int64_t hops);
  void fire_timer(Timer* timer);
  void change_links();
  void change_native(Medium& radio, int64_t a, int64_t b, bool up);
  void run_queued(NodeStack& stack, PyObject* now);

  bool oracle_;
  int64_t now_shown_us_ = -1;
  Ref now_;
  std::vector<Ref> ids_;
  std::vector<Ref> links_;  // The link to each node over the first medium, as long as no link is slow.
  std::unique_ptr<Action> python_action_, timer_action_, change_action_, refusal_action_;
  std::vector<int64_t> change_us_;
  std::vector<int32_t> change_a_, change_b_;
  std::vector<bool> change_up_;
  size_t next_change_ = 0;
};

Ref make_timer();
void add_timer_type(PyObject* module);
Timer* as_timer(PyObject* object);
// The port of one layer of one node, for the core that a Python object wraps.
Ref make_port(PyObject* core_object, Core* core, int64_t node, int layer, PyObject* python_node);
void add_port_type(PyObject* module);
// The core and the node that a port belongs to.
struct PortOwner {
  Core* core;
  int64_t node;
};
PortOwner owner_of(PyObject* port);
void add_core_type(PyObject* module);

}  // namespace carrycast
