// Neighbor discovery by beacons, as in core/protocol/discovery.py. The stacks of nodes are in Python; a Python object
// stands for the discovery of each node and passes the calls of its stack (native/discovery.py).
#pragma once
#include <memory>
#include <vector>

#include "frame.h"
#include "queue.h"
#include "random.h"

namespace carrycast {

class Core;
class Medium;

struct BeaconSettings {
  double period_s = 0.0, missed = 0.0, jitter = 0.0, believed_s = 0.0;
};

class Beacons {
 public:
  Beacons(Core& core, const BeaconSettings& settings, PyObject* beacon_class);
  Beacons(const Beacons&) = delete;
  Beacons& operator=(const Beacons&) = delete;

  // A node starts; `generator` is the Python generator of its discovery.
  void start(int64_t node, double now_s, int64_t incarnation, PyObject* generator, std::vector<Medium*> interfaces);
  // The node stopped or crashed.
  void stop(int64_t node);
  // A beacon arrived. Calls between layers that follow from it are made by the caller (`report_changes`).
  void on_beacon(int64_t node, double now_s, const Frame& frame);
  void on_neighbor_failed(int64_t node, int64_t neighbor, PyObject* interface, PyObject* cause);
  bool knows(int64_t node, int64_t neighbor, PyObject* interface) const;
  void clear() { states_.clear(); }

 private:
  struct Neighbor {
    int64_t id;
    Medium* medium;
    double deadline_s;
    int64_t incarnation;
    Ref link;
  };
  // A link that was found (`cause` null) or lost.
  struct Change {
    int64_t neighbor;
    Ref link;
    PyObject* cause;
  };
  struct State {
    std::vector<Neighbor> neighbors;  // In the order of insertion.
    std::vector<Medium*> interfaces;
    std::vector<Change> changes;  // Not reported yet.
    Random random;
    Ref beacon, body;  // The beacon of this incarnation, and its encoding.
    int64_t incarnation = 0;
    double due_s = 0.0;  // The time of the next beacon, on the node's clock.
    bool watching = false;
    // Timers with another number were armed before a restart.
    uint64_t boot = 0;
  };
  enum TimerKind : uint64_t { kBeacon = 0, kSilence = 1 };
  struct Due {
    int64_t node;
    TimerKind kind;
    uint64_t boot;
  };
  class TimerAction : public Action {
   public:
    explicit TimerAction(Beacons& beacons) : beacons_(beacons) {}
    void fire(void* data) override {
      std::unique_ptr<Due> due(static_cast<Due*>(data));
      beacons_.on_timer(*due);
    }
    void discard(void* data) override { delete static_cast<Due*>(data); }

   private:
    Beacons& beacons_;
  };

  State* state(int64_t node) const { return states_[static_cast<size_t>(node)].get(); }
  void on_timer(const Due& due);
  void extend_deadlines(State& node, double now_s);
  void send_beacon(int64_t node, double now_s);
  void schedule_beacon(int64_t node, double now_s, double delay_s);
  void watch(int64_t node, double now_s);
  void drop_expired(int64_t node, double now_s);
  void lose(State& node, int64_t neighbor, const Medium* medium, PyObject* cause);
  double limit_period_s(double period_s) const;
  void arm(int64_t node, TimerKind kind, double delay_s);
  void report_changes(int64_t node, double now_s);
  void note(int64_t node, int64_t sender, const char* reason, const double* value);

  Core& core_;
  BeaconSettings settings_;
  Ref beacon_class_;
  std::vector<std::unique_ptr<State>> states_;
  uint64_t boots_ = 0;
  TimerAction on_timer_{*this};
};

}  // namespace carrycast
